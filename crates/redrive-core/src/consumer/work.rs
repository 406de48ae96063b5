//! One delivery, from received to settled.

use std::fmt::Display;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::guarded_count::GuardedCount;
use super::isolate::Alone;
use super::ledger::Ledger;
use super::losses::Losses;
use super::recent::{SettledCache, Ticket};
use super::report::Counters;
use super::settle::Ended;
use super::suspects::Rule;
use super::told::Told;
use super::{Event, Settings, telemetry};
use crate::delivery::Delivery;
use crate::disposition::Disposition;
use crate::fail_point::{FailPoint, fail_point};
use crate::failure::{Failure, Reason};
use crate::handler::panic;
use crate::publisher::Publisher;
use crate::service::ErasedService;
use crate::settlement::{Planning, Settlement};
use crate::transport::{Facts, NativeDeadLetter, ReceiptOf, Received, Receiver, Transport};

/// Why a message cannot be copied, where that is known before it is tried.
const NO_ROOM: &str = "its headers leave no room for a copy";

/// What all deliveries of one consumer share.
pub(crate) struct Context<T: Transport> {
    transport: Arc<T>,
    pub(crate) receiver: T::Receiver,
    publisher: Publisher,
    pub(crate) told: Arc<Told>,
    /// The broker's name.
    system: &'static str,
    pub(crate) settings: Settings,
    pub(crate) counters: Counters,
    pub(crate) recent: Option<Mutex<SettledCache>>,
    losses: Mutex<Losses>,
    /// There was ever one.
    any_lost: AtomicBool,
    pub(crate) rule: Rule,
    /// The consumer begins with one delivery in hand.
    pub(crate) narrowed: bool,
    pub(crate) ledger: Option<Ledger>,
    /// How many deliveries are in hand whose copies cannot be stored. While there is one, no more are taken.
    pub(crate) trouble: GuardedCount,
    /// What was handled alone stays in hand.
    pub(crate) held: Notify,
    /// How many stay in hand, their handlers done.
    pub(crate) on_hold: GuardedCount,
    /// Somebody who has a message waits for a stack that is ready.
    pub(crate) stack_wanted: Notify,
    /// True once the grace period of the shutdown is over.
    pub(crate) over: watch::Sender<bool>,
    /// The stack, and clones of it that have done a call, for the next one.
    stacks: Mutex<Vec<ErasedService>>,
}

/// What is kept of a delivery until it is settled.
#[derive(Default)]
pub(crate) struct InHand {
    /// Until it is known what became of it.
    pub(crate) ticket: Option<Ticket>,
    /// It is done, and only its acknowledgement was lost.
    known: bool,
    /// While it is handled alone.
    pub(crate) alone: Alone,
    /// What the broker knows it as, where it is handled from the hand.
    original: Option<Delivery>,
    /// What was decided needs a copy, and there can be none: the broker moves it to the dead-letter shelf as it is.
    pub(crate) uncopied: bool,
}

/// A copy that was not stored and is due now, with what is in hand for it.
type Due<R> = (Delivery, R, InHand);

impl<T: Transport> Context<T> {
    pub(crate) fn new(
        transport: Arc<T>,
        (receiver, told): (T::Receiver, Arc<Told>),
        service: ErasedService,
        settings: Settings,
        (rule, narrowed): (Rule, bool),
        ledger: Option<Ledger>,
    ) -> Self {
        let facts = told.facts();
        let most_in_hand = facts.limits.in_hand.unwrap_or(0).max(settings.needs.prefetch) as usize;
        Self {
            system: facts.system,
            publisher: transport.publisher(),
            transport,
            receiver,
            told,
            losses: Mutex::default(),
            any_lost: AtomicBool::new(false),
            rule,
            narrowed,
            ledger,
            counters: Counters::default(),
            recent: settings
                .remembered()
                .map(|capacity| Mutex::new(SettledCache::new(capacity, most_in_hand))),
            trouble: GuardedCount::new(),
            held: Notify::new(),
            on_hold: GuardedCount::new(),
            stack_wanted: Notify::new(),
            over: watch::Sender::new(false),
            stacks: Mutex::new(vec![service]),
            settings,
        }
    }

