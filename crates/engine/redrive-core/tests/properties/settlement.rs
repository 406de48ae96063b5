//! What holds for every plan, whatever message it is made for.

use std::time::Duration;

use crate::arbitrary::{message, now};
use proptest::prelude::*;
use redrive_core::transport::{
    DeliveryBuilder, Facts, HeaderLimit, NativeDeadLetter, Origin, Planning, Settlement, redriven,
};
use redrive_core::{
    Count, Delivery, Disposition, Failure, FailureHistory, Headers, Message, Reason, Shelf, Value,
    header_names as names,
};

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0..100_000_u64).prop_map(Duration::from_millis),
        any::<u64>().prop_map(Duration::from_secs),
    ]
}

fn disposition() -> impl Strategy<Value = Disposition> {
    let failure = || {
        (".{0,20}", ".{0,2000}").prop_map(|(reason, text)| match reason.len() % 2 {
            0 => Failure::new(Reason::RetryableError, text),
            _ => Failure::custom(reason, text),
        })
    };
    prop_oneof![
        Just(Disposition::Ack),
        Just(Disposition::Release),
        durations().prop_map(Disposition::Snooze),
        failure().prop_map(Disposition::DeadLetter),
        failure().prop_map(Disposition::Park),
        failure().prop_map(Disposition::Discard),
        (durations(), failure()).prop_map(|(wait, failure)| Disposition::Retry(wait, failure)),
    ]
}

prop_compose! {
    fn facts()(
        hops in proptest::option::of(proptest::collection::btree_set(durations(), 0..5)), native_dead_letter in any::<bool>(),
        counts_deliveries in any::<bool>(), release_counts in any::<bool>(),
        max_header_bytes in proptest::option::of(2_000..100_000_usize),
    ) -> Facts {
        let mut facts = Facts::new("test");
        facts.delays.hop_durations = hops.map(|hops| hops.into_iter().collect());
        facts.dead_letter = if native_dead_letter { NativeDeadLetter::LastResort } else { NativeDeadLetter::No };
        facts.counting.deliveries = counts_deliveries;
        facts.counting.releases = release_counts;
        facts.limits.headers = max_header_bytes.map(|bytes| HeaderLimit::new(bytes, |message| message.headers().encoded_len()));
        facts
    }
}

prop_compose! {
    fn delivery()(message in message(), handed_out in 1..9_u32) -> Delivery {
        DeliveryBuilder::new(message, Origin::new("orders", "shop", "orders.new"), now())
            .broker_delivery_count(handed_out)
            .build()
    }
}

fn planning(facts: &Facts) -> Planning<'_> {
    Planning::new(now(), facts)
}

fn copy_of(settlement: &Settlement) -> Option<&Message> {
    match settlement {
        Settlement::Reschedule { copy, .. } | Settlement::Shelve { copy, .. } => Some(copy),
        _ => None,
    }
}

fn foreign(message: &Message) -> Vec<(&str, &Value)> {
    message.headers().iter().filter(|(name, _)| !name.starts_with(names::PREFIX)).collect()
}

fn own_bytes(headers: &Headers) -> usize {
    // What could not be unpacked is carried whole: it is no addition.
    let own = headers.iter().filter(|(name, _)| name.starts_with(names::PREFIX) && *name != names::STORY);
    own.map(|(name, value)| 1 + name.len() + value.encoded_len()).sum()
}

/// The same by content: `NaN` is not equal to itself.
fn same(left: impl std::fmt::Debug, right: impl std::fmt::Debug) -> bool {
    format!("{left:?}") == format!("{right:?}")
}

/// Returns true for a copy of the message as it arrived.
fn has_no_history(plan: &Settlement) -> bool {
    matches!(plan, Settlement::Shelve { copy, .. } if !copy.headers().contains(names::SHELVED))
}

