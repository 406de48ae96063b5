//! The task that owns the subscription, and subscribes again when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::text::plural;
use redrive_core::{Delivery, TransportError, TransportErrorKind};
use redrive_transport::{ReconnectBackoff, Source, Wishes};
use tokio::time::timeout;
use tracing::{error, warn};

use super::arrivals::{Arrived, Flow};
use super::idle::IdleWatch;
use super::prefetch::Sizing;
use super::subscription::{CANCEL_TIMEOUT, Over, Subscription};
use crate::connection::LONGEST_BACKOFF;
use crate::shared::Shared;
use crate::topology;

/// Without a subscription, the deletion of a queue goes unnoticed: after this time the queues are prepared again.
const UNWATCHED: Duration = Duration::from_secs(1);
/// After a subscription that lived this long, the next one is not delayed.
const GOOD_AFTER: Duration = Duration::from_secs(5);
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Keeps a subscription, whose deliveries flow into the inbox, until it is told to end.
pub(crate) async fn run(shared: Arc<Shared>, mut source: Source<Arrived>) {
    let mut intake = Intake {
        sizing: None,
        idle: IdleWatch::every(shared.options.idle_check),
        cut: false,
        interruptions: shared.deliveries.interruptions(),
        unreceived: Vec::new(),
        shared: &shared,
    };
    let mut backoff = ReconnectBackoff::up_to(LONGEST_BACKOFF);
    let (mut ended_by_broker, mut unwatched_since) = (false, Instant::now());
    while let Some(limit) = source.wanted().await {
        let trusted = !ended_by_broker && unwatched_since.elapsed() < UNWATCHED;
        let mut wishes = source.wishes();
        let prefetch = intake.prefetch(limit);
        let subscribed = Subscription::begin(&shared, trusted, prefetch, (&mut wishes, limit)).await;
        let pause = match subscribed {
            None => continue,
            Some(Ok(mut subscription)) => {
                ended_by_broker = false;
                intake.send_interruption(&source, &subscription);
                shared.facts.send_connection(Ok(()));
                let since = Instant::now();
                let ended = intake.take(&source, &mut wishes, limit, &mut subscription).await;
                unwatched_since = Instant::now();
                if since.elapsed() > GOOD_AFTER {
                    backoff.reset();
                }
                let Some(ended) = ended else { continue };
                ended_by_broker = true;
                let epoch = subscription.channel.epoch();
                let why = intake.after_cut(&source, subscription, ended).await;
                let pause = backoff.next_wait();
                warn!(queue = %shared.queue(), epoch, %why, ?pause, "intake interrupted");
                let interrupted = TransportError::new(
                    TransportErrorKind::Unreachable,
                    format!("the subscription to queue `{}` ended: {why}", shared.queue()),
                );
                shared.facts.send_connection(Err(interrupted));
                pause
            }
            // Somebody closed the shared connections.
            Some(Err(failed)) if failed.kind() == TransportErrorKind::Closed => {
                error!(queue = %shared.queue(), error = %failed, "intake stopped");
                source.fail(failed);
                source.changed().await;
                continue;
            }
            Some(Err(failed)) => {
                let pause = backoff.next_wait();
                warn!(queue = %shared.queue(), error = %failed, ?pause, "cannot receive; trying again");
                shared.facts.send_connection(Err(failed));
                pause
            }
        };
        // A change of the wanted limit ends the pause.
        let _ = timeout(pause, wishes.other_than(limit)).await;
    }
}

/// Why a subscription ended unexpectedly.
enum Ended {
    Cut(String),
    /// Nothing was in flight, and nothing comes.
    Blind(String),
}

/// State that outlives a subscription.
struct Intake<'a> {
    shared: &'a Shared,
    /// The current prefetch, if it follows the throughput.
    sizing: Option<Sizing>,
    idle: IdleWatch,
    /// True if the deliveries in flight were lost with the last subscription, and that is not signalled yet.
    cut: bool,
    /// Number of interruptions when the last subscription began.
    interruptions: u64,
    /// Deliveries since the last signal that were lost before they were received.
    unreceived: Vec<Delivery>,
}

