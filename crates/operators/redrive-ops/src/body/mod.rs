//! What a body says, for people and for filters: without its encoding. Pure.
//!
//! | module | does |
//! |---|---|
//! | [`unpack`] | undoes a content encoding, up to a limit |
//! | [`amqp10`] | reads a body that RabbitMQ hands over as AMQP 1.0 encodes it |

mod amqp10;
#[cfg(test)]
pub(crate) mod tests;
mod unpack;

use std::borrow::Cow;

use redrive_core::Message;

use crate::json::{is_deep, is_json, pretty, split_mark};

/// Maximum number of bytes of an unpacked body. A few bytes may be packed gigabytes.
const MOST_UNPACKED: usize = 4 * 1024 * 1024;
/// The `type` of a message whose body RabbitMQ 4 hands over as AMQP 1.0 encodes it.
const ENCODED_KIND: &str = "amqp-1.0";

/// A body as a person, or a filter, looks at it: unpacked, if its content encoding is gzip or deflate, and without the AMQP 1.0
/// encoding that RabbitMQ 4 hands over where a publisher sent a value. At most 4 MiB are unpacked.
///
/// ```
/// use redrive_core::Message;
/// use redrive_ops::BodyView;
///
/// let message = Message::new("\u{feff}{\"price\": 1.10}");
/// let body = BodyView::of(&message);
/// assert_eq!(body.text(), Some("{\"price\": 1.10}"), "without the byte order mark");
/// assert_eq!(body.pretty().as_deref(), Some("{\n  \"price\": 1.10\n}"));
/// ```
#[derive(Clone, Debug)]
pub struct BodyView<'a> {
    bytes: Cow<'a, [u8]>,
    /// What was undone, in that order.
    undone: Vec<&'static str>,
    problem: Option<String>,
}

impl<'a> BodyView<'a> {
    /// Looks at the body of a message.
    #[must_use]
    pub fn of(message: &'a Message) -> Self {
        let mut view = Self { bytes: Cow::Borrowed(&message.body()[..]), undone: Vec::new(), problem: None };
        let properties = message.properties();
        if properties.kind.as_deref() == Some(ENCODED_KIND) {
            view.decode();
        }
        let encodings = properties.content_encoding.as_deref().unwrap_or_default();
        // The last one was applied last.
        for encoding in encodings.rsplit(',').map(str::trim).filter(|encoding| !encoding.is_empty()) {
            if view.problem.is_none() {
                view.unpack(encoding);
            }
        }
        view
    }

    /// Returns the bytes, as far as their encoding could be undone.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the text, without a byte order mark; `None`: it is none.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(split_mark(&self.bytes).1).ok()
    }

    /// Returns the text if it is one value of JSON, nested at most 128 deep.
    #[must_use]
    pub fn json(&self) -> Option<&str> {
        self.text().filter(|text| is_json(text) && !is_deep(text))
    }

    /// Returns the text with a line for each value, if it is an object or an array of JSON: only white space changes.
    #[must_use]
    pub fn pretty(&self) -> Option<String> {
        self.text().and_then(pretty)
    }

    /// Returns what was undone, in words: `gzip`.
    #[must_use]
    pub fn undone(&self) -> &[&'static str] {
        &self.undone
    }

    /// Returns why nobody can look into the whole body; `None`: it is as its publisher wrote it.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    fn decode(&mut self) {
        match amqp10::decoded(&self.bytes) {
            Some(bytes) => {
                self.bytes = Cow::Owned(bytes);
                self.undone.push("AMQP 1.0");
            }
            None => self.problem = Some("it is no body as AMQP 1.0 encodes it".to_owned()),
        }
    }

    fn unpack(&mut self, encoding: &str) {
        let packing = match encoding.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => unpack::Packing::Gzip,
            "deflate" => unpack::Packing::Deflate,
            // Many clients write a charset here.
            _ if std::str::from_utf8(&self.bytes).is_ok() => return,
            "identity" | "binary" | "8bit" => return,
            _ => {
                let name: String = encoding.chars().take(40).collect();
                self.problem = Some(format!("its content encoding `{name}` is not known"));
                return;
            }
        };
        match unpack::unpacked(&self.bytes, packing, MOST_UNPACKED) {
            Ok(bytes) => {
                self.bytes = Cow::Owned(bytes);
                self.undone.push(packing.name());
            }
            Err(unpack::Unpacked::TooLarge(beginning)) => {
                self.bytes = Cow::Owned(beginning);
                self.undone.push(packing.name());
                self.problem = Some(format!("unpacked it has more than {} MiB", MOST_UNPACKED >> 20));
            }
            // Some programs name an encoding that they did not apply.
            Err(unpack::Unpacked::Damaged) if std::str::from_utf8(&self.bytes).is_ok() => {}
            Err(unpack::Unpacked::Damaged) => {
                self.problem = Some(format!("it is no whole {}", packing.name()));
            }
        }
    }
}