    /// Handles a delivery and settles it.
    pub(crate) async fn work(&self, service: ErasedService, received: Received<ReceiptOf<T>>, alone: Alone) {
        fail_point(FailPoint::Received);
        let Received { delivery, receipt } = received;
        let delivery = delivery.with_hand_out_limit(self.told.hand_out_limit());
        let delivery = delivery.with_publisher(self.publisher.clone());
        let delivery = self.with_losses(delivery);
        let (known, ticket) = self.arrived(&delivery);
        let in_hand = InHand { ticket, known, alone, ..InHand::default() };
        if let Some(due) = self.work_once(service, delivery, receipt, in_hand).await {
            Box::pin(self.work_on(due)).await;
        }
    }

    /// Handles it from the hand, until there is room for a copy, or no more copies are needed.
    async fn work_on(&self, due: Due<ReceiptOf<T>>) {
        let mut next = Some(due);
        while let Some((delivery, receipt, in_hand)) = next {
            let mut service = self.stack();
            self.stack_wanted.notify_one();
            let ready = tokio::select! {
                ready = service.ready() => ready.is_ok(),
                () = self.over() => false,
            };
            if !ready {
                // The loop has the same stack, and ends with its error.
                self.carry_out(&delivery, in_hand, receipt, Disposition::Release).await;
                return;
            }
            next = self.work_once(service, delivery, receipt, in_hand).await;
        }
    }

    async fn work_once(
        &self,
        service: ErasedService,
        delivery: Delivery,
        receipt: ReceiptOf<T>,
        in_hand: InHand,
    ) -> Option<Due<ReceiptOf<T>>> {
        let span = telemetry::span(&delivery, self.system);
        if span.is_disabled() {
            self.work_within(&span, service, delivery, receipt, in_hand).await
        } else {
            let within = self.work_within(&span, service, delivery, receipt, in_hand);
            Box::pin(within).instrument(span.clone()).await
        }
    }

    async fn work_within(
        &self,
        span: &Span,
        service: ErasedService,
        delivery: Delivery,
        receipt: ReceiptOf<T>,
        mut in_hand: InHand,
    ) -> Option<Due<ReceiptOf<T>>> {
        if in_hand.known {
            self.settle_on_sight(&delivery, &mut in_hand, receipt).await;
            return None;
        }
        if delivery.story().not_before.is_some()
            && let Some(wait_on) = Settlement::wait_on(&delivery, &self.planning(&self.told.facts()))
        {
            tracing::debug!("not due yet: waits on");
            if wait_on == Settlement::Reject {
                self.cannot_copy(&mut in_hand, &NO_ROOM);
            }
            let ended = self.settle(&delivery, &mut in_hand, receipt, wait_on).await;
            if in_hand.uncopied && matches!(ended, Ended::Settled) {
                self.tell_settled(&delivery, &Disposition::Snooze(Duration::ZERO).without_copy());
            }
            return self.go_on(&delivery, in_hand, ended);
        }
        self.tell(&Event::Received { delivery: &delivery });
        let mut begun = self.ledger.as_ref().map(|ledger| ledger.begin(&delivery));
        let began = (!self.settings.observers.is_empty()).then(Instant::now);
        let lost = self.receiver.lost(&receipt);
        let Some(disposition) = self.decide(service, &delivery, lost).await else {
            if let Some(begun) = &mut begun {
                begun.give_back();
            }
            tracing::warn!(
                "lost while it was handled: the handler was dropped, and the message comes again, uncharged"
            );
            self.leave(&mut in_hand, SettledCache::comes_again);
            drop(receipt);
            self.lost(&delivery);
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
        // What was turned away stays counted until it is on its shelf.
        let begun = begun.filter(|_| is_poison(&disposition));
        let due = self.carry_out(&delivery, in_hand, receipt, disposition).await;
        drop(begun);
        due
    }

    async fn settle_on_sight(&self, delivery: &Delivery, in_hand: &mut InHand, receipt: ReceiptOf<T>) {
        tracing::info!("settled on sight: it was settled before, and only its acknowledgement was lost");
        if let Ended::Settled = self.settle(delivery, in_hand, receipt, Settlement::Complete).await {
            self.settled_at_last(delivery, in_hand);
            self.counters.settled_on_sight();
            self.tell(&Event::SettledOnSight { delivery });
        }
    }

    /// Gives back a delivery that no handler has begun with.
    pub(crate) async fn release(&self, received: Received<ReceiptOf<T>>) {
        let Received { delivery, receipt } = received;
        // Given back as a copy it would be one hop further, and nobody would know it again.
        let (known, ticket) = self.arrived(&delivery);
        let mut in_hand = InHand { ticket, known, ..InHand::default() };
        if known {
            return self.settle_on_sight(&delivery, &mut in_hand, receipt).await;
        }
        self.carry_out(&delivery, in_hand, receipt, Disposition::Release).await;
    }

    /// What becomes of it; `None` when it is lost before that is decided: its handler is dropped then.
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
        if let Some(missing) = &delivery.story().read_without {
            return Some(Disposition::DeadLetter(Failure::new(Reason::MalformedHeaders, missing.clone())));
        }
        let unreadable = delivery.story().unreadable();
        // (An empty list takes no memory.)
        if !unreadable.is_empty() {
            let text = format!("no count can be read from: {}", unreadable.join(", "));
            return Some(Disposition::DeadLetter(Failure::new(Reason::MalformedHeaders, text)));
        }
        if *self.over.borrow() {
            return Some(Disposition::Release);
        }
        // The handler first: one that is done at once does not wait for the end, and what it came to is remembered also
        // where the delivery is lost.
        let outcome = tokio::select! {
            biased;
            outcome = service.call(delivery.clone()) => outcome,
            () = &mut lost => return None,
            () = self.over() => return Some(Disposition::Release),
        };
        if outcome.is_ok() {
            self.stacks().push(service);
        }
        // Without a layer that decides about errors nothing says that another attempt would go better.
        Some(outcome.unwrap_or_else(|error| {
            let failure = panic::caught(|| Failure::from_error(Reason::Undecided, &*error));
            let cannot_be_shown = |_| Failure::new(Reason::Undecided, "the error panics when it is shown");
            Disposition::DeadLetter(failure.unwrap_or_else(cannot_be_shown))
        }))
    }

