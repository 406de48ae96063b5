//! Computes how long a message from an old delay queue must still wait. Pure.

use std::time::{Duration, SystemTime};

use redrive_core::{FailureHistory, Message};

/// The rest of a wait, and whether it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remaining {
    /// As written on the message.
    Told(Duration),
    /// Not known when the wait began, so the whole wait again. Never early, and late by as long as the message has waited already.
    AllOfIt(Duration),
}

impl Remaining {
    pub(crate) fn wait(self) -> Duration {
        match self {
            Self::Told(wait) | Self::AllOfIt(wait) => wait,
        }
    }
}

/// Computes the rest. `ttl` is how long its queue holds a message.
pub(crate) fn remaining(waiting: &Message, ttl: Option<Duration>, now: SystemTime) -> Remaining {
    let history = FailureHistory::read(waiting).believed(now);
    let expiration = waiting.properties().expiration;
    let whole = match (ttl, expiration) {
        // Like the broker: the shorter one applies.
        (Some(ttl), Some(expiration)) => ttl.min(expiration),
        (ttl, expiration) => ttl.or(expiration).unwrap_or_default(),
    };
    // A wait of several hops continues after this one; all others are over when the queue releases the message, at the latest.
    if let Some(not_before) = history.not_before {
        return Remaining::Told(until(not_before, now));
    }
    match history.due_at {
        Some(due) if until(due, now) <= whole => Remaining::Told(until(due, now)),
        _ => Remaining::AllOfIt(whole),
    }
}

fn until(due: SystemTime, now: SystemTime) -> Duration {
    due.duration_since(now).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use redrive_core::{Value, header_names as names};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + MINUTE * 30_000_000
    }

    fn at(time: SystemTime) -> Value {
        Value::String(humantime::format_rfc3339_millis(time).to_string())
    }

    fn left(message: &Message) -> Remaining {
        remaining(message, Some(MINUTE * 10), now())
    }

    #[test]
    fn what_is_written_on_it_holds() {
        let due = Message::new("").with_header(names::DUE_AT, at(now() + MINUTE));
        assert_eq!(left(&due), Remaining::Told(MINUTE));
        assert_eq!(
            left(&due.with_header(names::NOT_BEFORE, at(now() + MINUTE * 90))),
            Remaining::Told(MINUTE * 90)
        );
        let over = Message::new("").with_header(names::DUE_AT, at(now() - MINUTE));
        assert_eq!(left(&over), Remaining::Told(Duration::ZERO));
    }

    #[test]
    fn what_nothing_tells_waits_all_of_it_again() {
        let mut message = Message::new("");
        assert_eq!(left(&message), Remaining::AllOfIt(MINUTE * 10));
        assert_eq!(remaining(&message, None, now()), Remaining::AllOfIt(Duration::ZERO));
        message.properties_mut().expiration = Some(MINUTE);
        assert_eq!(left(&message), Remaining::AllOfIt(MINUTE));
        assert_eq!(remaining(&message, None, now()), Remaining::AllOfIt(MINUTE));
    }

    #[test]
    fn a_time_that_the_queue_would_not_wait_for_is_not_believed() {
        let forged = Message::new("").with_header(names::DUE_AT, at(now() + MINUTE * 11));
        assert_eq!(left(&forged), Remaining::AllOfIt(MINUTE * 10));
    }
}
