//! Why a section of a configuration is refused.

/// A section of a configuration that is refused.
///
/// ```
/// use redrive_core::options::ShelfQueues;
///
/// let section = serde_json::json!({ "ParkingQueue": " " });
/// let error = ShelfQueues::from_deserializer(section).unwrap_err();
/// assert!(error.to_string().starts_with("ParkingQueue: a queue has a name"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{reason}", if path.is_empty() { "" } else { ": " })]
#[non_exhaustive]
pub struct OptionsError {
    /// Where in the section, such as `Retry.Cap`; empty: the section itself.
    pub path: String,
    /// What is wrong there, and what to do.
    pub reason: String,
}

impl OptionsError {
    /// Creates the error of the value at this path.
    #[must_use]
    pub fn at(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into() }
    }
}
