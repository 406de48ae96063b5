//! Errors of the transport: each text says what failed and what to do.

use lapin::protocol::AMQPErrorKind;
use lapin::{Error, ErrorKind};
use redrive_core::{BoxError, TransportError, TransportErrorKind, redact};

/// The frame size below which newer versions of RabbitMQ end a connection, without a reason. Older ones accept 4096.
const LEAST_FRAME_MAX: u32 = 8192;

/// Error for a connection that failed. `shown` is the address without its password; `provided` is true when a provider gave the
/// credentials. `frame_max` is the frame size that the URL asks for.
pub(crate) fn connecting(
    shown: &str,
    user: &str,
    provided: bool,
    frame_max: Option<u32>,
    error: Error,
) -> TransportError {
    let where_from = if provided {
        "what the credentials provider answers"
    } else {
        "the user and the password in the URL, or REDRIVE_AMQP_USER and REDRIVE_AMQP_PASSWORD"
    };
    if let ErrorKind::ParsingError(_) = error.kind() {
        // How the client library failed to read the answer helps nobody.
        let message = format!(
            "what answers at {shown} does not speak AMQP 0-9-1: is the port right? RabbitMQ listens on 5672, with TLS on 5671; \
             15672 is its management API"
        );
        return TransportError::new(TransportErrorKind::Unreachable, message);
    }
    let (kind, message) = match refusal(&error) {
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!("RabbitMQ at {shown} refuses the user `{user}` ({text}): check {where_from}"),
        ),
        Some((530, text)) => (
            TransportErrorKind::Unauthorized,
            format!(
                "RabbitMQ at {shown} refuses the virtual host ({text}): check the URL's path and the user's rights"
            ),
        ),
        refused => match frame_max.filter(|bytes| (1..LEAST_FRAME_MAX).contains(bytes)) {
            Some(bytes) => {
                let said = refused.map_or_else(|| error.to_string(), |(_, text)| text);
                let message = format!(
                    "RabbitMQ at {shown} ended the connection ({said}): the URL asks for frame_max={bytes}, and RabbitMQ 4 takes \
                     {LEAST_FRAME_MAX} at least; remove `frame_max` from the URL, or raise it"
                );
                (TransportErrorKind::Unreachable, message)
            }
            None => (
                TransportErrorKind::Unreachable,
                format!(
                    "cannot connect to RabbitMQ at {shown}: {error}; is it running, and is the address right?"
                ),
            ),
        },
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for a credentials provider that failed. The text is logged, and on health pages: a provider may name what it was asked with.
pub(crate) fn no_credentials(error: BoxError) -> TransportError {
    let message = format!("the credentials provider failed: {}", redact(&error.to_string()));
    TransportError::new(TransportErrorKind::Unauthorized, message).with_source(error)
}

/// Error for a connection that failed at every address. Its kind is that of the first broker that answered: a refusal says more
/// than an address that cannot be reached.
pub(crate) fn none_connected(mut refusals: Vec<TransportError>) -> TransportError {
    if refusals.len() == 1 {
        return refusals.remove(0);
    }
    let all = refusals.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let kinds = refusals.iter().map(TransportError::kind);
    let kind = kinds.into_iter().find(|kind| *kind != TransportErrorKind::Unreachable);
    let message = format!("none of {} addresses: {all}", refusals.len());
    TransportError::new(kind.unwrap_or(TransportErrorKind::Unreachable), message)
}

/// Error for a broker that did not answer in time.
pub(crate) fn no_answer(shown: &str, within: std::time::Duration) -> TransportError {
    let within = humantime::format_duration(within);
    let message = format!(
        "RabbitMQ at {shown} does not answer within {within}; is it running, and is the address right?"
    );
    TransportError::new(TransportErrorKind::Unreachable, message)
}

/// Error for a queue that could not be declared.
pub(crate) fn declaring(queue: &str, error: Error) -> TransportError {
    let (kind, message) = match refusal(&error) {
        Some((406, text)) if text.contains("is reached") => (
            TransportErrorKind::Topology,
            format!(
                "RabbitMQ declares no further queue: {text}. Delete queues that nobody needs, or raise the limit"
            ),
        ),
        Some((406, text)) => (
            TransportErrorKind::Topology,
            format!(
                "queue `{queue}` exists with other arguments, or RabbitMQ refuses the ones asked for: {text}. Delete the \
                 queue once it is empty, configure the consumer as the queue is, or use Topology::Verify"
            ),
        ),
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!(
                "RabbitMQ does not let this user declare queue `{queue}`: {text}. Grant configure and read on it, and write on \
                 its dead-letter exchange; or have it declared by somebody else and use Topology::Verify"
            ),
        ),
        Some((405, text)) => {
            (TransportErrorKind::Topology, format!("queue `{queue}` belongs to another connection: {text}"))
        }
        Some((code, text)) if is_out_of_reach(code, &text) => {
            (TransportErrorKind::Unreachable, format!("queue `{queue}` could not be declared: {text}"))
        }
        Some((_, text)) => {
            (TransportErrorKind::Topology, format!("queue `{queue}` cannot be declared: {text}"))
        }
        None => (
            TransportErrorKind::Unreachable,
            format!("queue `{queue}` could not be declared: {}", said(&error)),
        ),
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for an exchange that could not be declared.
pub(crate) fn declaring_exchange(exchange: &str, error: Error) -> TransportError {
    let (kind, message) = match refusal(&error) {
        Some((406, text)) => (
            TransportErrorKind::Topology,
            format!(
                "exchange `{exchange}` exists with other properties, or RabbitMQ refuses the declaration: {text}. Configure the consumer as the \
                 exchange is, or use Topology::Verify"
            ),
        ),
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!(
                "RabbitMQ does not let this user declare exchange `{exchange}`: {text}. Grant the configure permission, or \
                 have it declared by somebody else and use Topology::Verify"
            ),
        ),
        Some((320 | 501..=541, _)) | None => (
            TransportErrorKind::Unreachable,
            format!("exchange `{exchange}` could not be declared: {}", said(&error)),
        ),
        Some((_, text)) => {
            (TransportErrorKind::Topology, format!("exchange `{exchange}` cannot be declared: {text}"))
        }
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for an exchange that is missing or cannot be used.
pub(crate) fn verifying_exchange(exchange: &str, error: Error) -> TransportError {
    let (kind, message) = match refusal(&error) {
        Some((404, _)) => (
            TransportErrorKind::Topology,
            format!("exchange `{exchange}` does not exist: declare it, or use Topology::Declare"),
        ),
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!(
                "RabbitMQ does not let this user check whether exchange `{exchange}` exists: {text}. Grant any permission on it"
            ),
        ),
        Some((code, text)) if !is_out_of_reach(code, &text) => {
            (TransportErrorKind::Topology, format!("exchange `{exchange}` cannot be used: {text}"))
        }
        _ => (
            TransportErrorKind::Unreachable,
            format!("exchange `{exchange}` could not be checked: {}", said(&error)),
        ),
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for a queue that could not be bound.
pub(crate) fn binding(queue: &str, exchange: &str, error: Error) -> TransportError {
    let what = format!("queue `{queue}` could not be bound to exchange `{exchange}`");
    let (kind, message) = match refusal(&error) {
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!(
                "{what}: {text}. Grant write on the queue and read on the exchange, or use Topology::Verify"
            ),
        ),
        Some((320 | 501..=541, _)) | None => {
            (TransportErrorKind::Unreachable, format!("{what}: {}", said(&error)))
        }
        Some((_, text)) => (TransportErrorKind::Topology, format!("{what}: {text}")),
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for parts of the topology, as they are displayed, that do not exist and that redrive does not declare: `never`, in no
/// mode.
pub(crate) fn missing(parts: &[String], never: bool) -> TransportError {
    let (are_missing, them) =
        if parts.len() == 1 { ("does not exist", "it") } else { ("do not exist", "them") };
    let how = if never {
        ", since redrive never does"
    } else {
        " like this (`Options::topology_plan` writes RabbitMQ's definitions and Terraform), or use Topology::Declare"
    };
    let message = format!("{} {are_missing}: have {them} declared{how}", parts.join(", "));
    TransportError::new(TransportErrorKind::Topology, message)
}

/// Error for a queue that is missing or cannot be used.
pub(crate) fn verifying(queue: &str, error: Error) -> TransportError {
    let (kind, message) = match refusal(&error) {
        Some((code, text)) if is_out_of_reach(code, &text) => {
            (TransportErrorKind::Unreachable, format!("queue `{queue}` could not be checked: {text}"))
        }
        Some((404, _)) => (
            TransportErrorKind::Topology,
            format!("queue `{queue}` does not exist: declare it, or use Topology::Declare"),
        ),
        Some((403, text)) => (
            TransportErrorKind::Unauthorized,
            format!("RabbitMQ does not let this user use queue `{queue}`: {text}. Grant at least read on it"),
        ),
        Some((_, text)) => (TransportErrorKind::Topology, format!("queue `{queue}` cannot be used: {text}")),
        None => (
            TransportErrorKind::Unreachable,
            format!("queue `{queue}` could not be checked: {}", said(&error)),
        ),
    };
    TransportError::new(kind, message).with_source(error)
}

/// Error for a channel that could not be prepared for publishing: nothing was sent on it.
pub(crate) fn no_channel_to_publish(error: Error) -> TransportError {
    let message = format!("RabbitMQ opens no channel to publish on: {}", said(&error));
    TransportError::new(TransportErrorKind::NotSent, message).with_source(error)
}

/// Error for a message whose headers were read only in part: a copy would lose the others.
pub(crate) fn read_in_part() -> TransportError {
    let message =
        "the headers do not fit a frame, and a copy would lose some: only the broker can move the message";
    TransportError::new(TransportErrorKind::TooLarge, message)
}

/// Error for a work queue that is a stream.
pub(crate) fn works_on_a_stream(queue: &str) -> TransportError {
    let message = format!(
        "`{queue}` is a stream: each subscription begins at its end, and what is acknowledged stays in it, so that messages would be handled \
         never, or again. Consume a quorum or a classic queue: bind one to the exchange that feeds the stream"
    );
    TransportError::new(TransportErrorKind::Topology, message)
}

/// Error for a work queue that the broker deletes with its last consumer.
pub(crate) fn goes_with_its_consumer(queue: &str) -> TransportError {
    let message = format!(
        "`{queue}` is an auto-delete queue: RabbitMQ deletes it, with all messages that wait in it, whenever a pause, a new subscription or a \
         restart leaves it without a consumer. Declare it without `auto-delete`"
    );
    TransportError::new(TransportErrorKind::Topology, message)
}

/// Returns true when a copy was not stored because of its own content; other copies may still be stored.
pub(crate) fn is_about_one_message(error: &TransportError) -> bool {
    use TransportErrorKind::{Refused, TooLarge, Unsupported};
    matches!(error.kind(), Refused | TooLarge | Unsupported)
}

/// Returns true when a copy was not stored because the broker refuses to declare its queue.
pub(crate) fn is_not_declared(error: &TransportError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<TransportError>());
    source.is_some_and(|source| {
        matches!(source.kind(), TransportErrorKind::Topology | TransportErrorKind::Unauthorized)
    })
}

/// Returns true when a queue or an exchange does not exist.
pub(crate) fn is_missing(error: &TransportError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    error.kind() == TransportErrorKind::Topology
        && source.and_then(refusal).is_some_and(|(code, _)| code == 404)
}

/// Returns true when a queue exists and another connection owns it exclusively.
pub(crate) fn is_held_by_another(error: &TransportError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    source.and_then(refusal).is_some_and(|(code, _)| code == 405)
}

/// Returns true when a copy was not stored because its exchange does not exist. The broker closes the channel in that case.
pub(crate) fn is_missing_exchange(error: &TransportError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<Error>());
    source.and_then(refusal).is_some_and(|(code, text)| code == 404 && text.contains("exchange"))
}

/// Error for a delivery that this consumer no longer holds.
pub(crate) fn lost(why: impl std::fmt::Display) -> TransportError {
    let message = format!("the delivery is no longer in flight ({why}); it is redelivered");
    TransportError::new(TransportErrorKind::Lost, message)
}

/// Error for a transport that was closed.
pub(crate) fn closed() -> TransportError {
    TransportError::new(TransportErrorKind::Closed, "the transport was closed: connect another one")
}

/// Error for a connection or channel that could not be used.
pub(crate) fn interrupted(what: &str, error: Error) -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, format!("{what}: {}", said(&error)))
        .with_source(error)
}

/// Error for a connection that has used all its channel numbers.
pub(crate) fn no_number() -> TransportError {
    let message = "RabbitMQ allows no more channels on this connection: let fewer transports share it, or raise the broker's \
                   channel_max";
    TransportError::new(TransportErrorKind::Unreachable, message)
}

/// Returns the text of an error, without the states of the client library.
pub(crate) fn said(error: &Error) -> String {
    match error.kind() {
        // What is asked of a channel after its end, or that of its connection.
        ErrorKind::InvalidChannelState(..) | ErrorKind::InvalidChannel(_) => {
            "the connection to RabbitMQ was lost, or RabbitMQ closed the channel".to_owned()
        }
        ErrorKind::InvalidConnectionState(_) => "the connection to RabbitMQ was lost".to_owned(),
        ErrorKind::IOError(cause) => format!("the connection to RabbitMQ was lost ({cause})"),
        ErrorKind::MissingHeartbeatError => {
            "the connection to RabbitMQ was lost (it sent no heartbeat for too long)".to_owned()
        }
        ErrorKind::ProtocolError(refused) => refused.get_message().as_str().to_owned(),
        _ => error.to_string(),
    }
}

/// Returns true when the broker denies the user a permission.
pub(crate) fn is_refused_access(error: &Error) -> bool {
    refusal(error).is_some_and(|(code, _)| code == 403)
}

/// Returns true when the error closed a channel, and not its connection.
pub(crate) fn is_about_a_channel(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::ProtocolError(error) => matches!(error.kind(), AMQPErrorKind::Soft(_)),
        ErrorKind::InvalidChannelState(..) => true,
        _ => false,
    }
}

