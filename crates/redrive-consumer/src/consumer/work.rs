//! Handles and settles one delivery.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use redrive_core::{
    Count, Delivery, Disposition, Failure, NativeDeadLetter, Reason, ReceiptOf, Received, Receiver,
    ReportRequest, Settlement, Transport,
    fail_point::{FailPoint, fail_point},
    panic,
};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::context::Context;
use super::in_flight::{Alone, InFlight};
use super::in_flight_log::InFlightLog;
use super::settle::Ended;
use super::settled_cache::SettledCache;
use super::{Event, telemetry};
use crate::service::ErasedService;

/// Reason why a message cannot be copied, where that is known before trying.
const NO_ROOM: &str = "its headers leave no room for a copy";

/// A copy that could not be stored and is due now, with the original delivery's receipt and bookkeeping.
type Due<R> = (Delivery, R, InFlight);

impl<T: Transport> Context<T> {
    /// Handles a delivery and settles it.
    pub(crate) async fn work(&self, service: ErasedService, received: Received<ReceiptOf<T>>, alone: Alone) {
        fail_point(FailPoint::Received);
        let Received { delivery, receipt } = received;
        let delivery = delivery.taken_by_consumer(self.signals.delivery_limit(), self.publisher.clone());
        let delivery = self.with_losses(delivery);
        if let Some(reason) = delivery.put_back() {
            tracing::info!(
                message_id = delivery.id(),
                queue = self.queue(),
                %reason,
                "another program put this message back from a shelf, where it was for this reason: it begins afresh, as a first attempt"
            );
        }
        let (known, ticket) = self.arrived(&delivery);
        let in_flight = InFlight { ticket, known, alone, ..InFlight::default() };
        if let Some(due) = self.work_once(service, delivery, receipt, in_flight).await {
            Box::pin(self.work_on(due)).await;
        }
    }

    /// Handles the unstored copy directly, again and again, until there is room for a copy or none is needed.
    async fn work_on(&self, due: Due<ReceiptOf<T>>) {
        let mut next = Some(due);
        while let Some((delivery, receipt, in_flight)) = next {
            let mut service = self.stack();
            let ready = tokio::select! {
                ready = self.ready(&mut service) => ready.is_ok(),
                () = self.over() => false,
            };
            if !ready {
                // The main loop uses the same stack, and ends with its error.
                return self.give_back_unhandled(&delivery, in_flight, receipt).await;
            }
            next = self.work_once(service, delivery, receipt, in_flight).await;
        }
    }

    async fn work_once(
        &self,
        service: ErasedService,
        delivery: Delivery,
        receipt: ReceiptOf<T>,
        in_flight: InFlight,
    ) -> Option<Due<ReceiptOf<T>>> {
        let span = telemetry::process_span(&delivery, self.system);
        self.join(&span, &delivery);
        if span.is_disabled() {
            self.work_within(&span, service, delivery, receipt, in_flight).await
        } else {
            let within = self.work_within(&span, service, delivery, receipt, in_flight);
            Box::pin(within).instrument(span.clone()).await
        }
    }

