//! Waiting for the log that the quorum queues of a node share.

use crate::client::{Client, Event};
use crate::message::Message;
use crate::target::Target;
use crate::wire::{Value, Writer, text};
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};

const CHANNEL: u16 = 1;
/// How long the log may take.
const WRITTEN: Duration = Duration::from_secs(60);

/// A quorum queue of its own, on a connection of its own. A quorum queue replies before its dead letters have arrived; a publish to
/// another queue of the node that is confirmed says that the log has moved on, however busy the machine is.
#[derive(Debug)]
pub(super) struct Fence {
    client: Client,
    queue: String,
}

impl Fence {
    pub(super) fn new(target: &Target, prefix: &str) -> Result<Fence> {
        let mut client = Client::connect(target.amqp, &target.vhost)?;
        client.open(CHANNEL)?;
        // No policy of the scenario matches this name.
        let queue = format!("fence.{prefix}");
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&queue).bits(&[false, true, false, false, false]);
        arguments.table(&vec![
            ("x-queue-type".to_owned(), text("quorum")),
            ("x-max-length".to_owned(), Value::Long(1)),
        ]);
        client.call(CHANNEL, (50, 10), &arguments, &[(50, 11)])?;
        client.call(CHANNEL, (85, 10), Writer::default().bits(&[false]), &[(85, 11)])?;
        Ok(Fence { client, queue })
    }

    /// Returns when the log has moved on.
    pub(super) fn pass(&mut self) -> Result<()> {
        self.client.publish(CHANNEL, "", &self.queue, false, &Message::default())?;
        let until = Instant::now() + WRITTEN;
        while !self.client.any_event(|event| matches!(event, Event::Ack { .. })) {
            let waiting = self.client.waiting();
            self.client.listen_for_one(until)?;
            (self.client.waiting() > waiting && !self.client.is_closed()).then_some(()).with_context(
                || {
                    format!(
                        "the publish to {} was not confirmed in {WRITTEN:?}: {:?}",
                        self.queue,
                        self.client.events()
                    )
                },
            )?;
        }
        self.client.events();
        Ok(())
    }

    pub(super) fn remove(mut self) -> Result<()> {
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.queue).bits(&[false, false, false]);
        self.client.call(CHANNEL, (50, 40), &arguments, &[(50, 41)])?;
        let mut close = Writer::default();
        close.short(200).short_text("").short(0).short(0);
        self.client.call(0, (10, 50), &close, &[(10, 51)])?;
        Ok(())
    }
}
