//! Converts the errors of the client library.

use fe2o3_amqp::link::{
    DetachError, IllegalLinkStateError, LinkStateError, ReceiverAttachError, RecvError, SendError,
    SenderAttachError, SessionStopReason,
};
use fe2o3_amqp::transaction::{ControllerSendError, PostError};
use fe2o3_amqp_types::definitions::{Error, ErrorCondition};
use fe2o3_amqp_types::messaging::Outcome;
use serde_amqp::Value;

use crate::error::{Refusal, WireError};

const NO_REASON: &str = "the broker refused the link and named no reason";

/// Converts an error with which the broker answered.
fn broker(error: &Error) -> WireError {
    let condition = condition(&error.condition);
    let description = error.description.as_deref().unwrap_or_default();
    WireError::from_condition(&condition, None, format!("{condition}: {description}"))
}

/// Converts an error with which the broker ended or refused a link.
fn link(error: &Error) -> WireError {
    broker(error).of_link()
}

pub(crate) fn detach(error: DetachError) -> WireError {
    match error {
        DetachError::RemoteDetachedWithError(error) | DetachError::RemoteClosedWithError(error) => {
            link(&error)
        }
        DetachError::SessionStopped(reason) => stopped(&reason),
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn state(error: LinkStateError) -> WireError {
    match error {
        LinkStateError::RemoteDetachedWithError(error) | LinkStateError::RemoteClosedWithError(error) => {
            link(&error)
        }
        LinkStateError::SessionStopped(reason) => stopped(&reason),
        other => WireError::interrupted(other.to_string()),
    }
}

/// Converts the end of an AMQP session, which may be that of the connection.
fn stopped(reason: &SessionStopReason) -> WireError {
    let text = format!("the session ended: {reason:?}");
    match reason {
        SessionStopReason::ConnectionStopped(_) => WireError::disconnected(text),
        _ => WireError::interrupted(text),
    }
}

pub(crate) fn illegal_state(error: &IllegalLinkStateError) -> WireError {
    WireError::interrupted(error.to_string())
}

/// `in_session`: the link was to be for a session.
pub(crate) fn attach_receiver(error: ReceiverAttachError, in_session: bool) -> WireError {
    match error {
        ReceiverAttachError::RemoteClosedWithError(error) => link(&error).of_receiving(in_session),
        ReceiverAttachError::SessionStopped(reason) => stopped(&reason),
        ReceiverAttachError::IncomingSourceIsNone => WireError::new(Refusal::LinkRefused, NO_REASON),
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn attach_sender(error: SenderAttachError) -> WireError {
    match error {
        SenderAttachError::RemoteClosedWithError(error) => link(&error),
        SenderAttachError::SessionStopped(reason) => stopped(&reason),
        SenderAttachError::IncomingTargetIsNone => WireError::new(Refusal::LinkRefused, NO_REASON),
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn recv(error: RecvError) -> WireError {
    match error {
        RecvError::LinkStateError(error) => state(error),
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn send(error: SendError) -> WireError {
    match error {
        SendError::LinkStateError(error) => state(error),
        SendError::Detached(error) => detach(error),
        SendError::MessageSizeExceeded(error) => WireError::new(Refusal::TooLarge, error.to_string()),
        SendError::MessageEncodeError => WireError::new(Refusal::Other, "the message cannot be encoded"),
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn post(error: PostError) -> WireError {
    match error {
        PostError::LinkStateError(error) => state(error),
        PostError::Detached(error) => detach(error),
        PostError::MessageSizeExceeded(error) => WireError::new(Refusal::TooLarge, error.to_string()),
        // The client library returns this for a rejection that does not name the transaction. The link stays usable.
        PostError::IllegalDeliveryState => {
            let text = "the broker refused the message within the transaction, and the client library hides the reason";
            WireError::new(Refusal::Unexplained, text)
        }
        other => WireError::interrupted(other.to_string()),
    }
}

pub(crate) fn control(error: ControllerSendError) -> WireError {
    match error {
        ControllerSendError::LinkStateError(error) => state(error),
        ControllerSendError::Detached(error) => detach(error),
        ControllerSendError::Rejected(rejected) => match rejected.error {
            Some(error) => broker(&error),
            None => WireError::new(Refusal::Other, "the transaction was refused"),
        },
        other => WireError::interrupted(other.to_string()),
    }
}

/// Converts the outcome of a sent message.
pub(crate) fn outcome(outcome: Outcome) -> Result<(), WireError> {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        Outcome::Rejected(rejected) => Err(match rejected.error {
            Some(error) => broker(&error),
            None => WireError::new(Refusal::Other, "the broker rejected the message without a reason"),
        }),
        other => {
            Err(WireError::new(Refusal::Other, format!("the broker did not accept the message: {other:?}")))
        }
    }
}

fn condition(condition: &ErrorCondition) -> String {
    match serde_amqp::to_value(condition) {
        Ok(Value::Symbol(symbol)) => symbol.into_inner(),
        _ => format!("{condition:?}"),
    }
}

#[cfg(test)]
mod tests {
    use fe2o3_amqp::connection::ConnectionStopReason;

    use super::*;

    #[test]
    fn a_link_that_is_refused_without_a_reason_is_told_from_a_refused_message() {
        let received = attach_receiver(ReceiverAttachError::IncomingSourceIsNone, false);
        let sent = attach_sender(SenderAttachError::IncomingTargetIsNone);
        assert_eq!((received.refusal, sent.refusal), (Refusal::LinkRefused, Refusal::LinkRefused));
        assert_eq!(post(PostError::IllegalDeliveryState).refusal, Refusal::Unexplained);
    }

    #[test]
    fn the_end_of_the_connection_is_told_from_that_of_a_link_or_a_session() {
        let of = |error: LinkStateError| recv(RecvError::LinkStateError(error)).refusal;
        let connection = SessionStopReason::ConnectionStopped(ConnectionStopReason::RemoteClosed);
        assert_eq!(of(LinkStateError::SessionStopped(connection)), Refusal::Disconnected);
        assert_eq!(of(LinkStateError::SessionStopped(SessionStopReason::Ended)), Refusal::Interrupted);
        assert_eq!(of(LinkStateError::RemoteClosed), Refusal::Interrupted);
    }
}