impl Intake<'_> {
    /// Returns the prefetch of a subscription. A limit below the consumer's prefetch is used unchanged.
    fn prefetch(&self, limit: u32) -> u16 {
        let asked = self.shared.facts.prefetch().max(1);
        match u16::try_from(limit) {
            Ok(limit) if limit < asked => limit.max(1),
            _ => self.sizing.map_or(asked, |sizing| sizing.now().max(asked)),
        }
    }

    /// Returns true if the prefetch of a subscription with this limit may follow the throughput.
    fn may_grow(&mut self, limit: u32) -> bool {
        let asked = self.shared.facts.prefetch();
        let Some(most) = self.shared.facts.grows_to(asked).filter(|_| limit >= u32::from(asked)) else {
            return false;
        };
        self.sizing.get_or_insert_with(|| Sizing::between(asked, most));
        true
    }

    /// Signals an interruption before the first delivery of this subscription is received.
    fn send_interruption(&mut self, source: &Source<Arrived>, subscription: &Subscription) {
        let before = std::mem::replace(&mut self.interruptions, subscription.channel.interruptions());
        if std::mem::take(&mut self.cut) || self.interruptions > before {
            self.unreceived.extend(source.take_unreceived());
            self.shared.facts.send_interrupted(std::mem::take(&mut self.unreceived));
        }
    }

    /// Lets the deliveries of one subscription flow. `None`: it was ended because another limit is wanted.
    async fn take(
        &mut self,
        source: &Source<Arrived>,
        wishes: &mut Wishes,
        limit: u32,
        subscription: &mut Subscription,
    ) -> Option<Ended> {
        let mut check = tokio::time::interval_at(tokio::time::Instant::now() + CHECK_EVERY, CHECK_EVERY);
        let channel = Arc::clone(&subscription.channel);
        let flow = Flow::new(self.shared, &channel, source.inlet());
        channel.deliveries().flow_to(Arc::<Flow>::clone(&flow));
        self.idle.begin();
        let may_grow = self.may_grow(limit);
        loop {
            tokio::select! {
                Over(why) = subscription.ended() => return Some(Ended::Cut(why)),
                // The stream should end with the channel; if it does not, nothing would ever be redelivered.
                _ = check.tick() => {
                    if !channel.is_live() {
                        return Some(Ended::Cut("the channel ended".to_owned()));
                    }
                    let delivered = flow.take_delivered();
                    if delivered > 0 {
                        self.idle.arrived();
                    } else if self.idle.passed(CHECK_EVERY)
                        && let Some(why) = self.is_blind(subscription, flow.last_tag()).await
                    {
                        return Some(Ended::Blind(why));
                    }
                    if let Some(sizing) = self.sizing.as_mut().filter(|_| may_grow)
                        && sizing.after_a_second(delivered)
                    {
                        return stop(subscription).await;
                    }
                },
                () = wishes.other_than(limit) => return stop(subscription).await,
            }
        }
    }

    /// Returns why the subscription should be renewed, if it should: no delivery came for long, although messages wait.
    async fn is_blind(&mut self, subscription: &Subscription, last_tag: u64) -> Option<String> {
        if subscription.channel.has_in_flight(last_tag) {
            self.idle.unknown();
            return None;
        }
        // On this channel: if the queue is gone, the subscription should end anyway.
        let counting = topology::count_on(subscription.channel.channel(), self.shared.queue());
        match timeout(CANCEL_TIMEOUT, counting).await {
            Ok(Ok(waiting)) if self.idle.counted(waiting) => {
                Some(format!("RabbitMQ hands out none of {}", plural(waiting, "waiting message")))
            }
            Ok(Ok(_)) => None,
            Ok(Err(error)) => {
                self.idle.refused();
                Some(error.to_string())
            }
            Err(_) => {
                self.idle.unknown();
                None
            }
        }
    }

    /// Gives back all deliveries of a subscription that ended unexpectedly. Returns why it ended.
    async fn after_cut(
        &mut self,
        source: &Source<Arrived>,
        subscription: Subscription,
        ended: Ended,
    ) -> String {
        let channel = Arc::clone(&subscription.channel);
        channel.end();
        let why = match ended {
            Ended::Blind(why) => {
                // Nothing was in flight, so nothing is redelivered.
                channel.count_interruption();
                why
            }
            Ended::Cut(why) => {
                self.cut = true;
                // Counted while the channel exists: its last user may drop it.
                self.shared.deliveries.interruptions();
                why
            }
        };
        // If only the subscription ended, the channel lives as long as the slowest handler, and its end would count all deliveries
        // as failed.
        let _ = timeout(CANCEL_TIMEOUT, channel.give_back_all()).await;
        // Deliveries that were not received are redelivered too.
        channel.deliveries().flush();
        self.unreceived.extend(source.take_unreceived());
        why
    }
}

/// Ends a subscription in order. Earlier deliveries still arrive, and can be settled.
async fn stop(subscription: &mut Subscription) -> Option<Ended> {
    if let Err(why) = subscription.cancel().await {
        return Some(Ended::Cut(why));
    }
    subscription.rest_after_cancel().await;
    None
}
