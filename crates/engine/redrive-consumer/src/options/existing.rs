//! Keys of sections that other clients of Azure Service Bus left behind.

use std::fmt;

use redrive_core::options::OptionsError;

use super::values::{Named, OneOf};

/// A connection string from a section. It holds a key, and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionString(String);

impl ConnectionString {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text, for connecting. Do not log it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Never shows the text.
impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConnectionString(..)")
    }
}

/// How other clients may take messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiveMode {
    PeekLock,
    ReceiveAndDelete,
}

impl Named for ReceiveMode {
    const NAMES: &'static [(&'static str, Self)] =
        &[("PeekLock", Self::PeekLock), ("ReceiveAndDelete", Self::ReceiveAndDelete)];
}

pub(super) fn check_receive_mode(mode: Option<OneOf<ReceiveMode>>) -> Result<(), OptionsError> {
    match mode {
        Some(OneOf(ReceiveMode::ReceiveAndDelete)) => Err(OptionsError::at(
            "ReceiveMode",
            "`ReceiveAndDelete` removes a message before it is handled: a failure or a crash would lose it, and there would be nothing \
             to retry; give `PeekLock`, or leave the key out",
        )),
        _ => Ok(()),
    }
}

/// Returns the name of a queue, if there is one.
pub(super) fn queue_name(name: Option<String>) -> Result<Option<String>, OptionsError> {
    match name {
        Some(name) if name.trim().is_empty() => {
            Err(OptionsError::at("QueueName", "a queue has a name: give one, or leave the key out"))
        }
        name => Ok(name),
    }
}
