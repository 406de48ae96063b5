//! Handles and settles one delivery.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::shelves::ReportRequest;
use redrive_core::transport::{NativeDeadLetter, ReceiptOf, Received, Receiver, Settlement};
use redrive_core::{Count, Delivery, Disposition, Failure, Reason, TraceParent, Transport, engine, panic};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::health::Change;
use super::in_flight::{Alone, InFlight};
use super::settling::{Ended, Settling};
use super::shared::Shared;
use super::stacks::Stacks;
use super::{Event, telemetry};
use crate::redelivery::{Known, LedgerChange, Redelivery};
use crate::service::ErasedService;

/// Reason why a message cannot be copied, where that is known before trying.
const NO_ROOM: &str = "its headers leave no room for a copy";

/// A copy that could not be stored and is due now, with the original delivery's receipt and bookkeeping.
type Due<R> = (Delivery, R, InFlight);

/// Handles the deliveries of one consumer.
pub(crate) struct Attempts<T: Transport> {
    shared: Arc<Shared<T>>,
    redelivery: Arc<Redelivery>,
    stacks: Arc<Stacks<T>>,
    settling: Arc<Settling<T>>,
}

impl<T: Transport> Attempts<T> {
    pub(super) fn new(
        shared: Arc<Shared<T>>,
        redelivery: Arc<Redelivery>,
        stacks: Arc<Stacks<T>>,
        settling: Arc<Settling<T>>,
    ) -> Self {
        Self { shared, redelivery, stacks, settling }
    }

    /// Handles a delivery and settles it.
    pub(super) async fn work(&self, service: ErasedService, received: Received<ReceiptOf<T>>, alone: Alone) {
        fail_point(FailPoint::Received);
        let Received { delivery, receipt } = received;
        let delivery = engine::with_delivery_limit(delivery, self.shared.signals.delivery_limit())
            .with_publisher(self.shared.publisher.clone());
        let delivery = self.redelivery.with_losses(delivery, self.shared.transport.now());
        if let Some(reason) = delivery.put_back() {
            tracing::info!(
                message_id = delivery.id(),
                queue = self.shared.queue(),
                %reason,
                "another program moved this message from a shelf back to the work queue; it was shelved for this reason, and starts again with attempt 1"
            );
        }
        let (known, ticket) = self.redelivery.arrived(&delivery);
        let in_flight = InFlight { ticket, known, alone, ..InFlight::default() };
        if let Some(due) = self.work_once(service, delivery, receipt, in_flight).await {
            Box::pin(self.work_on(due)).await;
        }
    }