    async fn work_within(
        &self,
        span: &Span,
        service: ErasedService,
        delivery: Delivery,
        receipt: ReceiptOf<T>,
        mut in_flight: InFlight,
    ) -> Option<Due<ReceiptOf<T>>> {
        if in_flight.known {
            drop(service);
            self.settle_duplicate(&delivery, &mut in_flight, receipt).await;
            return None;
        }
        if delivery.history().not_before.is_some()
            && let Some(wait_on) = Settlement::wait_on(&delivery, &self.planning(&self.signals.facts()))
        {
            tracing::debug!("not due yet: continues to wait");
            drop(service);
            if wait_on.leaves_history_out() {
                self.cannot_copy(&delivery, &mut in_flight, &NO_ROOM);
            }
            let ended = self.settle(&delivery, &mut in_flight, receipt, wait_on).await;
            if in_flight.uncopied && matches!(ended, Ended::Settled) {
                let disposition = Disposition::Snooze(Duration::ZERO).without_copy();
                self.tell_settled(&delivery, &mut in_flight, &disposition);
            }
            return self.go_on(&delivery, in_flight, ended);
        }
        self.tell(&Event::Received { delivery: &delivery });
        in_flight.handled = true;
        let mut begun = self.ledger.as_ref().map(|ledger| ledger.begin(&delivery));
        if let Some(change) = self.ledger.as_ref().and_then(InFlightLog::change) {
            self.note(&change);
        }
        let began = (!self.settings.observers.is_empty()).then(Instant::now);
        let lost = self.receiver.lost(&receipt);
        let again = delivery.redelivered().then(|| self.handling_again(&delivery));
        let disposition = self.decide(service, &delivery, lost).await;
        drop(again);
        let Some(disposition) = disposition else {
            if let Some(begun) = &mut begun {
                begun.give_back();
            }
            tracing::warn!(
                message_id = delivery.id(),
                queue = self.queue(),
                "lost while it was handled: the handler was dropped, and the message is redelivered, uncharged"
            );
            self.leave(&mut in_flight, SettledCache::comes_again);
            drop(receipt);
            self.lost(&delivery, &mut in_flight);
            return None;
        };
        let disposition = self.redacted(disposition);
        if let Some(began) = began {
            let elapsed = began.elapsed();
            self.tell(&Event::Decided { delivery: &delivery, disposition: &disposition, elapsed });
        }
        telemetry::decided(span, &delivery, &disposition);
        fail_point(FailPoint::Decided);
        if let (Disposition::Release, Some(begun)) = (&disposition, &mut begun) {
            begun.give_back();
        }
        // A poison message stays counted in the ledger until it is on its shelf.
        let mut poison = begun.filter(|_| is_poison(&disposition));
        if let Some(begun) = &mut poison {
            begun.give_back();
        }
        let ended = self.carry_out(span, &delivery, &mut in_flight, receipt, disposition).await;
        if let (Ended::Settled, Some(begun)) = (&ended, &mut poison) {
            begun.end();
        }
        drop(poison);
        self.go_on(&delivery, in_flight, ended)
    }

    async fn settle_duplicate(&self, delivery: &Delivery, in_flight: &mut InFlight, receipt: ReceiptOf<T>) {
        tracing::info!(
            message_id = delivery.id(),
            queue = self.queue(),
            "deduplicated: it was settled before, and only its acknowledgement was lost"
        );
        if let Ended::Settled = self.settle(delivery, in_flight, receipt, Settlement::Complete).await {
            self.settled_at_last(delivery, in_flight);
            self.counters.deduplicated();
            self.report_handled(delivery);
            self.tell(&Event::Deduplicated { delivery });
        }
    }

    /// Gives back a delivery that no handler has begun with.
    pub(crate) async fn release(&self, received: Received<ReceiptOf<T>>) {
        let Received { delivery, receipt } = received;
        // A release may store a copy with another copy number, which the cache would not recognize.
        let (known, ticket) = self.arrived(&delivery);
        let mut in_flight = InFlight { ticket, known, ..InFlight::default() };
        if known {
            return self.settle_duplicate(&delivery, &mut in_flight, receipt).await;
        }
        self.give_back_unhandled(&delivery, in_flight, receipt).await;
    }

    /// Gives back a delivery whose handler is not to run.
    async fn give_back_unhandled(&self, delivery: &Delivery, mut in_flight: InFlight, receipt: ReceiptOf<T>) {
        self.carry_out(&Span::none(), delivery, &mut in_flight, receipt, Disposition::Release).await;
        self.leave(&mut in_flight, SettledCache::comes_again);
    }

