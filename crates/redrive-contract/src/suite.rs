//! The only list of clauses; the tests and [`CLAUSES`] are generated from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::clauses;
use crate::harness::Harness;
use crate::run::{Clock, Job, Verdict, run};
use parking_lot::Mutex;

/// Calls `$then` with its own arguments and the names of all clauses.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_clauses {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            complete_removes
            completing_one_leaves_the_others
            reschedule_comes_back
            reschedule_removes_the_original
            reschedule_is_never_early
            reschedule_by_zero_comes_back
            reschedule_keeps_the_whole_message
            a_shorter_wait_is_not_held_up_by_a_longer_one
            a_wait_longer_than_one_hop_is_never_cut_short
            what_waits_survives_its_transport
            shelve_stores_on_the_dead_letter_shelf
            shelve_stores_on_the_parking_shelf
            shelve_removes_the_original
            shelve_keeps_the_whole_message
            a_shelf_keeps_the_order
            native_dead_letter_reaches_the_dead_letter_shelf
            what_another_program_puts_back_begins_afresh
            release_gives_back
            release_counts_as_declared
            release_costs_no_attempt
            what_is_released_reaches_others
            a_dropped_receipt_comes_again
            a_dropped_receipt_is_a_redelivery
            a_dropped_receipt_leaves_the_others
            many_dropped_receipts_all_come_again
            process_death_brings_messages_back
            process_death_counts_as_declared
            process_death_costs_no_attempt
            settling_after_death_answers_lost
            a_dead_receipt_harms_no_other
            an_interruption_is_signalled_before_what_comes_again
            an_interruption_ends_and_loses_nothing
            a_lost_delivery_says_so
            losing_one_leaves_the_others
            a_message_at_the_delivery_limit_is_shelved
            the_first_arrival_is_the_first
            attempt_and_copy_number_grow_with_every_retry
            attempts_go_on_from_in_place_to_copies
            the_delivery_count_of_a_copy_starts_at_one
            a_snooze_costs_no_attempt
            the_history_survives_the_copy
            an_unwritable_shelf_refuses_the_move
            a_refused_move_can_be_tried_again
            a_refused_move_removes_nothing
            an_unwritable_shelf_holds_up_nothing_else
            a_refused_receipt_gives_back_when_dropped
            first_deliveries_come_in_order
            a_batch_has_no_more_than_was_asked_for
            receive_waits_for_a_message
            receive_is_cancel_safe
            receive_may_be_called_concurrently
            prefetch_bounds_what_is_in_flight
            pause_lets_finish_what_was_handed_out
            pause_takes_nothing_new
            pause_ends_a_waiting_receive
            settling_goes_on_while_paused
            resume_goes_on
            pausing_twice_is_pausing_once
            of_two_limits_at_once_the_later_holds
            a_higher_limit_holds_more
            a_limit_after_close_is_refused
            close_gives_back_what_is_in_flight
            close_gives_back_what_was_not_received
            close_costs_no_attempt
            receive_after_close_answers_none
            close_ends_a_waiting_receive
            settling_after_close_answers_lost
            closing_twice_is_closing_once
            shutdown_loses_nothing
            death_loses_nothing
            two_consumers_share_without_doubles
            consumers_do_not_starve_each_other
            concurrent_settlements_end_at_the_right_place
            an_empty_body_is_carried
            a_large_body_is_carried
            a_binary_body_is_carried
            a_message_without_an_id_gets_one
            a_header_that_is_not_utf8_is_carried
            nested_headers_are_carried
            many_headers_are_carried
            a_bare_message_is_carried
            hostile_headers_break_nothing
            forged_broker_headers_count_for_nothing
            what_is_published_is_received_whole
            publishing_gives_an_id_where_there_is_none
            publishing_works_before_opening
            publish_all_stores_all
            publish_all_fails_only_what_is_refused
            publishing_with_a_delay_is_never_early
            publishing_to_another_queue_reaches_only_that
            publishing_to_nowhere_fails
            publishing_after_close_answers_closed
            start_takes_what_is_there
            nothing_comes_before_the_first_limit
            opening_twice_is_refused
            opening_after_close_is_refused
            open_refuses_needs_that_it_cannot_meet
            system_and_queue_have_names
            a_preflight_changes_nothing
            the_longest_hop_covers_the_waits_asked_for
            the_clock_goes_forward
            shelves_count
            browsing_leaves_everything
            browsing_keeps_to_its_limit
            a_scan_passes_on_each_entry_once
            redrive_brings_everything_back
            redrive_by_handle_leaves_the_others
            redrive_by_reason_leaves_the_others
            redrive_starts_again_at_the_first_attempt
            redrive_keeps_the_whole_message
            redrive_reaches_nobody_else
            redrive_of_nothing_answers_zero
            park_moves_to_the_parking_shelf
            discard_removes_for_good
            entries_of_one_id_are_acted_on_one_at_a_time
            entries_without_an_id_have_handles
            entries_alike_in_everything_are_acted_on_one_at_a_time
            a_handle_means_the_same_to_another_operator
            a_handle_of_an_entry_that_is_gone_is_not_found
            a_report_names_every_entry
            what_failed_in_another_queue_is_left_out
            what_is_refused_stays_and_is_reported
            browsing_many_times_changes_nothing
            pages_show_every_entry_once
            pages_leave_nothing_out_when_entries_go
            a_cursor_of_the_other_shelf_is_refused
            a_handle_of_the_other_shelf_fails
            an_empty_page_skips_nothing
            the_oldest_entry_tells_since_when_it_rests
            replace_removes_exactly_its_entry
            redrive_as_sends_the_edited_message
            restore_undoes_a_discard
            the_work_queue_is_told_as_it_is
            what_was_handled_is_reported
            a_shelf_is_leased_to_one
            a_leased_shelf_is_worked_on_in_steps
        }
    };
}

