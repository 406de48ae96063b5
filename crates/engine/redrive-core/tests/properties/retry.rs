//! What holds for every retry policy, whatever it is made of.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use redrive_core::{
    Delivery, Exponential, Fibonacci, Fixed, Jitter, Linear, Message, NoRetry, RetryPolicy, header_names,
    millis, secs,
};

/// Attempt `attempt` of message `id`, that has been failing for so long.
fn failed(id: &str, attempt: u32, failing_for: Duration) -> Delivery {
    let now = SystemTime::UNIX_EPOCH + secs(1_800_000_000);
    // An earlier time is not believed.
    let earliest = SystemTime::UNIX_EPOCH + secs(946_684_800);
    let first = now.checked_sub(failing_for).unwrap_or(earliest).max(earliest);
    let message = Message::new("")
        .with_id(id)
        .with_header(header_names::ATTEMPT, i64::from(attempt) - 1)
        .with_header(header_names::FIRST_FAILED_AT, redrive_core::Timestamp::from(first));
    Delivery::new(message, "orders", now)
}

fn at(attempt: u32) -> Delivery {
    failed("order-1", attempt, Duration::ZERO)
}

/// The knobs of all families, each over its whole range.
#[derive(Clone, Debug)]
struct Knobs {
    base: Duration,
    step: Duration,
    factor: f64,
    cap: Duration,
    attempts: u32,
    deadline: Option<Duration>,
    jitter: Jitter,
}

impl Knobs {
    /// One policy of each family.
    fn policies(&self) -> Vec<Box<dyn RetryPolicy>> {
        macro_rules! limited {
            ($policy:expr) => {{
                let policy = $policy.attempts(self.attempts).jitter(self.jitter);
                Box::new(self.deadline.map_or(policy, |deadline| policy.deadline(deadline)))
            }};
        }
        vec![
            limited!(Exponential::from(self.base).factor(self.factor).cap(self.cap)),
            limited!(Fibonacci::from(self.base).cap(self.cap)),
            limited!(Linear::from(self.base).step(self.step).cap(self.cap)),
            limited!(Fixed::from(self.base.min(self.cap))),
        ]
    }
}

fn durations() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0..100_000_u64).prop_map(millis),
        any::<(u64, u32)>().prop_map(|(seconds, nanos)| Duration::new(seconds, nanos % 1_000_000_000)),
    ]
}

fn factors() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 1.0..4.0, Just(f64::NAN), Just(f64::INFINITY), Just(1.0 + f64::EPSILON)]
}

fn attempts() -> impl Strategy<Value = u32> {
    prop_oneof![0..50_u32, any::<u32>(), Just(u32::MAX)]
}

fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Equal)]
}

prop_compose! {
    fn knobs()(
        base in durations(), step in durations(), factor in factors(), cap in durations(), attempts in attempts(),
        deadline in proptest::option::of(durations()), jitter in jitters(),
    ) -> Knobs {
        Knobs { base, step, factor, cap, attempts, deadline, jitter }
    }
}