    async fn carry_out(
        &self,
        delivery: &Delivery,
        mut in_hand: InHand,
        receipt: ReceiptOf<T>,
        disposition: Disposition,
    ) -> Option<Due<ReceiptOf<T>>> {
        let settlement = match disposition {
            // Nothing to plan: the way that most messages go is kept short.
            Disposition::Ack => Settlement::Complete,
            _ => Settlement::planned(delivery, &disposition, &self.planning(&self.told.facts())),
        };
        if settlement == Settlement::Reject && !self.is_asked_to_reject(&disposition) {
            self.cannot_copy(&mut in_hand, &NO_ROOM);
        }
        let ended = match disposition {
            Disposition::Release => self.release_by(delivery, &mut in_hand, receipt, settlement).await,
            _ => self.settle(delivery, &mut in_hand, receipt, settlement).await,
        };
        match &ended {
            Ended::Settled | Ended::Due { .. } => {
                if let Ended::Settled = ended {
                    self.settled_at_last(delivery, &in_hand);
                }
                let disposition = if in_hand.uncopied { disposition.without_copy() } else { disposition };
                self.tell_settled(delivery, &disposition);
            }
            Ended::GivenBack => self.tell_settled(delivery, &Disposition::Release),
            Ended::Lost => {
                if disposition != Disposition::Release {
                    self.handled_and_lost(in_hand.original.as_ref().unwrap_or(delivery));
                }
                self.lost(delivery);
            }
        }
        self.go_on(delivery, in_hand, ended)
    }

    fn tell_settled(&self, delivery: &Delivery, disposition: &Disposition) {
        self.counters.settled(disposition);
        self.tell(&Event::Settled { delivery, disposition });
    }

    fn is_asked_to_reject(&self, disposition: &Disposition) -> bool {
        matches!(disposition, Disposition::DeadLetter(_))
            && self.told.facts().dead_letter == NativeDeadLetter::Preferred
    }

    pub(crate) fn cannot_copy(&self, in_hand: &mut InHand, why: &dyn Display) {
        tracing::error!(%why, "the message cannot be copied: it goes to the dead-letter shelf without its story");
        in_hand.uncopied = true;
    }

    /// With the copy that is due, if there is one. Else it is out of hand: what was not done is not taken for done when it
    /// comes again.
    fn go_on(
        &self,
        delivery: &Delivery,
        mut in_hand: InHand,
        ended: Ended<ReceiptOf<T>>,
    ) -> Option<Due<ReceiptOf<T>>> {
        if let Ended::Due { copy, receipt } = ended {
            in_hand.original.get_or_insert_with(|| delivery.clone());
            return Some((delivery.clone().replaced_by(copy, self.transport.now()), receipt, in_hand));
        }
        self.leave(&mut in_hand, SettledCache::comes_again);
        None
    }

    /// What was handled and lost, again and again, was handed out as often, whatever the broker counts.
    fn with_losses(&self, delivery: Delivery) -> Delivery {
        if !delivery.redelivered() {
            return delivery;
        }
        let times = self.losses().times(&delivery);
        if times == 0 { delivery } else { delivery.handed_out_at_least(times.saturating_add(1)) }
    }

