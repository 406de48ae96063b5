//! Carrying a settlement out, until it is done or the delivery is lost.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::Instant;

use super::context::Context;
use super::guarded_count::Guard;
use super::in_hand::InHand;
use super::settled_cache::SettledCache;
use super::{Event, backoff};
use crate::delivery::Delivery;
use crate::message::Message;
use crate::settlement::Settlement;
use crate::transport::{ReceiptOf, Receiver, SettleError, Transport, TransportError, TransportErrorKind};

/// How carrying out a settlement ended.
#[derive(Debug)]
pub(crate) enum Ended<R> {
    /// As asked.
    Settled,
    /// Given back instead: the copy could not be stored before the consumer had to end.
    GivenBack,
    /// There was no room for the copy until its wait was over: it is handled from the hand.
    Due { copy: Message, receipt: R },
    /// The delivery is no longer in flight; it comes again.
    Lost,
}

impl<T: Transport> Context<T> {
    /// While a copy cannot be stored, the delivery stays in flight and the intake stays shut: the handler does not run
    /// again for it, and nothing is acknowledged. A copy that is to come back and finds no room does not shut the intake:
    /// what is taken in may be what makes room.
    pub(crate) async fn settle(
        &self,
        delivery: &Delivery,
        in_hand: &mut InHand,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        self.before(in_hand, &settlement);
        match self.receiver.settle(receipt, settlement.clone()).await {
            Ok(()) => {
                self.after(in_hand, &settlement);
                Ended::Settled
            }
            // In a box: most need not carry the room for this along.
            Err(failed) => Box::pin(self.settle_after(failed, delivery, in_hand, settlement)).await,
        }
    }

    async fn settle_after(
        &self,
        mut failed: SettleError<ReceiptOf<T>>,
        delivery: &Delivery,
        in_hand: &mut InHand,
        mut settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        let since = Instant::now();
        let (mut trouble, mut on_hold) = (None, None);
        let mut recovered = None;
        for tries in 1_u32.. {
            let SettleError { error, receipt: held, copy_stored } = failed;
            self.tell(&Event::NotSettled { delivery, error: &error, held: held.is_some() });
            let Some(receipt) = held else {
                tracing::warn!(%error, settlement = settlement.name(), "not settled: the message comes again");
                // What the handler acknowledged, and what has its copy, is done: only the broker does not know yet.
                if copy_stored || settlement == Settlement::Complete {
                    self.after(in_hand, &settlement);
                }
                return Ended::Lost;
            };
            if let Some(instead) = self.instead(&error, &settlement) {
                self.cannot_copy(in_hand, &error);
                settlement = instead;
            } else {
                let mut wait = backoff::wait(tries, fastrand::u64(..));
                if error.kind() == TransportErrorKind::Full
                    && let Settlement::Reschedule { wait: asked, copy } = settlement
                {
                    trouble = None;
                    on_hold.get_or_insert_with(|| self.hold(in_hand));
                    let left = asked.saturating_sub(since.elapsed());
                    if left.is_zero() {
                        tracing::warn!(%error, id = delivery.id(), "no room for the copy: it is handled from the hand");
                        return Ended::Due { copy, receipt };
                    }
                    if tries == 1 {
                        tracing::warn!(%error, id = delivery.id(), due_in = ?left, "no room for the copy: the message stays in flight until it is due");
                    }
                    wait = wait.min(left);
                    settlement = Settlement::Reschedule { wait: asked, copy };
                } else if error.kind() == TransportErrorKind::TooLarge {
                    // The fault is this message's, and time does not mend it: the others must not wait for that, also
                    // where it was handled alone. Its handler is done.
                    on_hold.get_or_insert_with(|| self.hold(in_hand));
                    if tries == 1 {
                        tracing::error!(%error, id = delivery.id(), settlement = settlement.name(), "too large to be copied: the message stays in flight, and takes one place of the concurrency");
                    }
                } else {
                    trouble.get_or_insert_with(|| self.trouble.begin());
                    tracing::error!(%error, settlement = settlement.name(), retry_in = ?wait, "not settled: the message stays in flight, and no more are taken");
                }
                // The word may come while the next try is under way: it is listened for from before that.
                let word = recovered.take().unwrap_or_else(|| self.recovered());
                if !self.wait_unless_over(wait, word).await {
                    return self.give_back(in_hand, receipt).await;
                }
                recovered = Some(self.recovered());
            }
            failed = match self.receiver.settle(receipt, settlement.clone()).await {
                Ok(()) => {
                    self.after(in_hand, &settlement);
                    return Ended::Settled;
                }
                Err(failed) => failed,
            };
        }
        unreachable!("the tries do not end")
    }

