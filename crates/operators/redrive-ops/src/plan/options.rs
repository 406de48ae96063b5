//! What a plan allows.

/// What a plan allows.
///
/// ```
/// use redrive_ops::PlanOptions;
///
/// let options = PlanOptions::new("orders").max_redrives(5).limit(1_000);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a plan is made with them"]
pub struct PlanOptions {
    pub(super) queue: String,
    pub(super) max_redrives: u32,
    pub(super) limit: usize,
    pub(super) takes_unknown: bool,
}

impl PlanOptions {
    /// Creates the default options. `queue`: the work queue of the shelf.
    pub fn new(queue: impl Into<String>) -> Self {
        Self { queue: queue.into(), max_redrives: 3, limit: 100_000, takes_unknown: true }
    }

    /// Sets how often a message may be redriven. A message that was redriven that often, or whose count cannot be read, goes to the
    /// parking shelf instead. Default: 3.
    pub fn max_redrives(mut self, times: u32) -> Self {
        self.max_redrives = times;
        self
    }

    /// Leaves out the entries of a shared shelf that [do not tell](redrive_core::shelves::Owner::Unknown) where they failed, as whoever means the
    /// whole shelf should. Default: they are taken, as those of the work queue.
    pub fn without_unknown(mut self) -> Self {
        self.takes_unknown = false;
        self
    }

    /// Sets the maximum number of entries. Default: 100 000.
    pub fn limit(mut self, entries: usize) -> Self {
        self.limit = entries;
        self
    }
}