proptest! {
    // The messages are large; `PROPTEST_CASES` asks for more.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 4, ..ProptestConfig::default() })]

    #[test]
    fn the_kind_of_plan_follows_from_the_disposition(
        delivery in delivery(), disposition in disposition(), facts in facts(),
    ) {
        let plan = Settlement::plan(&delivery, disposition.clone(), &planning(&facts));
        let fits = match (&disposition, &plan) {
            (Disposition::Ack | Disposition::Discard(_), Settlement::Complete) => true,
            (Disposition::Release, Settlement::Release) => true,
            (Disposition::Release, Settlement::Reschedule { wait, .. }) => wait.is_zero(),
            (Disposition::Snooze(_) | Disposition::Retry(..), Settlement::Reschedule { .. }) => true,
            (Disposition::DeadLetter(_), Settlement::Shelve { shelf, .. }) => *shelf == Shelf::DeadLetter,
            (Disposition::Park(_), Settlement::Shelve { shelf: Shelf::Parking, .. }) => true,
            (Disposition::Release, _) => false,
            // There is no room for a history, and the broker does not move the message.
            (_, Settlement::Shelve { shelf: Shelf::DeadLetter, .. }) => {
                has_no_history(&plan) && !facts.dead_letter.is_possible() && facts.limits.headers.is_some()
            }
            (_, Settlement::NativeDeadLetter) => facts.dead_letter.is_possible() && facts.limits.headers.is_some(),
            _ => false,
        };
        prop_assert!(fits, "{disposition:?} became {plan:?}");
    }

    #[test]
    fn a_failure_counts_one_attempt_and_nothing_else_does(
        delivery in delivery(), disposition in disposition(), facts in facts(),
    ) {
        let plan = Settlement::plan(&delivery, disposition.clone(), &planning(&facts));
        let Some(copy) = copy_of(&plan) else { return Ok(()) };
        let failure = disposition.failure().filter(|_| !has_no_history(&plan));
        let expected = match (delivery.history().attempt, failure) {
            (Count::Known(before), Some(_)) => Count::Known(before.saturating_add(1)),
            (before, _) => before,
        };
        prop_assert_eq!(FailureHistory::read(copy).attempt, expected);
        prop_assert_eq!(FailureHistory::read(copy).redrives, delivery.history().redrives);
    }

    #[test]
    fn a_copy_is_never_taken_for_its_original(
        delivery in delivery(), disposition in disposition(), facts in facts(),
    ) {
        let plan = Settlement::plan(&delivery, disposition, &planning(&facts));
        let Some(copy) = copy_of(&plan) else { return Ok(()) };
        prop_assert!(FailureHistory::read(copy).copy_number != delivery.history().copy_number);
        prop_assert!(FailureHistory::read(&redriven(copy)).copy_number != FailureHistory::read(copy).copy_number);
    }

    #[test]
    fn what_is_not_redrives_own_stays_as_it_came(
        delivery in delivery(), disposition in disposition(), facts in facts(),
    ) {
        let plan = Settlement::plan(&delivery, disposition, &planning(&facts));
        let Some(copy) = copy_of(&plan) else { return Ok(()) };
        let original = delivery.message();
        prop_assert_eq!(copy.body(), original.body());
        prop_assert_eq!(copy.id(), original.id());
        prop_assert!(same(foreign(copy), foreign(original)));
        // The time to live is kept in a header, and does not run while the copy waits.
        prop_assert_eq!(copy.properties().expiration, None);
        if let Some(expiration) = original.properties().expiration {
            let kept = copy.headers().get(names::EXPIRATION).and_then(Value::to_integer);
            prop_assert_eq!(kept, Some(i128::try_from(expiration.as_millis()).unwrap().min(i64::MAX.into())));
        }
    }

    #[test]
    fn what_redrive_adds_is_bounded(
        delivery in delivery(), disposition in disposition(), facts in facts(),
        header_budget in 4096..8192_usize,
    ) {
        let mut planning = planning(&facts);
        planning.header_budget = header_budget;
        let plan = Settlement::plan(&delivery, disposition, &planning);
        let Some(copy) = copy_of(&plan) else { return Ok(()) };
        if has_no_history(&plan) {
            return Ok(());
        }
        prop_assert!(own_bytes(copy.headers()) <= header_budget, "{:?}", copy.headers());
        if let (Some(limit), true) = (facts.limits.headers, facts.dead_letter.is_possible()) {
            prop_assert!(limit.has_room_for(copy));
        }
    }

    #[test]
    fn a_wait_is_split_into_hops_and_never_cut_short(
        delivery in delivery(), wait in durations(), facts in facts(),
    ) {
        let plan = Settlement::plan(&delivery, Disposition::Snooze(wait), &planning(&facts));
        let Settlement::Reschedule { wait: hop, copy } = plan else { return Ok(()) };
        let not_before = FailureHistory::read(&copy).not_before;
        let hops = facts.delays.hop_durations.clone().unwrap_or_default();
        prop_assert!(hop <= wait);
        match hop < wait {
            true => {
                prop_assert!(hops.contains(&hop));
                let due = not_before.expect("the time it is due");
                // Later by a tenth at most: then the last hop fits exactly.
                let latest_due = now().checked_add(wait.saturating_add(wait / 10));
                prop_assert!(due >= latest() || latest_due.is_none_or(|most| due <= most));
                // No later time is believed than ten years ahead.
                match now().checked_add(wait.min(Duration::from_secs(3653 * 86_400))) {
                    Some(asked) => prop_assert!(due + Duration::from_millis(1) > asked || due >= latest()),
                    None => prop_assert!(due >= latest()),
                }
            }
            false => {
                // In one hop, at most twice as long as asked for, unless no hop is shorter.
                if let Some(&taken) = hops.iter().find(|&&other| other >= wait) {
                    let shorter = hops.iter().copied().filter(|&other| other < wait).max();
                    prop_assert!(taken <= wait.saturating_mul(2) || shorter.is_none_or(|part| taken <= part.saturating_mul(8)), "{:?} {:?}", wait, hops);
                } else {
                    prop_assert!(hops.is_empty() || wait.is_zero());
                }
                prop_assert_eq!(not_before, None);
            }
        }
    }

    #[test]
    fn a_planned_copy_is_read_back_and_planned_again(
        delivery in delivery(), disposition in disposition(), facts in facts(), text in "[a-z ]{1,40}",
    ) {
        let planning = planning(&facts);
        let plan = Settlement::plan(&delivery, disposition, &planning);
        let Some(first) = copy_of(&plan) else { return Ok(()) };
        let again = DeliveryBuilder::new(first.clone(), Origin::new("orders", "", "orders"), now()).build();
        let failure = Failure::new(Reason::RetryableError, &text);
        let plan = Settlement::plan(&again, Disposition::Retry(Duration::ZERO, failure), &planning);
        let Some(second) = copy_of(&plan).filter(|_| !has_no_history(&plan)) else { return Ok(()) };
        let (before, after) = (FailureHistory::read(first), FailureHistory::read(second));
        prop_assert_eq!(after.source_queue.as_deref(), Some("orders"));
        prop_assert_eq!(after.last_failed_at, Some(now()));
        prop_assert_eq!(after.error.as_deref().unwrap_or(&text), &text);
        if let Some(first) = before.believed(now()).first_failed_at {
            // Written down in milliseconds.
            let lost = first.duration_since(after.first_failed_at.expect("carried on"));
            prop_assert!(lost.is_ok_and(|lost| lost < Duration::from_millis(1)));
        }
        prop_assert!(same(foreign(second), foreign(delivery.message())));
    }

    #[test]
    fn a_redriven_message_begins_again(message in message()) {
        let (before, after) = (FailureHistory::read(&message), redriven(&message));
        let history = FailureHistory::read(&after);
        prop_assert_eq!(history.attempt, Count::Known(0));
        prop_assert_eq!(history.redrives, Count::Known(before.redrives.or_highest().saturating_add(1)));
        prop_assert_eq!((history.snoozes, history.deliveries_before), (0, 0));
        prop_assert_eq!((history.first_failed_at, history.not_before), (None, None));
        prop_assert!(same(&history.past, &before.past));
        prop_assert_eq!(after.body(), message.body());
        prop_assert!(same(foreign(&after), foreign(&message)));
    }
}

/// The latest time that redrive writes: year 9999.
fn latest() -> std::time::SystemTime {
    std::time::UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}
