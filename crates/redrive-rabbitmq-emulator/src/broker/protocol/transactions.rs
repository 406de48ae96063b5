//! Transactions: what a channel publishes and settles waits for the commit.

use std::sync::Arc;

use redrive_amqp091::tx;

use crate::broker::connection::Mode;
use crate::broker::failure::{Failure, Outcome};
use crate::broker::{At, Broker, QueueKind};

impl Broker {
    pub(super) fn select_transaction(&mut self, at: At) -> Outcome {
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.mode == Mode::Confirm {
            return Err(Failure::precondition("cannot switch from confirm to tx mode"));
        }
        channel.mode = Mode::Transaction;
        self.send(at, tx::SelectOk {});
        Ok(())
    }

    pub(super) fn commit(&mut self, at: At) -> Outcome {
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.mode != Mode::Transaction {
            return Err(Failure::precondition("channel is not transactional"));
        }
        let transaction = std::mem::take(&mut channel.transaction);
        let mut failed = false;
        for publish in transaction.publishes {
            let refused = self.deliver_publish(at, &Arc::clone(&publish.message), publish.mandatory)?;
            // What a quorum queue refuses is not missed.
            failed |= refused == Some(QueueKind::Classic);
        }
        // A queue hears of one after the other, and looks for consumers after each.
        for (how, settled) in transaction.settlements {
            self.pump();
            self.apply_settlement(at, how, settled);
        }
        self.pump();
        if failed {
            return Err(Failure::precondition("partial tx completion"));
        }
        self.send(at, tx::CommitOk {});
        Ok(())
    }

    pub(super) fn roll_back(&mut self, at: At) -> Outcome {
        let Some(channel) = self.channel(at) else { return Ok(()) };
        if channel.mode != Mode::Transaction {
            return Err(Failure::precondition("channel is not transactional"));
        }
        let transaction = std::mem::take(&mut channel.transaction);
        for (_, settled) in transaction.settlements {
            channel.unacked.extend(settled);
        }
        self.send(at, tx::RollbackOk {});
        Ok(())
    }
}
