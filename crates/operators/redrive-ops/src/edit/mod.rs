//! Edits of one message: what changed, and whether it may.
//!
//! | module | does |
//! |---|---|
//! | [`class`] | which parts are free, sensitive or locked |
//! | [`document`] | a message as one line of JSON for a program, and back |
//! | [`text`] | a message as text for an editor, and back |
//! | [`diff`] | what an edit changes, for people |

mod class;
mod diff;
mod document;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeSet;

use redrive_core::{Message, Properties};
use serde_json::{Map, Value as Json};

pub use self::class::{EditClass, MessagePart};
pub use self::diff::diff;
pub use self::document::EditDocument;
pub use self::text::{EditText, ParseEditError};
use crate::export::PropertiesJson;

/// An edit of one message that may be made: for [`Shelves::redrive_as`](redrive_core::Shelves::redrive_as) and
/// [`Shelves::replace`](redrive_core::Shelves::replace).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// # use redrive_consumer::Consumer;
/// # use redrive_core::{Disposition, Failure, Delivery, Message, Shelf, Shelves};
/// # use redrive_memory::MemoryBroker;
/// use redrive_ops::{Edit, EditText, SensitiveEdits, diff};
///
/// # let broker = MemoryBroker::new();
/// # broker.publish("orders", Message::new("2 books\n").with_id("order-7").with_header("tenant", "blue"))?;
/// # let done = async { while broker.depth("orders") > 0 { tokio::time::sleep(std::time::Duration::from_millis(1)).await } };
/// # let fail = |_: Delivery| async { Disposition::DeadLetter(Failure::custom("NoAddress", "no address")) };
/// # Consumer::new(broker.transport("orders")).handler(fail).run_until(done).await?;
/// let shelves = broker.shelves("orders");
/// let entry = shelves.browse(Shelf::DeadLetter, None, 1).await?.entries.remove(0);
///
/// // The text goes to an editor and comes back.
/// let text = EditText::of(&entry.message)?;
/// let edited = text.as_str().replace("2 books", "2 books, address: here");
/// let message = EditText::parse(&edited, &entry.message)?;
///
/// if let Some(edit) = Edit::between(&entry.message, message, SensitiveEdits::Refuse)? {
///     let shown = diff(&entry.message, edit.message());
///     assert!(shown.contains("-2 books\n+2 books, address: here\n"), "{shown}");
///     shelves.redrive_as(&entry.handle, edit.into_message()).await?;
/// }
/// assert_eq!(broker.depth("orders"), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Edit {
    changed: Vec<MessagePart>,
    message: Message,
}

/// What to do with changes of [sensitive](EditClass::Sensitive) parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SensitiveEdits {
    /// Refuse the edit and name them.
    Refuse,
    /// Make them: a person has confirmed them.
    Allow,
}

/// An edit is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
    /// It changes parts that redrive or the broker writes.
    #[error("the edit is refused: {} cannot be changed, because redrive or the broker writes them: leave them as they are", class::listed(.0))]
    Locked(Vec<MessagePart>),
    /// It changes parts that decide where and how the message is handled, and nobody confirmed that.
    #[error(
        "the edit is refused: {} decide where the message or its answer goes, or what it belongs to: leave them as they are, or confirm the change",
        class::listed(.0)
    )]
    Sensitive(Vec<MessagePart>),
}

impl Edit {
    /// Compares an edited message with the original. `None`: nothing has changed.
    ///
    /// # Errors
    ///
    /// If a locked part has changed; or a sensitive one, unless those are allowed.
    pub fn between(
        original: &Message,
        edited: Message,
        sensitive: SensitiveEdits,
    ) -> Result<Option<Self>, EditError> {
        let changed = changed(original, &edited);
        let of = |class| changed.iter().filter(|part| part.class() == class).cloned().collect::<Vec<_>>();
        let locked = of(EditClass::Locked);
        if !locked.is_empty() {
            return Err(EditError::Locked(locked));
        }
        let refused = if sensitive == SensitiveEdits::Refuse { of(EditClass::Sensitive) } else { Vec::new() };
        if !refused.is_empty() {
            return Err(EditError::Sensitive(refused));
        }
        Ok((!changed.is_empty()).then_some(Self { changed, message: edited }))
    }

    /// Returns the parts that were added, changed or removed, ordered: body, properties, headers.
    #[must_use]
    pub fn changed(&self) -> &[MessagePart] {
        &self.changed
    }

    /// Returns the edited message.
    #[must_use]
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the edited message.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.message
    }
}

/// Returns the parts in which the messages differ.
fn changed(one: &Message, other: &Message) -> Vec<MessagePart> {
    let body = (one.body() != other.body()).then_some(MessagePart::Body);
    let (before, after) = (properties(one.properties()), properties(other.properties()));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let of_properties = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    let (before, after) = (one.headers(), other.headers());
    let names: BTreeSet<_> = before.iter().chain(after.iter()).map(|(name, _)| name).collect();
    // By their Debug form where they are not equal: a NaN that was not edited is no edit.
    let differ = |name: &&str| {
        let (before, after) = (before.get(name), after.get(name));
        before != after && format!("{before:?}") != format!("{after:?}")
    };
    let of_headers = names.into_iter().filter(differ);
    body.into_iter()
        .chain(of_properties.map(|name| MessagePart::Property(name.clone())))
        .chain(of_headers.map(|name| MessagePart::Header(name.to_owned())))
        .collect()
}

/// Returns the properties that are set, by name.
fn properties(properties: &Properties) -> Map<String, Json> {
    match serde_json::to_value(PropertiesJson::from(properties)) {
        Ok(Json::Object(map)) => map,
        other => unreachable!("a struct is an object: {other:?}"),
    }
}
