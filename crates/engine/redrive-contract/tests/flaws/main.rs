//! The suite finds what loses messages. Each flaw is built into a transport that is sound otherwise: the clause named beside it keeps
//! on the sound transport, and fails on the flawed one.

mod bench;
mod shelves;
mod transport;

use std::panic::{AssertUnwindSafe, catch_unwind};

use bench::OnMemory;
use redrive_contract::{Clock, Verdict, clauses, conformance, run};

/// What is wrong with a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing.
    None,
    /// An error of a lost delivery says that its copy is stored, and it is not.
    ClaimsCopies,
    /// An error after a copy was stored says that it is not stored.
    DisownsCopies,
    /// A dropped receipt gives nothing back: the message comes again when its lease ends.
    KeepsDropped,
    /// `Release` gives nothing back.
    KeepsReleased,
    /// `close` gives nothing back.
    KeepsAtClose,
    /// `Reschedule` removes the original without waiting for the confirmation of the copy.
    ConfirmsTooEarly,
    /// A lower limit above 0 changes nothing.
    IgnoresLowerLimits,
    /// All messages have the same number.
    OneNumberForAll,
    /// Each delivery has another number.
    NewNumbers,
    /// All messages entered the queue in 1970.
    EnqueuedIn1970,
    /// Copies come back 8 s late.
    Late,
    /// The publisher fails for ever after an interruption.
    PublisherDies,
    /// A header of any publisher ends waits.
    ForeignHeadersControl,
    /// The receiver waits for ever at a message that redrive would not write.
    StopsAtForeign,
    /// A redrive removes entries before it stores them.
    RemovesBeforeItStores,
    /// A handle names a place on the shelf, and no entry.
    HandlesNamePlaces,
    /// `preflight` declares a queue.
    PreflightDeclares,
    /// `open` does not compare the needs with the facts.
    NoCheck,
    /// `close` waits for an answer on a dead connection.
    CloseHangs,
}

conformance!(a_sound_transport, OnMemory(Flaw::None), paused);

macro_rules! flaws {
    ($($name:ident: $flaw:ident => $clause:ident, $says:literal;)+) => {$(
        #[test]
        fn $name() {
            let examine = |flaw| run(stringify!($clause), OnMemory(flaw), Clock::Paused, clauses::$clause);
            assert_eq!(examine(Flaw::None), Verdict::Kept, "on the sound transport");
            let verdict = catch_unwind(AssertUnwindSafe(|| examine(Flaw::$flaw)));
            let panic = verdict.expect_err("the clause does not find the flaw");
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default();
            assert!(said.contains($says), "it fails for another reason: {said}");
        }
    )+};
}

flaws! {
    a_claimed_copy_after_a_death: ClaimsCopies => settling_after_death_answers_lost, "no delivery within";
    a_claimed_copy_after_a_loss: ClaimsCopies => a_copy_that_is_claimed_after_a_loss_is_stored, "no delivery within";
    a_claimed_copy_in_an_interruption:
        ClaimsCopies => what_is_said_of_a_copy_in_an_interruption_is_true, "no delivery within";
    a_disowned_copy:
        DisownsCopies => a_copy_whose_confirmation_is_lost_is_not_disowned, "says that no copy was stored";
    a_dropped_receipt_that_is_kept: KeepsDropped => giving_back_does_not_wait_for_leases, "its lease of";
    a_release_that_is_kept: KeepsReleased => giving_back_does_not_wait_for_leases, "its lease of";
    a_close_that_keeps: KeepsAtClose => close_does_not_wait_for_leases, "its lease of";
    a_confirmation_that_is_not_waited_for:
        ConfirmsTooEarly => a_retry_that_cannot_be_stored_is_refused, "claims to have stored a copy";
    a_retry_that_loses_the_message:
        ConfirmsTooEarly => a_refused_retry_removes_nothing, "claims to have stored a copy";
    a_lower_limit_that_is_ignored: IgnoresLowerLimits => a_lower_limit_holds_less, "came, and none should";
    one_number_for_all: OneNumberForAll => a_number_of_the_broker_names_one_message, "each has its own";
    a_new_number_each_time: NewNumbers => a_number_of_the_broker_names_one_message, "when redelivered";
    the_year_1970: EnqueuedIn1970 => the_time_of_entering_is_that_of_the_publication, "is not in";
    a_late_copy: Late => reschedule_is_not_late, "after its wait of";
    a_publisher_that_died: PublisherDies => publishing_goes_on_after_an_interruption, "not within";
    a_foreign_header_that_ends_a_wait:
        ForeignHeadersControl => the_headers_that_control_the_broker_do_nothing, "ended a wait of";
    a_foreign_message_that_stops_the_others: StopsAtForeign => foreign_messages_stop_nothing, "no delivery within";
    a_redrive_that_removes_first:
        RemovesBeforeItStores => a_redrive_that_is_refused_leaves_the_entry, "gone from the shelf";
    a_handle_that_names_a_place:
        HandlesNamePlaces => a_handle_of_a_shelf_that_was_recreated_is_not_found, "names another entry";
    a_preflight_that_declares: PreflightDeclares => a_preflight_declares_nothing, "declared something";
    needs_that_are_not_checked: NoCheck => open_refuses_needs_that_it_cannot_meet, "rules out";
    a_close_that_hangs: CloseHangs => close_ends_on_a_dead_connection, "does not end";
}