    /// Handles the unstored copy directly, again and again, until there is room for a copy or none is needed.
    async fn work_on(&self, due: Due<ReceiptOf<T>>) {
        let mut next = Some(due);
        while let Some((delivery, receipt, in_flight)) = next {
            let mut service = self.stacks.take();
            let ready = tokio::select! {
                ready = self.stacks.ready(&mut service) => ready.is_ok(),
                () = self.shared.over() => false,
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
        let span = telemetry::process_span(&delivery, self.shared.system);
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
            && let Some(wait_on) =
                Settlement::wait_on(&delivery, &self.shared.planning(&self.shared.signals.facts()))
        {
            tracing::debug!("not due yet: the message continues to wait");
            drop(service);
            if wait_on.leaves_history_out() {
                self.settling.cannot_copy(&delivery, &mut in_flight, &NO_ROOM);
            }
            let ended = self.settling.settle(&delivery, &mut in_flight, receipt, wait_on).await;
            if in_flight.uncopied && matches!(ended, Ended::Settled) {
                let disposition = Disposition::Snooze(Duration::ZERO).without_copy();
                self.shared.tell_settled(&delivery, &mut in_flight, &disposition);
            }
            return self.go_on(&delivery, in_flight, ended);
        }
        self.shared.tell(&Event::Received { delivery: &delivery });
        in_flight.handled = true;
        let mut begun = self.redelivery.begin(&delivery);
        if let Some(change) = self.redelivery.ledger_change() {
            self.shared.note(match change {
                LedgerChange::Failing => &Change::LedgerFailing,
                LedgerChange::Written => &Change::LedgerWritten,
            });
        }
        let began = (!self.shared.settings.observers.is_empty()).then(Instant::now);
        let lost = self.shared.receiver.lost(&receipt);
        let again = self.redelivery.handling_again(&delivery);
        let disposition = self.decide(service, &delivery, lost).await;
        drop(again);
        let Some(disposition) = disposition else {
            if let Some(begun) = &mut begun {
                begun.give_back();
            }
            tracing::warn!(
                message_id = delivery.id(),
                queue = self.shared.queue(),
                "lost while it was handled: the handler was dropped, and the message is redelivered; this does not count as an attempt"
            );
            self.redelivery.leave(&mut in_flight.ticket, Known::ComesAgain);
            drop(receipt);
            self.shared.tell_lost(&delivery, &mut in_flight);
            return None;
        };
        let disposition = self.redacted(disposition);
        if let Some(began) = began {
            let elapsed = began.elapsed();
            self.shared.tell(&Event::Decided { delivery: &delivery, disposition: &disposition, elapsed });
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
            queue = self.shared.queue(),
            "deduplicated: the message was already settled, and only its acknowledgement was lost"
        );
        if let Ended::Settled = self.settling.settle(delivery, in_flight, receipt, Settlement::Complete).await
        {
            self.redelivery.settled(in_flight.original.as_ref().unwrap_or(delivery));
            self.shared.counters.deduplicated();
            self.report_handled(delivery);
            self.shared.tell(&Event::Deduplicated { delivery });
        }
    }

    /// Gives back a delivery that no handler has begun with.
    pub(super) async fn release(&self, received: Received<ReceiptOf<T>>) {
        let Received { delivery, receipt } = received;
        // A release may store a copy with another copy number, which the cache would not recognize.
        let (known, ticket) = self.redelivery.arrived(&delivery);
        let mut in_flight = InFlight { ticket, known, ..InFlight::default() };
        if known {
            return self.settle_duplicate(&delivery, &mut in_flight, receipt).await;
        }
        self.give_back_unhandled(&delivery, in_flight, receipt).await;
    }

    /// Gives back a delivery whose handler is not to run.
    async fn give_back_unhandled(&self, delivery: &Delivery, mut in_flight: InFlight, receipt: ReceiptOf<T>) {
        self.carry_out(&Span::none(), delivery, &mut in_flight, receipt, Disposition::Release).await;
        self.redelivery.leave(&mut in_flight.ticket, Known::ComesAgain);
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
        if *self.shared.over.borrow() {
            return Some(Disposition::Release);
        }
        let _call = self.stacks.call();
        // Polls the handler first: a handler that completes at once does not wait for the end, and its result is remembered even
        // if the delivery is lost.
        let outcome = tokio::select! {
            biased;
            outcome = service.call(delivery.clone()) => outcome,
            () = &mut lost => return None,
            () = self.shared.over() => return Some(Disposition::Release),
        };
        if outcome.is_ok() {
            self.stacks.put_back(service);
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
                let facts = self.shared.signals.facts();
                let mut planning = self.shared.planning(&facts);
                planning.trace = self.trace_of(span);
                Settlement::planned(delivery, &disposition, &planning)
            }
        };
        if settlement.leaves_history_out() && !self.is_asked_to_reject(&disposition) {
            self.settling.cannot_copy(delivery, in_flight, &NO_ROOM);
        }
        let ended = match disposition {
            Disposition::Release => self.settling.release_by(delivery, in_flight, receipt, settlement).await,
            _ => self.settling.settle(delivery, in_flight, receipt, settlement).await,
        };
        match &ended {
            Ended::Settled | Ended::Due { .. } => {
                if let Ended::Settled = ended {
                    self.redelivery.settled(in_flight.original.as_ref().unwrap_or(delivery));
                    if matches!(disposition, Disposition::Ack | Disposition::Discard(_)) {
                        self.report_handled(delivery);
                    }
                }
                let disposition = if in_flight.uncopied { disposition.without_copy() } else { disposition };
                self.shared.tell_settled(delivery, in_flight, &disposition);
            }
            Ended::GivenBack => self.shared.tell_settled(delivery, in_flight, &Disposition::Release),
            Ended::Lost => {
                if disposition != Disposition::Release {
                    self.handled_and_lost(in_flight.original.as_ref().unwrap_or(delivery));
                }
                self.shared.tell_lost(delivery, in_flight);
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
        let publisher = self.shared.publisher.clone();
        tokio::spawn(async move {
            if let Err(error) = request.report(&publisher).await {
                tracing::debug!(%error, "the result of the message could not be reported to the run that waits for it");
            }
        });
    }

    fn is_asked_to_reject(&self, disposition: &Disposition) -> bool {
        matches!(disposition, Disposition::DeadLetter(_))
            && self.shared.signals.facts().dead_letter == NativeDeadLetter::Preferred
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
            return Some((
                engine::replaced_by(delivery.clone(), copy, self.shared.transport.now()),
                receipt,
                in_flight,
            ));
        }
        self.redelivery.leave(&mut in_flight.ticket, Known::ComesAgain);
        None
    }

    /// Counts a message that was handled, and lost before it could be settled.
    fn handled_and_lost(&self, delivery: &Delivery) {
        // Logged once per message. The first loss may just be a lost connection.
        if self.redelivery.handled_and_lost(delivery) == 2 {
            let held = self.shared.transport.now().duration_since(delivery.received_at()).unwrap_or_default();
            tracing::error!(
                queue = self.shared.queue(),
                message_id = delivery.id(),
                ?held,
                "handled twice, and lost both times before it could be settled: is the handler slower than the broker's limit \
                 for holding a message (the consumer timeout of RabbitMQ)? Give the handler a timeout, or raise that limit; the \
                 message is rejected as poison after the allowed number of deliveries"
            );
        }
    }

    fn redacted(&self, disposition: Disposition) -> Disposition {
        let Some(redactor) = &self.shared.settings.redactor else { return disposition };
        // A text must not be written without its redactor.
        let redactor = |text: &str| {
            panic::contained("the redactor", || redactor(text))
                .unwrap_or_else(|| "(withheld: the redactor panicked)".to_owned())
        };
        disposition.redacted_by(&redactor)
    }

    /// Joins the span of a delivery to the trace that its message carries.
    fn join(&self, span: &Span, delivery: &Delivery) {
        if let Some(tracer) = self.shared.settings.tracer.as_ref().filter(|_| !span.is_disabled()) {
            panic::contained("the tracer", || tracer.join(span, delivery));
        }
    }

    /// Returns the position of a span in its trace.
    fn trace_of(&self, span: &Span) -> Option<TraceParent> {
        let tracer = self.shared.settings.tracer.as_ref().filter(|_| !span.is_disabled())?;
        panic::contained("the tracer", || tracer.context(span)).flatten()
    }
}

fn is_poison(disposition: &Disposition) -> bool {
    disposition.failure().is_some_and(|failure| *failure.reason() == Reason::PoisonMessage)
}