    /// Gives a delivery back as planned, or as it is: a copy that cannot be stored is not worth holding it for.
    pub(crate) async fn release_by(
        &self,
        delivery: &Delivery,
        in_hand: &mut InHand,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        self.before(in_hand, &settlement);
        let SettleError { error, receipt: held, copy_stored } =
            match self.receiver.settle(receipt, settlement.clone()).await {
                Ok(()) => {
                    self.after(in_hand, &settlement);
                    return Ended::Settled;
                }
                Err(error) => error,
            };
        self.tell(&Event::NotSettled { delivery, error: &error, held: held.is_some() });
        match held {
            Some(receipt) => {
                tracing::warn!(%error, "not given back as a copy: given back as it is, which counts");
                self.give_back(in_hand, receipt).await
            }
            None => {
                tracing::warn!(%error, "not given back: the message comes again by itself");
                if copy_stored {
                    self.after(in_hand, &settlement);
                }
                Ended::Lost
            }
        }
    }

    /// Gives a delivery back as it is; when even that fails the broker notices by itself that nobody has it any more.
    async fn give_back(&self, in_hand: &mut InHand, receipt: ReceiptOf<T>) -> Ended<ReceiptOf<T>> {
        self.before(in_hand, &Settlement::Release);
        match self.receiver.settle(receipt, Settlement::Release).await {
            Ok(()) => Ended::GivenBack,
            Err(_) => Ended::Lost,
        }
    }

    /// What can never be copied can still be moved by the broker itself.
    fn instead(&self, error: &TransportError, settlement: &Settlement) -> Option<Settlement> {
        let hopeless = error.kind() == TransportErrorKind::TooLarge && settlement.stores_copy();
        (hopeless && self.told.facts().dead_letter.is_possible()).then_some(Settlement::NativeDeadLetter)
    }

    pub(super) fn cannot_copy(&self, in_hand: &mut InHand, why: &dyn Display) {
        tracing::error!(%why, "the message cannot be copied: it goes to the dead-letter shelf without its history");
        in_hand.uncopied = true;
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.told.recovered())
    }

    /// Less when the transport says that it is worth trying again. False when the time is over first.
    async fn wait_unless_over(&self, wait: Duration, recovered: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = self.over() => false,
            () = tokio::time::sleep(wait) => true,
            () = recovered => true,
        }
    }

    /// What stays with the broker may be back at once: that it comes again is noted before the broker is told.
    fn before(&self, in_hand: &mut InHand, settlement: &Settlement) {
        if matches!(settlement, Settlement::Release | Settlement::RetryInPlace { .. }) {
            self.leave(in_hand, SettledCache::comes_again);
        }
    }

    fn after(&self, in_hand: &mut InHand, settlement: &Settlement) {
        let done = match settlement {
            Settlement::Complete | Settlement::Shelve { .. } => true,
            // Where a crash of the broker takes the copy with it, the original that comes again is all there is.
            Settlement::Reschedule { wait, .. } => wait.is_zero() || self.told.facts().delays.survive_crashes,
            // The message stays with the broker: when it comes again, it is not done.
            Settlement::Release | Settlement::RetryInPlace { .. } | Settlement::NativeDeadLetter => false,
        };
        self.leave(in_hand, if done { SettledCache::done } else { SettledCache::settled });
    }

    /// Its handler is done: others need not wait until it is settled, which may take for ever.
    fn hold(&self, in_hand: &mut InHand) -> Guard {
        if in_hand.alone.take().is_some() {
            self.held.notify_one();
        }
        self.on_hold.begin()
    }
}
