//! What leaves a queue for good.

use super::super::QueueId;
use super::super::reason::Reason;
use super::ready::Stored;

/// A message that leaves a queue for good.
#[derive(Debug)]
pub(crate) struct Dying {
    pub(crate) stored: Stored,
    pub(crate) reason: Reason,
    /// The queues that took it before, while another one did not confirm it.
    pub(crate) taken_by: Vec<QueueId>,
}
