//! Maps each event of a consumer to changes of metrics, in the same way for every adapter.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

use redrive_consumer::Event;
use redrive_core::{Disposition, Reason};

use crate::catalog::Id;
use crate::reasons::Reasons;

/// The instruments of one consumer, which an adapter implements.
pub(crate) trait Instruments: Send + Sync {
    /// Adds one to a counter. `label`: the value of its label besides the queue, if it has one.
    fn count(&self, id: Id, label: &str);
    /// Records a value in a histogram.
    fn record(&self, id: Id, value: f64);
    /// Changes a gauge.
    fn shift(&self, id: Id, by: i64);
    /// Records how long handling a delivery took, and why it failed.
    fn handled(&self, seconds: f64, reason: Option<&str>) {
        let _ = reason;
        self.record(Id::HandlerDuration, seconds);
    }
}

/// One consumer, and its instruments.
pub(crate) struct Watch<I>(OnceLock<Watched<I>>);

struct Watched<I> {
    instruments: I,
    reasons: Reasons,
    running: AtomicBool,
    in_flight: AtomicI64,
    paused: AtomicBool,
    blocked: AtomicBool,
    interrupted: AtomicBool,
    partly_interrupted: AtomicBool,
    not_ready: AtomicBool,
    isolated: AtomicBool,
}

impl<I> Default for Watch<I> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<I: Instruments> Watch<I> {
    /// Applies this event to the instruments. `instruments` creates them, for a queue of a system, when the consumer starts.
    pub(crate) fn observe(&self, event: &Event<'_>, instruments: impl FnOnce(&str, &'static str) -> I) {
        if let Event::Started { queue, system } = *event {
            self.0.get_or_init(|| Watched::new(instruments(queue, system)));
        }
        if let Some(watched) = self.0.get() {
            watched.observe(event);
        }
    }
}

impl<I: Instruments> Watched<I> {
    fn new(instruments: I) -> Self {
        Self {
            instruments,
            reasons: Reasons::default(),
            running: AtomicBool::new(false),
            in_flight: AtomicI64::new(0),
            paused: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            partly_interrupted: AtomicBool::new(false),
            not_ready: AtomicBool::new(false),
            isolated: AtomicBool::new(false),
        }
    }

    fn observe(&self, event: &Event<'_>) {
        let instruments = &self.instruments;
        match *event {
            Event::Started { .. } => self.switch(Id::Running, &self.running, true),
            Event::Received { .. } => {
                instruments.count(Id::Received, "");
                self.in_flight(1);
            }
            Event::Decided { disposition, elapsed, .. } => {
                let reason = disposition.failure().map(|failure| self.reasons.label(failure.reason()));
                instruments.handled(elapsed.as_secs_f64(), reason);
            }
            Event::Settled { delivery, disposition, at, handled, .. } => {
                instruments.count(Id::Processed, disposition.name());
                self.decided(disposition);
                if disposition.is_final() {
                    instruments.record(Id::Age, delivery.age(at).as_secs_f64());
                    instruments.record(Id::Attempts, f64::from(delivery.attempt()));
                }
                self.in_flight(-i64::from(handled));
            }
            Event::Lost { handled, .. } => {
                instruments.count(Id::Lost, "");
                self.in_flight(-i64::from(handled));
            }
            Event::Deduplicated { .. } => instruments.count(Id::Deduplicated, ""),
            Event::NotSettled { .. } => instruments.count(Id::SettlementFailures, ""),
            Event::IsolationBegan { .. } => self.switch(Id::IsolationActive, &self.isolated, true),
            Event::IsolationEnded { .. } => self.switch(Id::IsolationActive, &self.isolated, false),
            Event::IntakePaused { .. } => self.pause(&self.blocked, &self.paused, true),
            Event::IntakeResumed { .. } => self.pause(&self.blocked, &self.paused, false),
            Event::Paused { .. } => self.pause(&self.paused, &self.blocked, true),
            Event::Resumed { .. } => self.pause(&self.paused, &self.blocked, false),
            Event::Interrupted { partly, .. } => self.interrupt(!partly, partly),
            Event::Recovered { .. } => self.interrupt(false, false),
            Event::NotReady { .. } => self.switch(Id::IntakeNotReady, &self.not_ready, true),
            Event::Ready { .. } => self.switch(Id::IntakeNotReady, &self.not_ready, false),
            Event::Stopped { .. } => self.stopped(),
            _ => {}
        }
    }

    fn decided(&self, disposition: &Disposition) {
        let reason = || disposition.failure().map_or("", |failure| self.reasons.label(failure.reason()));
        match disposition {
            Disposition::Retry(_, failure) => self.instruments.count(Id::Retried, class(failure.reason())),
            Disposition::DeadLetter(_) => self.instruments.count(Id::DeadLettered, reason()),
            Disposition::Park(_) => self.instruments.count(Id::Parked, reason()),
            Disposition::Release => self.instruments.count(Id::Released, ""),
            _ => {}
        }
    }