/// Generates a test of every clause, for one kind of broker.
///
/// `conformance!(name, harness)` creates a module of that name; `conformance!(harness)` puts the tests where it is called. The
/// harness is an expression, evaluated for every test. With `, paused` at the end the clauses run on tokio's paused clock.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance {
    ($name:ident, $harness:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__with_clauses! { __tests (($harness) Real) }
        }
    };
    ($name:ident, $harness:expr, paused) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::__with_clauses! { __tests (($harness) Paused) }
        }
    };
    ($harness:expr) => {
        $crate::__with_clauses! { __tests (($harness) Real) }
    };
    ($harness:expr, paused) => {
        $crate::__with_clauses! { __tests (($harness) Paused) }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    (($harness:tt $clock:ident) $($clause:ident)*) => {
        $(
            #[test]
            fn $clause() {
                $crate::run(
                    stringify!($clause),
                    $harness,
                    $crate::Clock::$clock,
                    $crate::clauses::$clause,
                );
            }
        )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __names {
    (() $($clause:ident)*) => {
        /// The names of all clauses, in the order of the suite. Each is a function in [`clauses`](crate::clauses),
        /// whose documentation is the clause's text.
        pub const CLAUSES: &[&str] = &[$(stringify!($clause)),*];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __jobs {
    (() $($clause:ident)*) => {
        /// Returns every clause, ready to be examined, with its name.
        pub(crate) fn jobs<H: Harness>(harness: impl Fn() -> H) -> Vec<(&'static str, Job)> {
            vec![$({
                let harness = harness();
                let name = stringify!($clause);
                (name, Box::new(move || run(name, harness, Clock::Real, clauses::$clause)) as Job)
            }),*]
        }
    };
}

/// Examines all clauses as one test, `at_once` of them at a time: for a broker that not every machine can reach. Returns the
/// verdict of each with its name; `None` if it failed, with the reason on the standard error of the test run.
pub fn run_all<H: Harness>(harness: impl Fn() -> H, at_once: usize) -> Vec<(&'static str, Option<Verdict>)> {
    let jobs = Mutex::new(jobs(harness).into_iter());
    let verdicts = Mutex::new(Vec::new());
    let next = || jobs.lock().next();
    thread::scope(|threads| {
        for _ in 0..at_once.max(1) {
            threads.spawn(|| {
                while let Some((clause, job)) = next() {
                    let verdict = catch_unwind(AssertUnwindSafe(job)).ok();
                    verdicts.lock().push((clause, verdict));
                }
            });
        }
    });
    verdicts.into_inner()
}

crate::__with_clauses! { __names () }
crate::__with_clauses! { __jobs () }

#[cfg(test)]
mod tests {
    use super::CLAUSES;

    /// Returns the sources of all clauses.
    fn sources() -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clauses");
        let files = std::fs::read_dir(folder).expect("the folder of the clauses is there");
        files
            .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a file of text"))
            .collect::<Vec<_>>()
            .concat()
    }

    #[test]
    fn every_clause_is_listed_once() {
        let sources = sources();
        let mut written: Vec<&str> = sources
            .lines()
            .filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next())
            .collect();
        let mut listed = CLAUSES.to_vec();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
        listed.dedup();
        assert_eq!(written, listed, "one is listed twice");
        assert!(listed.len() >= 40);
    }
}
