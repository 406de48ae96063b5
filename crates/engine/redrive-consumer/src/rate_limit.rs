//! Limits how many deliveries are handled in a time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use redrive_core::{Delivery, Disposition};
use tokio::time::{Instant, Sleep, sleep_until};
use tower_layer::Layer;
use tower_service::Service;

use crate::readiness::WaitsFor;

/// Resolution of timers: deliveries due within this time pass together.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);

/// Bound that keeps `Instant` arithmetic from overflowing.
const MAX_PERIOD: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// A layer that limits how many deliveries are handled in a time. Deliveries pass evenly spaced, except for the first
/// [`burst`](Self::burst). Clones share one limit: put one value in several consumers to limit them together.
///
/// It limits readiness: except for [prefetched](crate::Consumer::prefetch) deliveries, messages wait in the broker, and no attempt is
/// charged. Retries count like first attempts.
///
/// ```
/// use redrive_consumer::{Consumer, RateLimit};
/// use redrive_core::secs;
///
/// # async fn ship() {}
/// # fn example<T: redrive_core::Transport>(transport: T) {
/// // The carrier allows 100 calls in a second.
/// let consumer = Consumer::new(transport)
///     .with_dead_letter_backoff([secs(1), secs(10)])
///     .layer(RateLimit::new(100, secs(1)))
///     .handler(ship);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimit {
    spacing: Arc<Mutex<Spacing>>,
}

impl RateLimit {
    /// Allows at most this many deliveries (at least 1) in each period of this length.
    #[must_use]
    pub fn new(deliveries: u32, per: Duration) -> Self {
        let interval = per.min(MAX_PERIOD) / deliveries.max(1);
        Self {
            spacing: Arc::new(Mutex::new(Spacing {
                interval,
                burst: 1,
                ahead: TIMER_RESOLUTION,
                next: None,
            })),
        }
    }

    /// Lets this many deliveries (at least 1) pass at once after an idle time. Default: 1.
    ///
    /// One period may then have up to this many deliveries above the limit.
    #[must_use]
    pub fn burst(self, deliveries: u32) -> Self {
        self.with(|spacing| {
            spacing.burst = deliveries.max(1);
            let ahead = spacing.interval.saturating_mul(deliveries.saturating_sub(1));
            spacing.ahead = ahead.max(TIMER_RESOLUTION);
        });
        self
    }

    /// Limits nothing.
    #[cfg(feature = "config")]
    pub(crate) fn unlimited() -> Self {
        Self::new(1, Duration::ZERO)
    }

    fn with<R>(&self, change: impl FnOnce(&mut Spacing) -> R) -> R {
        change(&mut self.spacing.lock())
    }
}

/// The limit, without what it has let pass.
impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|Spacing { interval, burst, .. }| {
            write!(f, "1 every {}, up to {burst} at once", humantime::format_duration(*interval))
        })
    }
}

/// Computes when the next delivery may pass (the generic cell rate algorithm). Each permit is due one interval after the previous.
#[derive(Debug)]
struct Spacing {
    interval: Duration,
    burst: u32,
    /// How long before it is due a permit may be used.
    ahead: Duration,
    next: Option<Instant>,
}

impl Spacing {
    /// Takes a permit and returns the end of its interval. `Err`: when the next permit can be taken.
    fn take(&mut self, now: Instant) -> Result<Instant, Instant> {
        let next = self.next.map_or(now, |next| next.max(now));
        if next.duration_since(now) > self.ahead {
            return Err(next - self.ahead);
        }
        let end = next + self.interval;
        self.next = Some(end);
        Ok(end)
    }

    /// Records the use of a permit whose interval ends at `end`. A permit that was held past its interval gives no credit: the delivery
    /// counts from now.
    fn use_permit(&mut self, end: Instant, now: Instant) {
        if now >= end {
            self.next = Some(self.next.map_or(now, |next| next.max(now)) + self.interval);
        }
    }

    /// Returns an unused permit whose interval ends at `end`.
    fn give_back(&mut self, end: Instant, now: Instant) {
        if now < end {
            self.next = self.next.and_then(|next| next.checked_sub(self.interval));
        }
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, limit: self.clone(), permitted_until: None, waiting: None }
    }
}

