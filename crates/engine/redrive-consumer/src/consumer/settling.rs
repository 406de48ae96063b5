//! Carries out a settlement, until it succeeds or the delivery is lost.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::transport::{ReceiptOf, Receiver, SettleError, Settlement};
use redrive_core::{Delivery, Message, Transport, TransportErrorKind};
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::Instrument;

use super::guarded_count::{Guard, GuardedCount};
use super::in_flight::InFlight;
use super::refusals::{Consequence, Copies, Refusals, is_unclear};
use super::shared::Shared;
use super::{Event, backoff, telemetry};
use crate::redelivery::{Known, Redelivery};

/// Result of carrying out a settlement.
#[derive(Debug)]
pub(crate) enum Ended<R> {
    /// Settled as decided.
    Settled,
    /// Given back instead: the consumer had to end before the copy could be stored.
    GivenBack,
    /// The copy found no room until its wait was over: the consumer handles it now, without storing it.
    Due { copy: Message, receipt: R },
    /// The delivery is no longer in flight; it is redelivered.
    Lost,
}

/// Carries out the settlements of one consumer.
pub(crate) struct Settling<T: Transport> {
    shared: Arc<Shared<T>>,
    redelivery: Arc<Redelivery>,
    /// The copies that were stored, and those that are refused.
    copies: Copies,
    /// Number of deliveries in flight whose copies cannot be stored. While there is one, the intake is shut.
    pub(super) trouble: GuardedCount,
    /// Number of deliveries that stay in flight after their handlers are done.
    pub(super) on_hold: GuardedCount,
    /// Notified when a delivery that was handled alone stays in flight unsettled.
    pub(super) held: Notify,
}

