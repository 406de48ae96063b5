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
    pub(super) max_bytes: u64,
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

    /// Sets the maximum number of bytes of all bodies and headers. Publishers decide how large a message is; this bounds the memory
    /// of the view. Default: 1 GiB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self::new()
    }
}
