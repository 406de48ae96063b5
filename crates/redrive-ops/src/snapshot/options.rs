//! How much of a shelf is read, and how much of it is kept.

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

    /// Sets how many entries are read. Default: 100 000.
    pub fn limit(mut self, entries: u64) -> Self {
        self.limit = entries;
        self
    }

    /// Sets how many groups, and how many reasons, are told apart: those that are met first. Entries of others are only counted.
    /// Anybody who may publish can write any reason and any text; this bounds what they can make of a snapshot. Default: 1000.
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