    /// Never below 0: a handler that blocks its thread may end after its consumer, which has taken it off already.
    fn in_flight(&self, by: i64) {
        let change = |now: i64| Some(now + by).filter(|&then| then >= 0);
        if by != 0 && self.in_flight.fetch_update(Relaxed, Relaxed, change).is_ok() {
            self.instruments.shift(Id::InFlight, by);
        }
    }

    /// Sets one of the two reasons for a pause; a consumer may be paused for both.
    fn pause(&self, reason: &AtomicBool, other: &AtomicBool, on: bool) {
        if other.load(Relaxed) {
            reason.store(on, Relaxed);
        } else {
            self.switch(Id::IntakePaused, reason, on);
        }
    }

    /// Sets whether nothing can be received, and whether one of several queues cannot be received from.
    fn interrupt(&self, wholly: bool, partly: bool) {
        self.switch(Id::IntakeInterrupted, &self.interrupted, wholly);
        self.switch(Id::IntakePartlyInterrupted, &self.partly_interrupted, partly);
    }

    fn switch(&self, id: Id, state: &AtomicBool, on: bool) {
        let by = i64::from(on) - i64::from(state.swap(on, Relaxed));
        if by != 0 {
            self.instruments.shift(id, by);
        }
    }

    /// Resets all gauges: the consumer has ended.
    fn stopped(&self) {
        self.switch(Id::Running, &self.running, false);
        self.instruments.shift(Id::InFlight, -self.in_flight.swap(0, Relaxed));
        self.pause(&self.blocked, &self.paused, false);
        self.pause(&self.paused, &self.blocked, false);
        self.interrupt(false, false);
        self.switch(Id::IntakeNotReady, &self.not_ready, false);
        self.switch(Id::IsolationActive, &self.isolated, false);
    }
}

/// Returns the value of the label `class`.
fn class(reason: &Reason) -> &'static str {
    match reason {
        Reason::RetryableError => "transient",
        Reason::ThrottledError => "throttled",
        _ => "custom",
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use parking_lot::Mutex;
    use redrive_core::{Delivery, Message, TransportError, TransportErrorKind};

    use super::*;

    /// The sums of all changes of the gauges.
    #[derive(Default)]
    struct Gauges(Mutex<Vec<(Id, i64)>>);

    impl Gauges {
        fn value(&self, of: Id) -> i64 {
            self.0.lock().iter().filter(|(id, _)| *id == of).map(|(_, by)| by).sum()
        }
    }

    impl Instruments for &Gauges {
        fn count(&self, _: Id, _: &str) {}
        fn record(&self, _: Id, _: f64) {}
        fn shift(&self, id: Id, by: i64) {
            self.0.lock().push((id, by));
        }
    }

    /// If a handler blocks its thread, the end of its delivery is not reported.
    #[test]
    fn a_delivery_whose_end_is_not_reported_is_in_flight_until_its_consumer_has_ended() {
        let gauges = Gauges::default();
        let watch = Watch::default();
        let tell = |event: Event<'_>| watch.observe(&event, |_, _| &gauges);
        let delivery = Delivery::new(Message::new(""), "orders", SystemTime::UNIX_EPOCH);
        tell(Event::Started { queue: "orders", system: "test" });
        tell(Event::Received { delivery: &delivery });
        assert_eq!(gauges.value(Id::InFlight), 1);
        tell(Event::Stopped { queue: "orders", error: None });
        assert_eq!(gauges.value(Id::InFlight), 0);
        // Its thread comes back.
        tell(Event::Lost { delivery: &delivery, handled: true });
        assert_eq!(gauges.value(Id::InFlight), 0);
    }

    #[test]
    fn one_queue_of_several_that_is_refused_is_told_from_a_consumer_that_cannot_receive() {
        let gauges = Gauges::default();
        let watch = Watch::default();
        let tell = |event: Event<'_>| {
            watch.observe(&event, |_, _| &gauges);
            (gauges.value(Id::IntakeInterrupted), gauges.value(Id::IntakePartlyInterrupted))
        };
        let error = TransportError::new(TransportErrorKind::Topology, "disabled");
        let interrupted = |partly| Event::Interrupted { queue: "orders", error: &error, partly };
        tell(Event::Started { queue: "orders", system: "test" });
        assert_eq!(tell(interrupted(true)), (0, 1));
        assert_eq!(tell(interrupted(false)), (1, 0));
        assert_eq!(tell(interrupted(true)), (0, 1));
        assert_eq!(tell(Event::Recovered { queue: "orders", after: Duration::ZERO }), (0, 0));
        tell(interrupted(true));
        assert_eq!(tell(Event::Stopped { queue: "orders", error: None }), (0, 0));
    }
}
