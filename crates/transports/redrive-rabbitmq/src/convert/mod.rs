//! Converts messages of AMQP 0-9-1 to messages of redrive and back, without loss.
//!
//! | module | does |
//! |---|---|
//! | [`read`] | converts what was received |
//! | [`write`] | converts what is published |
//! | [`arguments`] | converts arguments of queues for the client library |
//! | [`frame_size`] | checks what fits into one frame |
//! | [`packed_history`] | packs the failure history of a copy that waits |

mod arguments;
mod frame_size;
mod packed_history;
mod read;
mod write;

use std::sync::LazyLock;

use lapin::types::ShortString;
use redrive_core::{Headers, Message, Properties, TransportError, TransportErrorKind, header_names};
use redrive_transport::text::take_text;

pub(crate) use arguments::arguments;
pub(crate) use frame_size::{check_header_size, max_header_bytes};
pub(crate) use read::read;
pub(crate) use write::properties;

/// Headers for properties of other brokers that AMQP 0-9-1 does not have.
const TO: &str = "redrive-to";
const SESSION_ID: &str = "redrive-session-id";

/// Header that names what was left out of the headers of a message that is too large to be read: for people. It is never stored and
/// never trusted.
const LEFT_OUT: &str = "redrive-left-out";

/// Headers that RabbitMQ writes itself. On a copy, it would interpret them (`CC`, and `x-death` up to 3.12), or they would
/// contradict its own.
const WRITTEN_BY_THE_BROKER: [&str; 6] =
    ["x-delivery-count", "x-acquired-count", "CC", "BCC", "x-stream-offset", "x-opt-delivery-time"];
/// Headers in which RabbitMQ tells how a message died. A copy on a shelf keeps them.
const DEATHS: &str = "x-death";
const DEATHS_PREFIXES: [&str; 2] = ["x-first-death-", "x-last-death-"];

const NOT_PERSISTENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A message of the service: persistent if it does not say otherwise.
    Published,
    /// A copy: persistent whatever it says.
    Copy,
    /// A copy that a consumer stores on a shelf: the same, and it may fill its frame, because the broker adds nothing to it there.
    Shelved,
    /// A copy that waits: the same, and its story is packed.
    WaitingCopy,
    /// A copy that an operator stores on a shelf: persistent, and it keeps what RabbitMQ wrote about its deaths. A queue that
    /// dead-letters nothing does not interpret that, and a redrive removes it.
    OnShelf,
}

impl Form {
    fn delivery_mode(self, properties: &Properties) -> u8 {
        match (self, properties.persistent) {
            (Self::Published, Some(false)) => NOT_PERSISTENT,
            _ => PERSISTENT,
        }
    }
}

/// Returns the name of the header that replaces left-out ones. It differs in each process, so that no publisher can write it.
pub(crate) fn left_out_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| format!("redrive-left-out-{:016x}", fastrand::u64(..)));
    &MARK
}

/// Reads what is not a header of the message itself: the mark of what was left out, which stays for people, and the packed story.
fn unwrap_headers(headers: &mut Headers) -> Option<String> {
    packed_history::unpack(headers);
    let left_out = take_text(headers, left_out_mark())?;
    headers.insert(LEFT_OUT, &*left_out);
    Some(left_out)
}

/// Prepares a message for publishing: removes the broker's own headers, and moves a `user_id` that the broker would refuse into
/// a header.
pub(crate) fn for_publishing(mut message: Message, user: &str, form: Form) -> Message {
    if message.headers().iter().any(|(name, _)| is_removed(name, form)) {
        message.headers_mut().retain(|name, _| !is_removed(name, form));
    }
    if message.properties().user_id.as_deref().is_some_and(|id| id != user) {
        let id = message.properties_mut().user_id.take().unwrap_or_default();
        if !message.headers().contains(header_names::USER_ID) {
            message.headers_mut().insert(header_names::USER_ID, id);
        }
    }
    for (name, value) in
        [(TO, message.properties().to.clone()), (SESSION_ID, message.properties().session_id.clone())]
    {
        if let Some(value) = value {
            message.headers_mut().insert(name, value);
        }
    }
    message
}

/// Turns the expiration of a message into a header, so that it does not expire in its target queue. A consumer reads the header as a
/// deadline.
pub(crate) fn expiration_as_header(message: &mut Message) {
    if let Some(expiration) = message.properties().expiration {
        message.properties_mut().expiration = None;
        let millis = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        message.headers_mut().insert(header_names::EXPIRATION, millis);
    }
}

/// Returns a message that went through [`for_publishing`] as it will be read from its queue.
pub(crate) fn as_read(message: &Message, form: Form) -> Result<Message, TransportError> {
    let (read, _) = read::message(properties(message, form)?, message.body().clone());
    Ok(read)
}

/// Converts a text of at most 255 bytes.
pub(crate) fn short(text: &str, what: &str) -> Result<ShortString, TransportError> {
    check_short(text, what)?;
    Ok(ShortString::from(text))
}

/// Checks a text that [`short`] will convert later.
pub(crate) fn check_short(text: &str, what: &str) -> Result<(), TransportError> {
    if text.len() <= usize::from(u8::MAX) {
        return Ok(());
    }
    let message = format!("`{what}` takes {} bytes, and AMQP 0-9-1 carries 255 at most", text.len());
    Err(TransportError::new(TransportErrorKind::TooLarge, message))
}

fn is_removed(name: &str, form: Form) -> bool {
    // Most names are redrive's own.
    if name.starts_with(header_names::PREFIX) {
        return false;
    }
    WRITTEN_BY_THE_BROKER.contains(&name) || form != Form::OnShelf && tells_of_deaths(name)
}

fn tells_of_deaths(name: &str) -> bool {
    name == DEATHS || DEATHS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests;
