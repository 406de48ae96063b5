//! The common part of a group's failures.

use redrive_core::redact;
use redrive_core::shelves::Shelved;

use super::id::GroupId;
use super::mask::mask;

/// Maximum number of bytes of a reason and of an error type.
const MAX_WORD_BYTES: usize = 128;
/// Maximum number of bytes of a text.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum number of digits of a name: a word with more contains an id rather than a code.
const MAX_DIGITS: usize = 5;

/// The common part of a group's failures: reason, error type and text, with [placeholders](#placeholders) for the parts that
/// vary.
///
/// ```
/// use redrive_ops::Template;
///
/// let one = Template::new("RetryableError", "Timeout", "order 4711: no answer from 10.0.0.7:5432 after 30.1s");
/// let other = Template::new("RetryableError", "Timeout", "order 8: no answer from 10.0.0.9:5432 after 950ms");
/// assert_eq!(one, other);
/// assert_eq!(one.text(), "order <number>: no answer from <ip>:<number> after <duration>");
/// ```
///
/// # Placeholders
///
/// | placeholder | stands for |
/// |---|---|
/// | `<number>` | `17`, `-1.5`, `1,234.56`, `2e-7`; the digits of `item17`; a list of numbers, whatever its length |
/// | `<duration>` | `250ms`, `1.5s`, `1h30m` |
/// | `<time>` | `2026-01-02T03:04:05.678Z`, `2026-01-02 03:04:05 +0100`, `02/Jan/2026:03:04:05 +0000`, `Fri, 2 Jan 2026 03:04:05 GMT`, `Jan 2 03:04:05`, `03:04:05`, `2026-01-02`, `20260102T030405Z` |
/// | `<uuid>` | `67e55044-10b1-426f-9247-bb680e5fe0c8` |
/// | `<hex>` | `0x7f3a`; a word of 8 or more hexadecimal digits with a letter and a digit among them |
/// | `<id>` | a word of 16 or more letters and digits that change at least four times; in a URL, a segment of the path with a digit |
/// | `<ip>` | an address of IPv4 or IPv6, without its port |
/// | `<email>` | `name@host` |
/// | `<query>` | the part of a URL after the `?` |
/// | `<text>` | the text in quotes: `"…"`, `'…'`, `` `…` ``; a list of such texts, whatever its length |
///
/// What says the cause stays: a status or an error code after a word that announces it (`status 503`, `the bank answered 402`,
/// `os error 111`, `ORA-00942`, `HTTP/1.1 503`), a name in backticks, and a name in other quotes after `field`, `column`, `key` and the
/// like (``missing field `price` ``).
///
/// Runs of white space and of control characters become one space.
///
/// A reason or an error type that is a plain word (ASCII letters, digits, `_`, `-`, `.`, `:`, at most 128 bytes and five digits:
/// `HttpError503`) is kept unchanged: its digits are a code. Any other is masked like a text, and cut at 128 bytes.
///
/// # Bounds
///
/// The text is cut at 512 bytes: failures with the same first 512 bytes are one group. But for codes, only the shape of a text counts, not
/// the values of its digits; if the length of a number changes its shape (`1.2.3.4` is an address, `1.2.3` is not), a group may split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Template {
    reason: String,
    error_type: String,
    text: String,
}

impl Template {
    /// Creates the template of a failure. An empty string means not known. The parts of a template make the same template again.
    ///
    /// Takes time proportional to the length of the texts.
    #[must_use]
    pub fn new(reason: &str, error_type: &str, text: &str) -> Self {
        Self { reason: word(reason), error_type: word(error_type), text: mask(text, MAX_TEXT_BYTES) }
    }

    /// Creates the template of an entry, from the failure that redrive recorded. If there is none, from the reason and the
    /// description of the broker or program that dead-lettered the message, without [secrets](redrive_core::redact).
    #[must_use]
    pub fn of(entry: &Shelved) -> Self {
        let error_type = entry.history.error_type.as_deref().filter(|_| is_recorded(entry));
        let text = error_text(entry).unwrap_or_default();
        let [reason, error_type] = [entry.reason(), error_type].map(|word| redact(word.unwrap_or_default()));
        Self::new(&reason, &error_type, &text)
    }

    /// Returns the id of the group.
    #[must_use]
    pub fn id(&self) -> GroupId {
        GroupId::of([&self.reason, &self.error_type, &self.text])
    }

    /// Returns the reason; empty if it is not known.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the type of the error; empty if it is not known.
    #[must_use]
    pub fn error_type(&self) -> &str {
        &self.error_type
    }

    /// Returns the text with placeholders; empty if it is not known.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns the text of the entry's failure, from the same source as its [reason](Shelved::reason).
pub(crate) fn error_text(entry: &Shelved) -> Option<String> {
    let text = match is_recorded(entry) {
        true => entry.history.error.as_deref(),
        false => entry.broker_description.as_deref(),
    };
    // Another program may have written either, so that its secrets are still there.
    text.map(redact)
}

fn is_recorded(entry: &Shelved) -> bool {
    entry.history.reason.is_some()
}

/// Returns true for a plain word, as reasons and types are: it contains no id, and no text.
pub(crate) fn is_name(word: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    (1..=MAX_WORD_BYTES).contains(&word.len()) && digits <= MAX_DIGITS && word.bytes().all(is_part)
}

fn word(word: &str) -> String {
    if is_name(word) { word.to_owned() } else { mask(word, MAX_WORD_BYTES) }
}

#[cfg(test)]
mod tests {
    use redrive_core::shelves::EntryHandle;
    use redrive_core::{Message, Shelf, header_names as names};

    use super::*;

    fn entry(message: Message) -> Shelved {
        Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message)
    }

    #[test]
    fn what_redrive_recorded_counts_before_the_words_of_the_broker() {
        let mut entry = entry(
            Message::new("")
                .with_header(names::REASON, "RetryableError")
                .with_header(names::ERROR_TYPE, "Timeout")
                .with_header(names::ERROR, "no answer after 3s"),
        );
        entry.broker_reason = Some("delivery_limit".to_owned());
        entry.broker_description = Some("too often".to_owned());
        assert_eq!(
            Template::of(&entry),
            Template::new("RetryableError", "Timeout", "no answer after <duration>")
        );
    }

    #[test]
    fn what_others_dead_lettered_has_their_reason_and_description_without_secrets() {
        let mut entry = entry(Message::new("").with_header(names::ERROR_TYPE, "Forged"));
        entry.broker_reason = Some("TTLExpiredException".to_owned());
        entry.broker_description = Some("amqp://shop:hunter2@mq/ expired".to_owned());
        assert_eq!(
            Template::of(&entry),
            Template::new("TTLExpiredException", "", "amqp://shop:***@mq/ expired")
        );
    }

    #[test]
    fn an_entry_that_tells_nothing_has_the_empty_template() {
        assert_eq!(Template::of(&entry(Message::new("body"))), Template::new("", "", ""));
    }

    #[test]
    fn a_name_keeps_its_code_and_prose_is_masked() {
        for name in ["OutOfStock", "HttpError503", "sql:23505", "delivery_limit", "a.b-c"] {
            assert_eq!(Template::new(name, name, "").reason(), name);
        }
        assert_eq!(Template::new("order 17 is bad", "", "").reason(), "order <number> is bad");
        assert_eq!(Template::new("order-471117", "", "").reason(), "order-<number>");
        assert_eq!(Template::new("", &"x".repeat(129), "").error_type().len(), MAX_WORD_BYTES);
    }
}
