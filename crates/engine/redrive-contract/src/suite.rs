//! The only list of clauses; the tests and [`CLAUSES`] are generated from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::clauses;
use crate::harness::Harness;
use crate::run::{Clock, Job, Verdict, run};
use parking_lot::Mutex;

/// Calls `$then` with its own arguments and the names of all groups of clauses.
#[doc(hidden)]
#[macro_export]
macro_rules! __with_groups {
    ($then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            removing
            rescheduling
            shelving
            returning
            dying
            interrupting
            losing
            counting
            refusing
            receiving
            pausing
            closing
            sharing
            carrying
            publishing
            starting
            operating
            entries
            pages
            leases
        }
    };
}

/// Calls `$then` with its own arguments and the names of the clauses of one group, which is one file of `clauses`.
#[doc(hidden)]
#[macro_export]
macro_rules! __clauses {
    (removing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            complete_removes
            completing_one_leaves_the_others
        }
    };
    (rescheduling $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            reschedule_comes_back
            reschedule_removes_the_original
            reschedule_is_never_early
            reschedule_is_not_late
            reschedule_by_zero_comes_back
            reschedule_keeps_the_whole_message
            a_shorter_wait_is_not_held_up_by_a_longer_one
            a_wait_longer_than_one_hop_is_never_cut_short
            what_waits_survives_its_transport
        }
    };
    (shelving $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            shelve_stores_on_the_dead_letter_shelf
            shelve_stores_on_the_parking_shelf
            shelve_removes_the_original
            shelve_keeps_the_whole_message
            a_shelf_keeps_the_order
            native_dead_letter_reaches_the_dead_letter_shelf
            what_another_program_puts_back_begins_afresh
        }
    };
    (returning $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            release_gives_back
            release_counts_as_declared
            release_costs_no_attempt
            giving_back_does_not_wait_for_leases
            what_is_released_reaches_others
            a_dropped_receipt_comes_again
            a_dropped_receipt_is_a_redelivery
            a_dropped_receipt_leaves_the_others
            many_dropped_receipts_all_come_again
        }
    };
    (dying $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            process_death_brings_messages_back
            process_death_counts_as_declared
            process_death_costs_no_attempt
            settling_after_death_answers_lost
            a_dead_receipt_harms_no_other
            a_message_at_the_delivery_limit_is_shelved
        }
    };
    (interrupting $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            an_interruption_is_signalled_before_what_comes_again
            an_interruption_ends_and_loses_nothing
            what_is_said_of_a_copy_in_an_interruption_is_true
            a_copy_whose_confirmation_is_lost_is_not_disowned
        }
    };
    (losing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            a_lost_delivery_says_so
            a_copy_that_is_claimed_after_a_loss_is_stored
            losing_one_leaves_the_others
        }
    };
    (counting $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            the_first_arrival_is_the_first
            attempt_and_copy_number_grow_with_every_retry
            attempts_go_on_from_in_place_to_copies
            the_delivery_count_of_a_copy_starts_at_one
            a_snooze_costs_no_attempt
            a_number_of_the_broker_names_one_message
            the_history_survives_the_copy
        }
    };
    (refusing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            an_unwritable_shelf_refuses_the_move
            a_refused_move_can_be_tried_again
            a_refused_move_removes_nothing
            an_unwritable_shelf_holds_up_nothing_else
            a_refused_receipt_gives_back_when_dropped
            a_retry_that_cannot_be_stored_is_refused
            a_refused_retry_removes_nothing
        }
    };
    (receiving $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            first_deliveries_come_in_order
            receive_waits_for_a_message
            receive_is_cancel_safe
            receive_may_be_called_concurrently
            the_time_of_entering_is_that_of_the_publication
            prefetch_bounds_what_is_in_flight
        }
    };
    (pausing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            pause_lets_finish_what_was_handed_out
            pause_takes_nothing_new
            pause_ends_a_waiting_receive
            settling_goes_on_while_paused
            resume_goes_on
            pausing_twice_is_pausing_once
            of_two_limits_at_once_the_later_holds
            a_higher_limit_holds_more
            a_lower_limit_holds_less
            a_limit_after_close_is_refused
        }
    };
    (closing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            close_gives_back_what_is_in_flight
            close_gives_back_what_was_not_received
            close_costs_no_attempt
            receive_after_close_answers_none
            close_ends_a_waiting_receive
            settling_after_close_answers_lost
            closing_twice_is_closing_once
            close_does_not_wait_for_leases
            close_ends_on_a_dead_connection
            shutdown_loses_nothing
            death_loses_nothing
        }
    };
    (sharing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            two_consumers_share_without_doubles
            consumers_do_not_starve_each_other
            concurrent_settlements_end_at_the_right_place
            what_failed_in_another_queue_is_left_out
        }
    };
    (carrying $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
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
            the_headers_that_control_the_broker_do_nothing
            foreign_messages_stop_nothing
        }
    };
    (publishing $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            what_is_published_is_received_whole
            publishing_gives_an_id_where_there_is_none
            publishing_works_before_opening
            publish_all_stores_all
            publish_all_fails_only_what_is_refused
            publishing_with_a_delay_is_never_early
            publishing_goes_on_after_an_interruption
            publishing_to_another_queue_reaches_only_that
            publishing_to_nowhere_fails
            publishing_after_close_answers_closed
        }
    };
    (starting $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            start_takes_what_is_there
            nothing_comes_before_the_first_limit
            opening_twice_is_refused
            opening_after_close_is_refused
            open_refuses_needs_that_it_cannot_meet
            system_and_queue_have_names
            a_preflight_changes_nothing
            a_preflight_declares_nothing
            the_longest_hop_covers_the_waits_asked_for
            the_clock_goes_forward
        }
    };
    (operating $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
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
        }
    };
    (entries $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            entries_of_one_id_are_acted_on_one_at_a_time
            entries_without_an_id_have_handles
            entries_alike_in_everything_are_acted_on_one_at_a_time
            a_handle_means_the_same_to_another_operator
            a_handle_of_an_entry_that_is_gone_is_not_found
            a_report_names_every_entry
            what_is_refused_stays_and_is_reported
            a_redrive_that_is_refused_leaves_the_entry
            a_handle_of_a_shelf_that_was_recreated_is_not_found
            a_handle_of_the_other_shelf_fails
            the_oldest_entry_tells_since_when_it_rests
            replace_removes_exactly_its_entry
            redrive_as_sends_the_edited_message
            restore_undoes_a_discard
            the_work_queue_is_told_as_it_is
            what_was_handled_is_reported
        }
    };
    (pages $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            browsing_many_times_changes_nothing
            pages_show_every_entry_once
            pages_leave_nothing_out_when_entries_go
            a_cursor_of_the_other_shelf_is_refused
            an_empty_page_skips_nothing
        }
    };
    (leases $then:ident $arguments:tt) => {
        $crate::$then! { $arguments
            a_shelf_is_leased_to_one
            a_leased_shelf_is_worked_on_in_steps
        }
    };
}