    /// Decides what happens to the delivery. Returns `None` if the delivery is lost first; its handler is then dropped.
    async fn decide(
        &self,
        mut service: ErasedService,
        delivery: &Delivery,
        lost: impl Future<Output = ()>,
    ) -> Option<Disposition> {
        let mut lost = pin!(lost);
        if lost.as_mut().now_or_never().is_some() {
            return None;
        }
        if let Some(missing) = &delivery.history().read_without {
            return Some(Disposition::DeadLetter(Failure::new(Reason::MalformedHeaders, missing.clone())));
        }
        let unreadable = delivery.history().unreadable();
        // (An empty list allocates nothing.)
        if !unreadable.is_empty() {
            let text = format!("not readable: {}", unreadable.join(", "));
            return Some(Disposition::DeadLetter(Failure::new(Reason::MalformedHeaders, text)));
        }
        if *self.over.borrow() {
            return Some(Disposition::Release);
        }
        let _call = self.readiness.call();
        // Polls the handler first: a handler that completes at once does not wait for the end, and its result is remembered even
        // if the delivery is lost.
        let outcome = tokio::select! {
            biased;
            outcome = service.call(delivery.clone()) => outcome,
            () = &mut lost => return None,
            () = self.over() => return Some(Disposition::Release),
        };
        if outcome.is_ok() {
            self.put_back(service);
        }
        Some(outcome.unwrap_or_else(|error| {
            let undecided = panic::caught(|| Disposition::undecided(&error));
            undecided.unwrap_or_else(|_| {
                let failure = Failure::new(Reason::Undecided, "the error panics when it is shown");
                Disposition::DeadLetter(failure)
            })
        }))
    }

    async fn carry_out(
        &self,
        span: &Span,
        delivery: &Delivery,
        in_flight: &mut InFlight,
        receipt: ReceiptOf<T>,
        disposition: Disposition,
    ) -> Ended<ReceiptOf<T>> {
        let settlement = match disposition {
            // An acknowledgement needs no plan: this keeps the most frequent path short.
            Disposition::Ack => Settlement::Complete,
            _ => {
                let facts = self.signals.facts();
                let mut planning = self.planning(&facts);
                planning.trace = self.trace_of(span);
                Settlement::planned(delivery, &disposition, &planning)
            }
        };
        if settlement.leaves_history_out() && !self.is_asked_to_reject(&disposition) {
            self.cannot_copy(delivery, in_flight, &NO_ROOM);
        }
        let ended = match disposition {
            Disposition::Release => self.release_by(delivery, in_flight, receipt, settlement).await,
            _ => self.settle(delivery, in_flight, receipt, settlement).await,
        };
        match &ended {
            Ended::Settled | Ended::Due { .. } => {
                if let Ended::Settled = ended {
                    self.settled_at_last(delivery, in_flight);
                    if matches!(disposition, Disposition::Ack | Disposition::Discard(_)) {
                        self.report_handled(delivery);
                    }
                }
                let disposition = if in_flight.uncopied { disposition.without_copy() } else { disposition };
                self.tell_settled(delivery, in_flight, &disposition);
            }
            Ended::GivenBack => self.tell_settled(delivery, in_flight, &Disposition::Release),
            Ended::Lost => {
                if disposition != Disposition::Release {
                    self.handled_and_lost(in_flight.original.as_ref().unwrap_or(delivery));
                }
                self.lost(delivery, in_flight);
            }
        }
        ended
    }

    /// Tells the operator who redrove the message, if one waits for it. Nobody waits here: a report that is lost is lost.
    fn report_handled(&self, delivery: &Delivery) {
        if delivery.history().redrives == Count::Known(0) {
            return;
        }
        let Some(request) = ReportRequest::of(delivery.message()) else { return };
        let publisher = self.publisher.clone();
        tokio::spawn(async move {
            if let Err(error) = request.report(&publisher).await {
                tracing::debug!(%error, "not reported as handled");
            }
        });
    }

    fn is_asked_to_reject(&self, disposition: &Disposition) -> bool {
        matches!(disposition, Disposition::DeadLetter(_))
            && self.signals.facts().dead_letter == NativeDeadLetter::Preferred
    }

    /// Returns the copy that is due, if there is one. Otherwise the delivery is no longer held: if it is not done, the cache must
    /// not take it for done when it is redelivered.
    fn go_on(
        &self,
        delivery: &Delivery,
        mut in_flight: InFlight,
        ended: Ended<ReceiptOf<T>>,
    ) -> Option<Due<ReceiptOf<T>>> {
        if let Ended::Due { copy, receipt } = ended {
            in_flight.original.get_or_insert_with(|| delivery.clone());
            return Some((delivery.clone().replaced_by(copy, self.transport.now()), receipt, in_flight));
        }
        self.leave(&mut in_flight, SettledCache::comes_again);
        None
    }
}

fn is_poison(disposition: &Disposition) -> bool {
    disposition.failure().is_some_and(|failure| *failure.reason() == Reason::PoisonMessage)
}
