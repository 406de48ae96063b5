//! Decides what the broker's refusal of a published message says about other messages. Pure.

use std::sync::atomic::{AtomicU32, Ordering};

use lapin::Error;
use redrive_core::{TransportError, TransportErrorKind};

use crate::error;

/// Whom a refusal concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Concerns {
    /// This message, because of its size.
    ItsSize,
    /// This message, because of something else in it.
    ItsContent,
    /// This message, or any: the answer does not tell.
    NotClear,
    /// All messages for the target, or on the connection.
    All,
}

impl Concerns {
    /// Returns true if other messages that were published at the same time may be stored.
    pub(super) fn may_spare_others(self) -> bool {
        self != Self::All
    }
}

/// Reads the broker's reply to `basic.publish`: it closed the channel, or the connection, with this code and text.
fn concerns(code: u16, text: &str) -> Concerns {
    /// What RabbitMQ 3.10 to 4.3 finds in a message: `user-id` of another user; a reply address that only the channel of its requester may
    /// use; an expiration that is no number; a header that chooses targets and is no list.
    const CONTENTS: [&str; 4] =
        ["user_id property", "fast reply consumer", "invalid expiration", "invalid message"];
    match code {
        406 if text.contains("larger than") => Concerns::ItsSize,
        311 => Concerns::ItsSize,
        406 if CONTENTS.iter().any(|content| text.contains(content)) => Concerns::ItsContent,
        406 => Concerns::NotClear,
        // A right on routing keys, which differ between messages.
        403 if text.contains("access to topic '") => Concerns::NotClear,
        // A frame that the broker cannot read, or a message that its code fails at; or the broker has a fault of its own.
        501 | 502 | 540 | 541 => Concerns::NotClear,
        // A right on the exchange, no exchange, the end of the connection or of the broker.
        _ => Concerns::All,
    }
}

/// Returns whom the end of a channel concerns.
pub(super) fn concerns_whom(ended: &Error) -> Concerns {
    error::refusal(ended).map_or(Concerns::All, |(code, text)| concerns(code, &text))
}

/// Error for a message that was not stored because its channel or its connection ended. `alone`: nothing else was published at the same
/// time on the channel.
pub(super) fn publishing(target: &str, alone: bool, ended: Error) -> TransportError {
    let Some((_, text)) = error::refusal(&ended) else {
        let message = format!("it is not known whether the copy for `{target}` was stored: {ended}");
        return TransportError::new(TransportErrorKind::Unconfirmed, message).with_source(ended);
    };
    let concerns = concerns_whom(&ended);
    let kind = match concerns {
        Concerns::ItsSize => TransportErrorKind::TooLarge,
        Concerns::ItsContent => TransportErrorKind::Refused,
        // RabbitMQ checks a message before it stores it, and closes only the channel then.
        Concerns::NotClear | Concerns::All if alone && error::is_about_a_channel(&ended) => {
            TransportErrorKind::Unroutable
        }
        Concerns::NotClear | Concerns::All => TransportErrorKind::Unconfirmed,
    };
    let message = format!("RabbitMQ does not take the copy for `{target}`: {text}");
    let refused = TransportError::new(kind, message).with_source(ended);
    if concerns == Concerns::NotClear { refused.unclear() } else { refused }
}

/// Counts copies that are refused one after the other for a reason that is not clear: one may be the exception, and the next is tried
/// before the work ends.
#[derive(Debug, Default)]
pub(crate) struct RefusedInTurn(AtomicU32);

impl RefusedInTurn {
    /// Number of refusals in turn after which the reason is taken to lie in the target.
    const MOST: u32 = 3;

    /// Notes that a copy was stored.
    pub(crate) fn note_stored(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Notes an error. Returns true if other copies may be stored nevertheless.
    pub(crate) fn may_spare_others(&self, error: &TransportError) -> bool {
        if error::is_about_one_message(error) {
            return true;
        }
        error.is_unclear() && self.0.fetch_add(1, Ordering::Relaxed) + 1 < Self::MOST
    }
}

#[cfg(test)]
mod tests {
    use lapin::ErrorKind;
    use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

    use super::*;

    fn said(kind: impl Into<AMQPErrorKind>, text: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::new(kind.into(), text.into())).into()
    }