/// Generates a test of every clause, for one kind of broker.
///
/// `conformance!(name, harness)` creates a module of that name. The harness is an expression, evaluated for every test. With
/// `, paused` the clauses run on tokio's paused clock; with `, of [rescheduling, shelving]` at the end only these groups run: for
/// a configuration that differs from another, which runs all, only in what they test. [`CLAUSES`] lists the groups.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance {
    ($name:ident, $harness:expr) => {
        $crate::__with_groups! { __tests ($name ($harness) Real) }
    };
    ($name:ident, $harness:expr, paused) => {
        $crate::__with_groups! { __tests ($name ($harness) Paused) }
    };
    ($name:ident, $harness:expr, of [$($group:ident),+]) => {
        $crate::__tests! { ($name ($harness) Real) $($group)+ }
    };
    ($name:ident, $harness:expr, paused, of [$($group:ident),+]) => {
        $crate::__tests! { ($name ($harness) Paused) $($group)+ }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests {
    (($name:ident $harness:tt $clock:ident) $($group:ident)+) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $($crate::__clauses! { $group __tests_of_group ($harness $clock) })+
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __tests_of_group {
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
    (() $($group:ident)*) => {
        /// The names of all clauses by group, in the order of the suite. Each is a function in [`clauses`](crate::clauses),
        /// whose documentation is the clause's text.
        pub const CLAUSES: &[(&str, &[&str])] =
            &[$((stringify!($group), $crate::__clauses! { $group __names_of_group () })),*];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __names_of_group {
    (() $($clause:ident)*) => { &[$(stringify!($clause)),*] };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __jobs {
    (() $($group:ident)*) => {
        /// Returns every clause, ready to be examined, with its name.
        pub(crate) fn jobs<H: Harness>(harness: impl Fn() -> H) -> Vec<(&'static str, Job)> {
            let mut jobs = Vec::new();
            $($crate::__clauses! { $group __jobs_of_group (jobs harness) })*
            jobs
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __jobs_of_group {
    (($jobs:ident $harness:ident) $($clause:ident)*) => {
        $({
            let harness = $harness();
            let name = stringify!($clause);
            let job = Box::new(move || run(name, harness, Clock::Real, clauses::$clause)) as Job;
            $jobs.push((name, job));
        })*
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

crate::__with_groups! { __names () }
crate::__with_groups! { __jobs () }

#[cfg(test)]
mod tests {
    use super::CLAUSES;

    #[test]
    fn every_clause_is_listed_once_in_the_group_of_its_file() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/clauses");
        let mut written: Vec<(String, String)> = Vec::new();
        for file in std::fs::read_dir(folder).expect("the folder of the clauses is there") {
            let path = file.expect("a file").path();
            let group = path.file_stem().expect("it has a name").to_string_lossy();
            let source = std::fs::read_to_string(&path).expect("a file of text");
            let clauses =
                source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next());
            written.extend(clauses.map(|clause| (group.to_string(), clause.to_owned())));
        }
        let mut listed: Vec<(String, String)> = CLAUSES
            .iter()
            .flat_map(|(group, clauses)| {
                clauses.iter().map(|clause| ((*group).to_owned(), (*clause).to_owned()))
            })
            .collect();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
        listed.dedup();
        assert_eq!(written, listed, "one is listed twice");
        assert!(listed.len() >= 40);
    }
}
