//! Limits of a snapshot: how much is read, and how much is kept.

/// Limits of a snapshot.
///
/// ```
/// use redrive_ops::SnapshotOptions;
///
/// let options = SnapshotOptions::new().limit(5_000).groups(100);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a snapshot is taken with them"]
pub struct SnapshotOptions {
    pub(super) limit: u64,
    pub(super) groups: usize,
}

impl SnapshotOptions {
    /// Creates the default options.
    pub fn new() -> Self {
        Self { limit: 100_000, groups: 1_000 }
    }

    /// Sets the maximum number of entries to read. Default: 100 000.
    pub fn limit(mut self, entries: u64) -> Self {
        self.limit = entries;
        self
    }

    /// Sets the maximum number of groups, and of reasons, to distinguish: the first ones that occur. Entries of others are only
    /// counted. Publishers can write any reason and any text; this bounds the size of the snapshot. Default: 1000.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self::new()
    }
}
