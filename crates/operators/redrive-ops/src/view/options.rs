//! Limits of a view.

/// Limits of a [`ShelfView`](super::ShelfView). Reading ends at the first limit that is reached.
///
/// ```
/// use redrive_ops::ViewOptions;
///
/// let options = ViewOptions::new().limit(5_000).max_bytes(64 * 1024 * 1024);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a view is read with them"]
pub struct ViewOptions {
    pub(super) limit: usize,
    pub(super) max_bytes: usize,
}

impl ViewOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self { limit: 100_000, max_bytes: 1024 * 1024 * 1024 }
    }

    /// Sets the maximum number of entries. Default: 100 000.
    pub fn limit(mut self, entries: usize) -> Self {
        self.limit = entries;
        self
    }

    /// Sets the maximum memory of the view, in bytes, as estimated from bodies and headers: publishers decide how large a message
    /// is. Default: 1 GiB.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self::new()
    }
}