/// Returns the broker's reply code and text, or `None` when the error does not come from the broker.
pub(crate) fn refusal(error: &Error) -> Option<(u16, String)> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some((error.get_id(), error.get_message().as_str().to_owned())),
        _ => None,
    }
}

/// Returns true when the queue does not exist, as opposed to being unavailable for now.
pub(crate) fn is_missing_queue(error: &Error) -> bool {
    refusal(error).is_some_and(|(code, text)| code == 404 && !is_out_of_reach(code, &text))
}

/// Returns true when the broker is shutting down or has a fault of its own, and nothing is wrong with the queue. RabbitMQ also
/// replies "not found" for a queue whose node is down or whose process does not answer.
fn is_out_of_reach(code: u16, text: &str) -> bool {
    /// Texts of `rabbit_amqqueue` for a queue that is declared but unavailable.
    const ABSENT: [&str; 4] =
        ["down or inaccessible", "stopped by supervisor", "failed to restart", "due to timeout"];
    // A connection error says nothing about a queue: any operation on the connection may have caused it.
    matches!(code, 320 | 501..=541) || code == 404 && ABSENT.iter().any(|absent| text.contains(absent))
}

/// Error for a subscription that could not be made. A missing queue is the only cause that waiting does not cure.
pub(crate) fn consuming(queue: &str, error: Error) -> TransportError {
    if is_missing_queue(&error) {
        return verifying(queue, error);
    }
    let kind = match refusal(&error) {
        Some((403, _)) => TransportErrorKind::Unauthorized,
        _ => TransportErrorKind::Unreachable,
    };
    TransportError::new(kind, format!("cannot consume queue `{queue}`: {}", said(&error))).with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::protocol::{AMQPError, AMQPHardError, AMQPSoftError};

    #[test]
    fn a_frame_size_that_rabbitmq_does_not_take_is_named() {
        let aborted = || Error::from(std::io::Error::from(std::io::ErrorKind::ConnectionAborted));
        let said =
            |frame_max| connecting("amqp://host:5672", "guest", false, frame_max, aborted()).to_string();
        for small in [1, 4096, 8191] {
            assert!(
                said(Some(small)).contains(&format!("frame_max={small}, and RabbitMQ 4 takes 8192 at least"))
            );
        }
        for other in [None, Some(0), Some(8192)] {
            assert!(said(other).contains("is it running"), "{other:?}");
        }
    }

    #[test]
    fn a_lost_connection_is_said_as_one() {
        for kind in [
            ErrorKind::InvalidChannelState(lapin::ChannelState::Error, "basic.qos"),
            ErrorKind::InvalidConnectionState(lapin::ConnectionState::Error),
            ErrorKind::MissingHeartbeatError,
        ] {
            let said = interrupted("cannot read the queue `orders`", kind.into()).to_string();
            assert!(
                said.starts_with("cannot read the queue `orders`: the connection to RabbitMQ was lost"),
                "{said}"
            );
            assert!(!said.contains("state") && !said.contains("qos"), "{said}");
        }
    }

    #[test]
    fn what_a_provider_says_is_told_without_its_secrets() {
        let said = no_credentials("no answer from https://app:hunter2@vault".into()).to_string();
        assert_eq!(said, "the credentials provider failed: no answer from https://app:***@vault");
    }

    #[test]
    fn a_queue_that_is_out_of_reach_is_neither_missing_nor_wrong() {
        let down =
            "NOT_FOUND - home node 'rabbit@b' of durable queue 'orders' in vhost '/' is down or inaccessible";
        let slow = "NOT_FOUND - failed to perform operation on queue 'orders' in vhost '/' due to timeout";
        let gone = "NOT_FOUND - no queue 'orders' in vhost '/'";
        let said = |kind: AMQPErrorKind, text: &str| {
            Error::from(ErrorKind::ProtocolError(AMQPError::new(kind, text.into())))
        };
        for (error, kind) in [
            (said(AMQPSoftError::NOTFOUND.into(), gone), TransportErrorKind::Topology),
            (said(AMQPSoftError::NOTFOUND.into(), down), TransportErrorKind::Unreachable),
            (said(AMQPSoftError::NOTFOUND.into(), slow), TransportErrorKind::Unreachable),
            (said(AMQPHardError::CONNECTIONFORCED.into(), "shutdown"), TransportErrorKind::Unreachable),
            (said(AMQPHardError::INTERNALERROR.into(), "timeout"), TransportErrorKind::Unreachable),
        ] {
            assert_eq!(is_missing_queue(&error), kind == TransportErrorKind::Topology, "{error}");
            for asked in [declaring, verifying, consuming] {
                assert_eq!(asked("orders", error.clone()).kind(), kind, "{error}");
            }
        }
    }

    #[test]
    fn what_ends_a_connection_says_nothing_about_an_exchange_or_a_queue() {
        use AMQPHardError::{CONNECTIONFORCED, FRAMEERROR, INTERNALERROR, NOTALLOWED};
        for kind in [CONNECTIONFORCED, INTERNALERROR, FRAMEERROR, NOTALLOWED] {
            let ended = Error::from(ErrorKind::ProtocolError(AMQPError::new(kind.into(), "shutdown".into())));
            for asked in [declaring_exchange, verifying_exchange, declaring, verifying] {
                assert_eq!(asked("orders", ended.clone()).kind(), TransportErrorKind::Unreachable);
            }
        }
    }
}