impl<T: Transport> Settling<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, redelivery: Arc<Redelivery>) -> Self {
        Self {
            shared,
            redelivery,
            copies: Copies::new(),
            trouble: GuardedCount::new(),
            on_hold: GuardedCount::new(),
            held: Notify::new(),
        }
    }

    /// Settles, and tries again while a copy cannot be stored. Meanwhile the delivery stays in flight and the intake stays shut:
    /// the handler does not run again for this delivery, and nothing is acknowledged. A rescheduled copy that finds no room does
    /// not shut the intake: handling further messages may be what makes room.
    pub(super) async fn settle(
        &self,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        self.before(in_flight, &settlement);
        match self.send(delivery, receipt, &settlement).await {
            Ok(()) => {
                self.after(in_flight, &settlement);
                Ended::Settled
            }
            // Boxed: most settlements succeed at once, and their futures should not reserve room for this.
            Err(failed) => Box::pin(self.settle_after(failed, delivery, in_flight, settlement)).await,
        }
    }

    async fn settle_after(
        &self,
        mut failed: SettleError<ReceiptOf<T>>,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        mut settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        let since = Instant::now();
        let (mut trouble, mut on_hold) = (None, None);
        let (mut recovered, mut last_kind) = (None, None);
        let (mut refusals, mut refused) = (Refusals::default(), None);
        for tries in 1_u32.. {
            let SettleError { error, receipt: held, copy_stored, .. } = failed;
            self.shared.tell(&Event::NotSettled { delivery, error: &error, held: held.is_some() });
            let Some(receipt) = held else {
                tracing::warn!(%error, message_id = delivery.id(), queue = self.shared.queue(), settlement = settlement.name(), "not settled: the message is redelivered");
                // An acknowledged message, and one whose copy is stored, is done: only the broker does not know it yet.
                if copy_stored || settlement == Settlement::Complete {
                    self.after(in_flight, &settlement);
                }
                return Ended::Lost;
            };
            let place = self.copies.of(&settlement);
            let judged = refusals.judge(&error, tries, place.others(refused.is_some()));
            // Counted as long as it is not known that others are stored.
            refused = match is_unclear(&error) && !refusals.is_alone() {
                true => refused.or_else(|| Some(place.refused.begin())),
                false => None,
            };
            if let Some(instead) = self.instead(judged, delivery, &settlement) {
                self.cannot_copy(delivery, in_flight, &error);
                settlement = instead;
            } else {
                let mut wait = backoff::wait(tries, fastrand::u64(..));
                let is_new = last_kind.replace(error.kind()) != Some(error.kind());
                if error.kind() == TransportErrorKind::Full
                    && let Settlement::Reschedule { wait: asked, copy } = settlement
                {
                    trouble = None;
                    on_hold.get_or_insert_with(|| self.hold(in_flight));
                    // A wait of zero would have the handler run as fast as the broker refuses.
                    let left = asked.max(backoff::FIRST).saturating_sub(since.elapsed());
                    if left.is_zero() {
                        tracing::warn!(%error, message_id = delivery.id(), queue = self.shared.queue(), "no room for the copy: the handler runs again without a stored copy");
                        return Ended::Due { copy, receipt };
                    }
                    if is_new {
                        tracing::warn!(%error, message_id = delivery.id(), queue = self.shared.queue(), due_in = ?left, "no room for the copy: the message stays in flight until it is due");
                    }
                    wait = wait.min(left);
                    settlement = Settlement::Reschedule { wait: asked, copy };
                } else if judged != Consequence::Pause {
                    // This message itself is the cause, or may be: other messages must not wait for it, even if it was handled alone,
                    // or had another error before. Its handler is done.
                    trouble = None;
                    on_hold.get_or_insert_with(|| self.hold(in_flight));
                    if is_new {
                        tracing::error!(%error, message_id = delivery.id(), queue = self.shared.queue(), settlement = settlement.name(), "not copied: the message stays in flight, and occupies one place of the concurrency; other messages are handled");
                    }
                } else {
                    trouble.get_or_insert_with(|| self.trouble.begin());
                    tracing::error!(%error, message_id = delivery.id(), queue = self.shared.queue(), settlement = settlement.name(), retry_in = ?wait, "not settled: the message stays in flight, and the intake is paused until a retry succeeds");
                }
                // The signal may arrive during the next try: subscribe before it.
                let word = recovered.take().unwrap_or_else(|| self.recovered());
                if !self.wait_unless_over(wait, word).await {
                    return self.give_back(delivery, in_flight, receipt).await;
                }
                recovered = Some(self.recovered());
            }
            failed = match self.send(delivery, receipt, &settlement).await {
                Ok(()) => {
                    self.after(in_flight, &settlement);
                    return Ended::Settled;
                }
                Err(failed) => failed,
            };
        }
        unreachable!("the tries do not end")
    }

    /// Gives a delivery back as planned. If the copy cannot be stored, gives the delivery back unchanged instead of holding it.
    pub(super) async fn release_by(
        &self,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        receipt: ReceiptOf<T>,
        settlement: Settlement,
    ) -> Ended<ReceiptOf<T>> {
        self.before(in_flight, &settlement);
        let SettleError { error, receipt: held, copy_stored, .. } =
            match self.send(delivery, receipt, &settlement).await {
                Ok(()) => {
                    self.after(in_flight, &settlement);
                    return Ended::Settled;
                }
                Err(error) => error,
            };
        self.shared.tell(&Event::NotSettled { delivery, error: &error, held: held.is_some() });
        match held {
            Some(receipt) => {
                tracing::warn!(%error, message_id = delivery.id(), queue = self.shared.queue(), "the copy could not be given back: giving back the original, which counts as a delivery");
                self.give_back(delivery, in_flight, receipt).await
            }
            None => {
                tracing::warn!(%error, message_id = delivery.id(), queue = self.shared.queue(), "not given back: the message is redelivered");
                if copy_stored {
                    self.after(in_flight, &settlement);
                }
                Ended::Lost
            }
        }
    }

    /// Gives a delivery back unchanged. If even that fails, the broker notices by itself that the consumer no longer holds it.
    async fn give_back(
        &self,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        receipt: ReceiptOf<T>,
    ) -> Ended<ReceiptOf<T>> {
        self.before(in_flight, &Settlement::Release);
        match self.send(delivery, receipt, &Settlement::Release).await {
            Ok(()) => Ended::GivenBack,
            Err(_) => Ended::Lost,
        }
    }

    /// Has the transport carry a settlement out, within a span.
    async fn send(
        &self,
        delivery: &Delivery,
        receipt: ReceiptOf<T>,
        settlement: &Settlement,
    ) -> Result<(), SettleError<ReceiptOf<T>>> {
        let sending = self.shared.receiver.settle(receipt, settlement.clone());
        let span = telemetry::settle_span(delivery, settlement, self.shared.system);
        if span.is_disabled() {
            return sending.await;
        }
        let sent = Box::pin(sending).instrument(span.clone()).await;
        if let Err(failed) = &sent {
            telemetry::failed(&span, &format!("{:?}", failed.error.kind()));
        }
        sent
    }

    /// Returns the settlement for a message of which no copy with its history can ever be stored. `None`: there is none, or it was
    /// refused as well.
    fn instead(
        &self,
        judged: Consequence,
        delivery: &Delivery,
        settlement: &Settlement,
    ) -> Option<Settlement> {
        let hopeless = judged == Consequence::NeverCopied && settlement.stores_copy();
        let without_history = || Settlement::without_history(delivery, &self.shared.signals.facts());
        (hopeless && !settlement.leaves_history_out()).then(without_history)
    }

    pub(super) fn cannot_copy(&self, delivery: &Delivery, in_flight: &mut InFlight, why: &dyn Display) {
        tracing::error!(%why, message_id = delivery.id(), queue = self.shared.queue(), "the message cannot be copied: it goes to the dead-letter shelf without its history");
        in_flight.uncopied = true;
    }

    fn recovered(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.shared.signals.recovered())
    }

    /// Waits for `wait`, or until the transport signals recovery. Returns false if the grace period ends first.
    async fn wait_unless_over(&self, wait: Duration, recovered: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = self.shared.over() => false,
            () = tokio::time::sleep(wait) => true,
            () = recovered => true,
        }
    }

    /// Notes that a message is expected again, before telling the broker: a message that stays with the broker may come back at
    /// once.
    fn before(&self, in_flight: &mut InFlight, settlement: &Settlement) {
        if matches!(settlement, Settlement::Release | Settlement::RetryInPlace { .. }) {
            self.redelivery.leave(&mut in_flight.ticket, Known::ComesAgain);
        }
    }

    fn after(&self, in_flight: &mut InFlight, settlement: &Settlement) {
        if settlement.stores_copy() {
            self.copies.of(settlement).note_stored();
        }
        let done = match settlement {
            Settlement::Complete | Settlement::Shelve { .. } => true,
            // If a crash of the broker can lose the copy, the redelivered original is the only one left.
            Settlement::Reschedule { wait, .. } => {
                wait.is_zero() || self.shared.signals.facts().delays.survive_crashes
            }
            // The message stays with the broker: when it is redelivered, it is not done.
            Settlement::Release | Settlement::RetryInPlace { .. } | Settlement::NativeDeadLetter => false,
        };
        self.redelivery.leave(&mut in_flight.ticket, if done { Known::Done } else { Known::Settled });
    }

    /// Marks a delivery whose handler is done: other deliveries need not wait for its settlement, which may never succeed.
    fn hold(&self, in_flight: &mut InFlight) -> Guard {
        if in_flight.alone.take().is_some() {
            self.held.notify_one();
        }
        self.on_hold.begin()
    }
}