    #[test]
    fn each_reply_of_the_broker() {
        use AMQPHardError::{
            CONNECTIONFORCED, FRAMEERROR, INTERNALERROR, NOTALLOWED, NOTIMPLEMENTED, RESOURCEERROR,
            SYNTAXERROR,
        };
        use AMQPSoftError::{ACCESSREFUSED, CONTENTTOOLARGE, NOTFOUND, PRECONDITIONFAILED, RESOURCELOCKED};
        use TransportErrorKind::{Refused, TooLarge, Unconfirmed, Unroutable};
        let soft = |kind: AMQPSoftError, text| said(kind, text);
        let hard = |kind: AMQPHardError, text| said(kind, text);
        for (ended, kind, is_unclear) in [
            (
                soft(PRECONDITIONFAILED, "message size 20 is larger than configured max size 10"),
                TooLarge,
                false,
            ),
            (soft(PRECONDITIONFAILED, "message size 20 is larger than max size 10"), TooLarge, false),
            (soft(CONTENTTOOLARGE, "too large"), TooLarge, false),
            (
                soft(PRECONDITIONFAILED, "user_id property set to 'bob' but authenticated user was 'guest'"),
                Refused,
                false,
            ),
            (soft(PRECONDITIONFAILED, "fast reply consumer does not exist"), Refused, false),
            (soft(PRECONDITIONFAILED, "invalid expiration 'x': {leftover_string,\"x\"}"), Refused, false),
            (soft(PRECONDITIONFAILED, "invalid message: {delivery_mode_unknown,3}"), Refused, false),
            (soft(PRECONDITIONFAILED, "a plugin that nobody knows yet"), Unroutable, true),
            (
                soft(ACCESSREFUSED, "write access to topic 'eu' in exchange 'shop' in vhost '/' refused"),
                Unroutable,
                true,
            ),
            (
                soft(ACCESSREFUSED, "write access to exchange 'amq.topic' in vhost '/' refused"),
                Unroutable,
                false,
            ),
            (soft(ACCESSREFUSED, "cannot publish to internal exchange 'shop'"), Unroutable, false),
            (soft(NOTFOUND, "no exchange 'shop' in vhost '/'"), Unroutable, false),
            (soft(RESOURCELOCKED, "locked"), Unroutable, false),
            (hard(INTERNALERROR, "INTERNAL_ERROR"), Unconfirmed, true),
            (hard(FRAMEERROR, "message size 20 is larger than max size 10"), Unconfirmed, true),
            (hard(SYNTAXERROR, "SYNTAX_ERROR"), Unconfirmed, true),
            (hard(NOTIMPLEMENTED, "immediate=true"), Unconfirmed, true),
            (hard(CONNECTIONFORCED, "broker forced connection closure"), Unconfirmed, false),
            (hard(NOTALLOWED, "vhost 'shop' is down"), Unconfirmed, false),
            (hard(RESOURCEERROR, "no memory"), Unconfirmed, false),
        ] {
            let is_soft = error::is_about_a_channel(&ended);
            let refused = publishing("orders", true, ended.clone());
            assert_eq!((refused.kind(), refused.is_unclear()), (kind, is_unclear), "{ended}");
            assert_eq!(refused.is_certainly_not_stored(), is_soft, "{ended}");
            // With others on the channel, only a reply that names the message itself tells that it is not stored.
            let among = publishing("orders", false, ended.clone());
            let of_itself = matches!(kind, TooLarge | Refused);
            assert_eq!(among.kind(), if of_itself { kind } else { Unconfirmed }, "{ended}");
        }
    }

    #[test]
    fn the_next_is_tried_before_work_ends() {
        let unclear = || TransportError::new(TransportErrorKind::Unconfirmed, "refused").unclear();
        let refused = RefusedInTurn::default();
        for _ in 0..5 {
            assert!(refused.may_spare_others(&unclear()) && refused.may_spare_others(&unclear()));
            refused.note_stored();
        }
        assert!(refused.may_spare_others(&unclear()) && refused.may_spare_others(&unclear()));
        assert!(!refused.may_spare_others(&unclear()), "three in turn");
        let of_one = TransportError::new(TransportErrorKind::Refused, "its content");
        assert!(refused.may_spare_others(&of_one));
        assert!(!refused.may_spare_others(&TransportError::new(TransportErrorKind::Unconfirmed, "lost")));
    }

    #[test]
    fn without_a_reply_nothing_is_known_of_any() {
        let lost = Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let error = publishing("orders", true, lost);
        assert_eq!((error.kind(), error.is_unclear()), (TransportErrorKind::Unconfirmed, false));
        assert!(!error.is_certainly_not_stored());
    }
}
