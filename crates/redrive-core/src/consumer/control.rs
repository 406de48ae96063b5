//! Stopping, pausing and resuming a consumer from elsewhere.

use tokio::sync::watch;

/// What the consumer is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Run,
    Pause,
    Stop,
}

/// The consumer's end.
pub(crate) struct Control {
    asked: watch::Sender<Asked>,
}

impl Control {
    pub(crate) fn new() -> Self {
        Self { asked: watch::Sender::new(Asked::Run) }
    }

    pub(crate) fn handle(&self) -> ConsumerHandle {
        ConsumerHandle { asked: self.asked.clone() }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Asked> {
        self.asked.subscribe()
    }
}

/// Stops, pauses and resumes a consumer. Any number of clones; each may outlive the consumer.
#[derive(Clone, Debug)]
pub struct ConsumerHandle {
    asked: watch::Sender<Asked>,
}

impl ConsumerHandle {
    /// Takes no more messages, and gives back what no handler has begun with. Handlers that run go on.
    pub fn pause(&self) {
        self.ask(Asked::Pause);
    }

    /// Takes messages again.
    pub fn resume(&self) {
        self.ask(Asked::Run);
    }

    /// Ends the consumer as its shutdown does. There is no way back.
    pub fn stop(&self) {
        self.asked.send_replace(Asked::Stop);
    }

    fn ask(&self, wanted: Asked) {
        self.asked.send_if_modified(|asked| {
            let changes = *asked != Asked::Stop && *asked != wanted;
            if changes {
                *asked = wanted;
            }
            changes
        });
    }
}
