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
        let publishes = std::mem::take(&mut channel.transaction.publishes);
        self.deaths_in_long_chains = 0;
        let mut failed = false;
        // A queue hears of one after the other, and looks for consumers after each.
        for publish in publishes {
            let refused = self.deliver_publish(at, &Arc::clone(&publish.message), publish.mandatory)?;
            // What a quorum queue refuses is not missed.
            failed |= refused == Some(QueueKind::Classic);
            self.serve_all();
        }
        let settlements =
            self.channel(at).map(|channel| std::mem::take(&mut channel.transaction.settlements));
        for (how, settled) in settlements.into_iter().flatten() {
            self.apply_settlement(at, how, settled);
            self.serve_all();
        }
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