/// A service with a [`RateLimit`] around it.
#[derive(Debug)]
pub struct RateLimited<S> {
    inner: S,
    limit: RateLimit,
    permitted_until: Option<Instant>,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: Clone> Clone for RateLimited<S> {
    fn clone(&self) -> Self {
        self.limit.layer(self.inner.clone())
    }
}

impl<S> Drop for RateLimited<S> {
    fn drop(&mut self) {
        // Ready, but never called.
        if let Some(end) = self.permitted_until {
            self.limit.with(|spacing| spacing.give_back(end, Instant::now()));
        }
    }
}

impl<S> Service<Delivery> for RateLimited<S>
where
    S: Service<Delivery, Response = Disposition>,
{
    type Response = Disposition;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        while self.permitted_until.is_none() {
            if let Some(waiting) = &mut self.waiting {
                if waiting.as_mut().poll(cx).is_pending() {
                    WaitsFor::RateLimit.name();
                    return Poll::Pending;
                }
                self.waiting = None;
            }
            match self.limit.with(|spacing| spacing.take(Instant::now())) {
                Ok(end) => self.permitted_until = Some(end),
                Err(usable) => self.waiting = Some(Box::pin(sleep_until(usable))),
            }
        }
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, delivery: Delivery) -> S::Future {
        if let Some(end) = self.permitted_until.take() {
            self.limit.with(|spacing| spacing.use_permit(end, Instant::now()));
        }
        self.inner.call(delivery)
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use tower::ServiceExt;

    use super::*;
    use redrive_core::{BoxError, Message, millis, secs};

    /// Takes every permit until `end`, and returns when each was taken.
    fn taken_until(limit: &RateLimit, begin: Instant, end: Instant) -> Vec<Duration> {
        let mut taken = Vec::new();
        let mut now = begin;
        while now < end {
            match limit.with(|spacing| spacing.take(now)) {
                Ok(_) => taken.push(now - begin),
                Err(usable) => now = usable,
            }
        }
        taken
    }

    #[test]
    fn permits_are_evenly_spaced() {
        let begin = Instant::now();
        let taken = taken_until(&RateLimit::new(10, secs(1)), begin, begin + secs(1));
        assert_eq!(taken.len(), 11, "the first at once, and then one in each tenth: {taken:?}");
        assert!(taken.windows(2).skip(1).all(|pair| pair[1] - pair[0] == millis(100)), "{taken:?}");
    }

    #[test]
    fn more_than_timers_can_tell_apart_are_not_lost() {
        let begin = Instant::now();
        let taken = taken_until(&RateLimit::new(100_000, secs(1)), begin, begin + secs(1));
        assert!((100_000..=100_101).contains(&taken.len()), "{}", taken.len());
    }

    #[test]
    fn a_burst_passes_at_once_and_comes_back_with_time() {
        let limit = RateLimit::new(10, secs(1)).burst(5);
        let begin = Instant::now();
        let at_once = |begin| taken_until(&limit, begin, begin + Duration::from_nanos(1)).len();
        assert_eq!(at_once(begin), 5);
        assert_eq!(at_once(begin + millis(200)), 2);
        assert_eq!(at_once(begin + secs(60)), 5, "not more, however long nobody came");
    }

    #[test]
    fn a_permit_that_is_not_used_is_there_for_the_next() {
        let limit = RateLimit::new(1, secs(1));
        let now = Instant::now();
        let take = || limit.with(|spacing| spacing.take(now));
        let end = take().expect("the first");
        assert!(take().is_err());
        limit.with(|spacing| spacing.give_back(end, now));
        assert!(take().is_ok() && take().is_err());
    }

    /// The intake of a consumer holds a permit while its queue is empty.
    #[tokio::test(start_paused = true)]
    async fn a_permit_that_was_held_for_long_is_not_one_more() {
        let limit = RateLimit::new(1, secs(1));
        let service =
            || limit.layer(tower::service_fn(async |_: Delivery| Ok::<_, BoxError>(Disposition::Ack)));
        let mut idle = service();
        idle.ready().await.expect("ready");
        tokio::time::advance(secs(3600)).await;
        let used = Instant::now();
        let _ = idle.call(Delivery::new(Message::new(""), "q", UNIX_EPOCH)).await.expect("handled");
        idle.ready().await.expect("ready");
        assert!(used.elapsed() >= millis(990), "evenly spaced: {:?}", used.elapsed());

        tokio::time::advance(secs(3600)).await;
        let mut other = service();
        other.ready().await.expect("ready");
        drop(idle);
        let left = Instant::now();
        service().ready().await.expect("ready");
        assert!(left.elapsed() >= millis(990), "nothing was given back: {:?}", left.elapsed());
    }

    #[test]
    fn no_limit_panics() {
        let now = Instant::now();
        for limit in
            [RateLimit::new(0, Duration::MAX / 2), RateLimit::new(u32::MAX, Duration::ZERO).burst(u32::MAX)]
        {
            let _ = limit.with(|spacing| spacing.take(now));
            let _ = limit.with(|spacing| spacing.take(now));
        }
    }
}