    fn handled_and_lost(&self, delivery: &Delivery) {
        self.any_lost.store(true, Ordering::Relaxed);
        let times = self.losses().note(delivery);
        // Once for each message: the first time may be a connection that was cut.
        if times == 2 {
            let held = self.transport.now().duration_since(delivery.received_at()).unwrap_or_default();
            tracing::error!(
                queue = self.queue(),
                id = delivery.id(),
                ?held,
                "handled twice, and lost both times before it could be settled: is the handler slower than the broker's limit \
                 for holding a message (the consumer timeout of RabbitMQ)? Give the handler a timeout, or raise that limit; the \
                 message is turned away as poison after as many hand-outs as are allowed"
            );
        }
    }

    fn settled_at_last(&self, delivery: &Delivery, in_hand: &InHand) {
        if self.any_lost.load(Ordering::Relaxed) {
            self.losses().forget(in_hand.original.as_ref().unwrap_or(delivery));
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, delivery: &Delivery) {
        self.counters.lost();
        self.tell(&Event::Lost { delivery });
    }

    /// Resolves once the grace period of the shutdown is over.
    pub(crate) async fn over(&self) {
        // The sender is our own: it cannot be gone.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }

    /// A clone of the stack, not ready for a call; one that has done a call where there is one.
    pub(crate) fn stack(&self) -> ErasedService {
        let mut stacks = self.stacks();
        if stacks.len() > 1
            && let Some(spare) = stacks.pop()
        {
            return spare;
        }
        stacks[0].clone()
    }

    fn stacks(&self) -> MutexGuard<'_, Vec<ErasedService>> {
        self.stacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tell(&self, event: &Event<'_>) {
        for observer in &self.settings.observers {
            panic::contained("an observer", || observer.observe(event));
        }
    }

    /// Whether it is done, and only its acknowledgement was lost.
    pub(crate) fn knows(&self, delivery: &Delivery) -> bool {
        // Nothing else is ever looked up, and most are not.
        delivery.redelivered()
            && self.recent_for(delivery).is_some_and(|recent| recent.knows(delivery, Instant::now()))
    }

    /// It is in hand from now on; answers whether it is done.
    fn arrived(&self, delivery: &Delivery) -> (bool, Option<Ticket>) {
        self.recent_for(delivery).map_or((false, None), |mut recent| recent.arrived(delivery, Instant::now()))
    }

    fn recent_for(&self, delivery: &Delivery) -> Option<MutexGuard<'_, SettledCache>> {
        let mut recent = self.recent.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.is_first_with(delivery) {
            let (resumed, unreceived) = self.told.take_interruption();
            recent.interrupted(delivery.interruptions(), unreceived.as_deref(), resumed);
        }
        Some(recent)
    }

    /// The name of what is consumed.
    pub(crate) fn queue(&self) -> &str {
        self.transport.queue()
    }

    /// How many deliveries the broker may hand out at first: one shows whether a process died before, and nothing else is in
    /// hand until then.
    pub(crate) fn limit_at_first(&self) -> u32 {
        if self.narrowed { 1 } else { self.settings.needs.prefetch }
    }

    /// Parts from the broker.
    pub(crate) async fn close(&self) {
        self.transport.close().await;
    }

    fn planning<'a>(&self, facts: &'a Facts) -> Planning<'a> {
        Planning { now: self.transport.now(), facts, header_budget: self.settings.header_budget }
    }

    fn redacted(&self, disposition: Disposition) -> Disposition {
        let Some(redactor) = &self.settings.redactor else { return disposition };
        // Without its redactor a text is not fit to be written.
        let redactor = |text: &str| {
            panic::contained("the redactor", || redactor(text))
                .unwrap_or_else(|| "(withheld: the redactor panicked)".to_owned())
        };
        let redact = |failure: Failure| failure.redacted_by(&redactor);
        match disposition {
            Disposition::Retry(wait, failure) => Disposition::Retry(wait, redact(failure)),
            Disposition::DeadLetter(failure) => Disposition::DeadLetter(redact(failure)),
            Disposition::Park(failure) => Disposition::Park(redact(failure)),
            Disposition::Discard(failure) => Disposition::Discard(redact(failure)),
            other => other,
        }
    }
}

fn is_poison(disposition: &Disposition) -> bool {
    disposition.failure().is_some_and(|failure| *failure.reason() == Reason::PoisonMessage)
}