proptest! {
    #[test]
    fn without_jitter_no_wait_is_shorter_than_the_one_before(
        knobs in knobs(), attempt in prop_oneof![1..100_u32, 1..u32::MAX],
    ) {
        let knobs = Knobs { jitter: Jitter::None, deadline: None, attempts: u32::MAX, ..knobs };
        for policy in knobs.policies() {
            let waits = [attempt, attempt.saturating_add(1)].map(|attempt| policy.next_retry(&at(attempt)));
            if let [Some(earlier), Some(later)] = waits {
                prop_assert!(earlier <= later, "{earlier:?} then {later:?}");
            }
        }
    }

    #[test]
    fn no_wait_is_longer_than_the_cap(knobs in knobs(), attempt in 1..=u32::MAX, id in ".{0,8}") {
        for policy in knobs.policies() {
            let wait = policy.next_retry(&failed(&id, attempt, Duration::ZERO));
            prop_assert!(wait.is_none_or(|wait| wait <= knobs.cap));
        }
    }

    #[test]
    fn there_is_a_retry_exactly_while_attempts_are_left(knobs in knobs(), attempt in attempts()) {
        let (knobs, attempt) = (Knobs { deadline: None, ..knobs }, attempt.max(1));
        for policy in knobs.policies() {
            prop_assert_eq!(policy.next_retry(&at(attempt)).is_some(), attempt < knobs.attempts);
        }
    }

    #[test]
    fn no_wait_ends_after_the_deadline(
        knobs in knobs(), attempt in 1..20_u32, failing_for in durations(), deadline in durations(),
    ) {
        let knobs = Knobs { deadline: Some(deadline), attempts: u32::MAX, ..knobs };
        let unlimited = Knobs { deadline: None, ..knobs.clone() };
        let failed = failed("order-1", attempt, failing_for);
        let failing_for = failed.received_at().duration_since(failed.history().first_failed_at.unwrap()).unwrap();
        for (policy, unlimited) in knobs.policies().iter().zip(unlimited.policies()) {
            let wait = unlimited.next_retry(&failed).unwrap();
            let in_time = failing_for.checked_add(wait).is_some_and(|end| end <= deadline);
            prop_assert_eq!(policy.next_retry(&failed), in_time.then_some(wait));
        }
    }

    #[test]
    fn no_answer_is_longer_than_the_longest_wait_prepared(
        knobs in knobs(), attempt in prop_oneof![1..100_u32, 1..=u32::MAX], id in ".{0,8}",
    ) {
        for policy in knobs.policies() {
            let waits = policy.waits();
            prop_assert!(waits.len() <= 256, "{} waits to prepare", waits.len());
            if let Some(wait) = policy.next_retry(&failed(&id, attempt, Duration::ZERO)) {
                prop_assert!(waits.last().is_some_and(|&longest| wait <= longest), "{wait:?} of {waits:?}");
            }
        }
    }

    #[test]
    fn the_answer_is_the_same_every_time(knobs in knobs(), attempt in 1..10_u32, id in ".{0,8}") {
        for policy in knobs.policies() {
            let ask = || policy.next_retry(&failed(&id, attempt, secs(1)));
            prop_assert_eq!(ask(), ask());
        }
    }
}

/// How many waits a broker has to prepare, and how much longer than asked for a wait can become by that: twice as
/// long at most, for any wait of more than a quarter of the base.
#[test]
fn jittered_waits_are_close_to_a_prepared_one() {
    for jitter in [Jitter::Full, Jitter::Equal] {
        let policy = Exponential::from(secs(1)).cap(secs(600)).attempts(20).jitter(jitter);
        let waits = policy.waits();
        assert!(waits.len() <= 40, "{} waits to prepare", waits.len());
        for attempt in 1..20 {
            for id in 0..100 {
                let wait = policy.next_retry(&failed(&id.to_string(), attempt, Duration::ZERO)).unwrap();
                let prepared = *waits.range(wait..).next().expect("one that is long enough");
                assert!(prepared <= wait * 2 || wait < millis(250), "{wait:?} becomes {prepared:?}");
            }
        }
    }
}

#[test]
fn without_jitter_exactly_the_waits_that_occur_are_prepared() {
    let policy = Exponential::from(secs(1)).cap(secs(30)).attempts(30).deadline(secs(10));
    assert_eq!(policy.waits(), [1, 2, 4, 8].map(secs).into());
    assert_eq!(NoRetry.waits(), [].into());
}

#[test]
fn a_message_with_an_unreadable_count_is_not_tried_again() {
    let message = Message::new("").with_header(header_names::ATTEMPT, "many");
    let failed = Delivery::new(message, "orders", SystemTime::UNIX_EPOCH);
    assert_eq!(Fixed::from(secs(1)).attempts(u32::MAX).next_retry(&failed), None);
    assert_eq!([secs(1); 3].next_retry(&failed), None);
}

#[test]
fn every_answer_of_a_long_policy_has_a_prepared_wait() {
    for attempts in (2..300).step_by(7) {
        let policy = Linear::from(secs(1)).cap(secs(100_000)).attempts(attempts);
        let longest = *policy.waits().last().unwrap();
        assert_eq!(policy.next_retry(&at(attempts - 1)), Some(longest), "{attempts} attempts");
    }
}
