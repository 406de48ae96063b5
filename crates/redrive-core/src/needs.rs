//! What a configuration asks of its broker, and whether the broker can do it: compared before the
//! first message is taken.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::transport::Capabilities;

/// What a consumer's layers will ask of the transport. Gathered from the layers; the transport
/// prepares it at the start (for example one delay queue per wait).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Needs {
    /// The waits that retries will use, as far as they are known; empty when nothing is known.
    pub waits: BTreeSet<Duration>,
    /// A message may be handed out this often before the layers turn it away.
    pub hand_outs: Option<u32>,
    /// How many deliveries to hold at most, being handled or about to be.
    pub prefetch: u32,
}

impl Needs {
    /// Nothing asked for.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// These needs and those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.waits.extend(other.waits);
        self.hand_outs = self.hand_outs.max(other.hand_outs);
        self.prefetch = self.prefetch.max(other.prefetch);
        self
    }

    /// What of these needs the broker cannot honour: one sentence each, with what to do. Empty when all
    /// is well.
    #[must_use]
    pub fn unmet(&self, capabilities: &Capabilities) -> Vec<String> {
        let queue = &capabilities.queue;
        let mut unmet = Vec::new();
        if let (Some(&asked), Some(longest)) = (self.waits.last(), capabilities.longest_wait)
            && asked > longest
        {
            unmet.push(format!(
                "the retry policy asks for a wait of {}, but {} can hold a message of queue `{queue}` for {} at \
                 most: lower the policy's cap or schedule",
                humantime::format_duration(asked),
                capabilities.system,
                humantime::format_duration(longest),
            ));
        }
        if let (Some(asked), Some(limit)) = (self.hand_outs, capabilities.hand_out_limit)
            && asked >= limit
        {
            unmet.push(format!(
                "the layers turn a message of queue `{queue}` away after {asked} hand-outs, but the broker takes it \
                 away itself at {limit}: raise the queue's delivery limit above {asked}, or lower the layers' limit \
                 (`poison_after`) below {limit}"
            ));
        }
        unmet
    }
}
