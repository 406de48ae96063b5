//! Confirms of publishes.

use redrive_amqp091::{basic, confirm};

use crate::broker::connection::Mode;
use crate::broker::failure::{Failure, Outcome};
use crate::broker::{At, Broker, ConfirmFault, ConnectionId};

impl Broker {
    pub(super) fn select_confirms(&mut self, at: At, select: &confirm::Select) -> Outcome {
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.mode == Mode::Transaction {
            return Err(Failure::precondition("cannot switch from tx to confirm mode"));
        }
        channel.mode = Mode::Confirm;
        if !select.no_wait {
            self.send(at, confirm::SelectOk {});
        }
        Ok(())
    }

    /// Counts a publish. Returns its number if the channel confirms.
    pub(super) fn count_publish(&mut self, at: At) -> Option<u64> {
        let channel = self.channel(at)?;
        if channel.mode != Mode::Confirm {
            return None;
        }
        channel.published += 1;
        Some(channel.published)
    }

    /// Confirms a publish, or refuses it, at the end of what is being handled.
    pub(super) fn confirm(&mut self, at: At, number: Option<u64>, stored: bool) {
        if let (Some(number), Some(channel)) = (number, self.channel(at)) {
            channel.confirms.push((number, stored));
        }
    }

    pub(crate) fn flush_connection(&mut self, id: ConnectionId) {
        let Some(connection) = self.connections.get(&id) else { return };
        let channels: Vec<u16> = connection
            .channels
            .iter()
            .filter(|(_, channel)| !channel.confirms.is_empty())
            .map(|(number, _)| *number)
            .collect();
        for channel in channels {
            self.flush_confirms(At { connection: id, channel });
        }
    }

    /// Sends the confirms of a channel: one for each run of equal answers.
    pub(in crate::broker) fn flush_confirms(&mut self, at: At) {
        if self.confirms == ConfirmFault::Hold {
            return;
        }
        let Some(channel) = self.channel(at) else { return };
        let confirms = std::mem::take(&mut channel.confirms);
        for run in confirms.chunk_by(|(_, one), (_, other)| one == other) {
            let [first, ..] = run else { continue };
            let (delivery_tag, stored) = *run.last().unwrap_or(first);
            let multiple = run.len() > 1;
            if stored {
                self.send(at, basic::Ack { delivery_tag, multiple });
            } else {
                self.send(at, basic::Nack { delivery_tag, multiple, requeue: false });
            }
        }
    }
}
