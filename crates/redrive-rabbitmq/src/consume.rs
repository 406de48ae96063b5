//! The intake: the one task that owns the subscription, and takes it up again when it ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_core::{TransportError, TransportErrorKind, Value};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, error, info, warn};

use crate::arrivals::Arrivals;
use crate::broker::Broker;
use crate::connection::{Backoff, Live, answered};
use crate::convert::short;
use crate::error;
use crate::idle::IdleWatch;
use crate::inbox::{Arrived, Phase};
use crate::options::Options;
use crate::prefetch::Sizing;
use crate::session::{Receipt, Session};
use crate::topology::{self, QueueType, Topology};
use crate::version::Version;

/// What the consumer wants of the intake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// So many in hand at most.
    Deliveries(u16),
    Pause,
    Close,
}

/// Without a subscription nobody is told that a queue was deleted: after so long it is compared again.
const UNWATCHED: Duration = Duration::from_secs(1);
/// A subscription that lived this long was a good one: the next is not delayed.
const GOOD_AFTER: Duration = Duration::from_secs(5);
/// How many deliveries that are there already are passed on together.
const AT_ONCE: usize = 64;
const LOOK_EVERY: Duration = Duration::from_secs(1);
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Consumer tags are per channel, and each channel has one consumer.
const CONSUMER_TAG: &str = "redrive";

/// Takes deliveries until told to close.
pub(crate) async fn run(broker: Arc<Broker>, wanted: watch::Receiver<Wanted>) {
    watched(&broker, take_all(&broker, wanted)).await;
    // Where the transport was dropped nobody receives it any more, and whoever still publishes keeps the channel.
    give_back_unreceived(&broker).await;
}

/// Ends the inbox, and gives back what is left in it.
pub(crate) async fn give_back_unreceived(broker: &Broker) {
    broker.inbox.enter(Phase::Closed);
    for Arrived { tag, session, .. } in broker.inbox.take_all() {
        // Where that fails the broker takes it back with the channel.
        let _ = Receipt::new(tag, session).nack(true).await;
    }
}

/// Runs the intake. A panic of it is told to the consumer, who would wait for ever.
async fn watched(broker: &Broker, intake: impl Future<Output = ()>) {
    struct Watch<'a>(&'a Broker);

    impl Drop for Watch<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.inbox.enter(Phase::Panicked(error::intake_panicked(self.0.queue())));
            }
        }
    }

    let _watch = Watch(broker);
    intake.await;
}

async fn take_all(broker: &Broker, mut wanted: watch::Receiver<Wanted>) {
    let mut backoff = Backoff::default();
    // What was in hand at the end of the last subscription was lost; the queues are to be looked at again.
    let (mut cut, mut ended_by_broker) = (false, false);
    let mut unwatched_since = Instant::now();
    let mut sizing = None;
    let mut interruptions = broker.interruptions();
    let mut idle = IdleWatch::every(broker.options.idle_check);
    loop {
        let now = {
            let now = wanted.borrow_and_update();
            // While nobody can want something else: who does opens the inbox after this, not before.
            if *now == Wanted::Pause {
                broker.inbox.enter(Phase::Drained);
            }
            *now
        };
        match now {
            Wanted::Deliveries(_) => {}
            Wanted::Pause => {
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Wanted::Close => return,
        }
        broker.inbox.enter(Phase::Open);
        let trusted = !ended_by_broker && unwatched_since.elapsed() < UNWATCHED;
        let subscribed = tokio::select! {
            subscribed = subscribe(broker, trusted) => subscribed,
            changed = wanted.changed() => if changed.is_err() { return } else { continue },
        };
        let pause = match subscribed {
            Ok((session, mut consumer)) => {
                ended_by_broker = false;
                let before = std::mem::replace(&mut interruptions, session.interruptions());
                if std::mem::take(&mut cut) || interruptions > before {
                    // Before the first delivery of this subscription is received.
                    broker.tell_interruption(broker.inbox.take_unreceived());
                }
                let since = Instant::now();
                let ended =
                    take(broker, &session, &mut consumer, &mut sizing, &mut idle, (now, &mut wanted)).await;
                unwatched_since = Instant::now();
                if since.elapsed() > GOOD_AFTER {
                    backoff.reset();
                }
                let blind = matches!(ended, Ended::Blind(_));
                match ended {
                    Ended::AsWanted => continue,
                    Ended::Cut(why) | Ended::Blind(why) => {
                        ended_by_broker = true;
                        session.end();
                        if blind {
                            // Nothing was in hand: nothing comes again for it.
                            session.is_interruption();
                        } else {
                            cut = true;
                            // Now, while there is one: who settled everything may drop it.
                            broker.interruptions();
                        }
                        // Where only the subscription ended, the channel lives as long as the slowest handler, and with its
                        // end everything would count as failed.
                        let _ = timeout(CANCEL_TIMEOUT, session.give_back_all()).await;
                        take_what_is_left(broker, &session, &mut consumer);
                        broker.inbox.forget_stale();
                        let pause = backoff.next();
                        warn!(queue = %broker.queue(), epoch = session.epoch(), %why, ?pause, "intake interrupted");
                        pause
                    }
                }
            }
            Err(failed) if is_beyond_waiting(&failed) => {
                error!(queue = %broker.queue(), error = %failed, "intake stopped");
                broker.inbox.enter(Phase::Failed(failed));
                if wanted.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Err(failed) => {
                let pause = backoff.next();
                warn!(queue = %broker.queue(), error = %failed, ?pause, "cannot take deliveries, trying again");
                pause
            }
        };
        if *wanted.borrow() != now {
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// True when only a person can help: the queue is not there, or somebody closed the connections that are shared.
fn is_beyond_waiting(failed: &TransportError) -> bool {
    matches!(failed.kind(), TransportErrorKind::Topology | TransportErrorKind::Closed)
}

/// How a subscription ended.
enum Ended {
    AsWanted,
    Cut(String),
    /// Nothing was in hand, and nothing comes.
    Blind(String),
}

/// `trusted`: the queues are as they were when they were prepared, if the connection still is the same.
async fn subscribe(broker: &Broker, trusted: bool) -> Result<(Arc<Session>, Consumer), TransportError> {
    // On this one or on none: what was prepared is not believed of a connection that is made later.
    let live = broker.live().await?;
    if !(trusted && broker.is_prepared_for(&live)) {
        broker.prepare_again().await?;
    }
    match try_subscribe(broker, &live).await {
        // Deleted behind our back.
        Err(Refused::Missing(_)) if broker.options.topology == Topology::Declare => {
            warn!(queue = %broker.queue(), "the queue is gone: declaring it again");
            broker.prepare_again().await?;
            try_subscribe(broker, &live).await.map_err(Refused::into_error)
        }
        other => other.map_err(Refused::into_error),
    }
}

/// Why there is no subscription.
enum Refused {
    Missing(TransportError),
    Other(TransportError),
}

impl Refused {
    fn into_error(self) -> TransportError {
        match self {
            Self::Missing(error) | Self::Other(error) => error,
        }
    }
}

async fn try_subscribe(broker: &Broker, live: &Arc<Live>) -> Result<(Arc<Session>, Consumer), Refused> {
    broker.note_connection(live);
    let channel = live.channel().await.map_err(Refused::Other)?;
    let prefetch = broker.prefetch();
    let limited = answered(&channel, channel.basic_qos(prefetch, BasicQosOptions { global: false })).await;
    limited.map_err(|error| Refused::Other(error::interrupted("cannot set the prefetch", error)))?;
    let queue = short(broker.queue(), "the name of a queue").map_err(Refused::Other)?;
    let options = BasicConsumeOptions::default();
    let arguments = arguments(&broker.options, live.version);
    let consuming = channel.basic_consume(queue, CONSUMER_TAG.into(), options, arguments);
    let consumer = answered(&channel, consuming).await.map_err(|cause| {
        let missing = error::is_missing_queue(&cause);
        let error = error::consuming(broker.queue(), cause);
        if missing { Refused::Missing(error) } else { Refused::Other(error) }
    })?;
    info!(queue = %broker.queue(), epoch = live.epoch, prefetch, "taking deliveries");
    let within = broker.options.ack_within;
    let session = Session::new(channel, Arc::clone(live), prefetch, within, broker.interruptions());
    broker.remember(&session);
    Ok((session, consumer))
}

async fn take(
    broker: &Broker,
    session: &Arc<Session>,
    consumer: &mut Consumer,
    sizing: &mut Option<Sizing>,
    idle: &mut IdleWatch,
    (now, wanted): (Wanted, &mut watch::Receiver<Wanted>),
) -> Ended {
    let mut look = tokio::time::interval_at(tokio::time::Instant::now() + LOOK_EVERY, LOOK_EVERY);
    let mut arrivals = Arrivals::on(broker, session);
    let mut arrived = Vec::new();
    let (mut handed_out, mut last_tag) = (0, 0);
    idle.begin();
    let full = broker.may_size();
    if let (None, Some(full)) = (&sizing, full) {
        *sizing = Some(full);
    }
    loop {
        tokio::select! {
            next = consumer.next() => {
                // All that is there goes on at once: the consumer is woken once for them.
                let mut next = Some(next);
                while let Some(Some(Ok(delivery))) = next {
                    arrived.push(arrivals.take_in(delivery));
                    next = if arrived.len() < AT_ONCE { consumer.next().now_or_never() } else { None };
                }
                handed_out += arrived.len();
                last_tag = arrived.last().map_or(last_tag, |last| last.tag);
                broker.inbox.push(arrived.drain(..));
                match next {
                    Some(Some(Err(error))) => return Ended::Cut(error.to_string()),
                    // The queue was deleted, or the broker took the deliveries back because one was held too long.
                    Some(None) => return Ended::Cut("RabbitMQ ended the subscription".to_owned()),
                    Some(Some(Ok(_))) | None => {}
                }
            },
            // The stream should say so; should it not, nothing would ever come again.
            _ = look.tick() => {
                if !session.is_live() {
                    return Ended::Cut("the channel ended".to_owned());
                }
                let handed_out = std::mem::take(&mut handed_out);
                if handed_out > 0 {
                    idle.arrived();
                } else if idle.passed(LOOK_EVERY)
                    && let Some(why) = is_blind(broker, session, last_tag, idle).await
                {
                    return Ended::Blind(why);
                }
                if let Some(sizing) = sizing.as_mut().filter(|_| full.is_some())
                    && sizing.after_a_second(handed_out)
                {
                    broker.size(sizing.now());
                    return stop(broker, session, consumer).await;
                }
            },
            changed = wanted.changed() => {
                if changed.is_err() || *wanted.borrow() != now {
                    return stop(broker, session, consumer).await;
                }
            }
        }
    }
}

/// Why the subscription should be made again, if it should: nothing was handed out for long, and yet messages wait.
async fn is_blind(broker: &Broker, session: &Session, last_tag: u64, idle: &mut IdleWatch) -> Option<String> {
    if session.has_in_hand(last_tag) {
        idle.unknown();
        return None;
    }
    // On this channel: should the queue be gone, the subscription is to end anyway.
    let counting = topology::count_on(session.channel(), broker.queue());
    match timeout(CANCEL_TIMEOUT, counting).await {
        Ok(Ok(waiting)) if idle.counted(waiting) => {
            Some(format!("{waiting} messages wait, and RabbitMQ hands out none"))
        }
        Ok(Ok(_)) => None,
        Ok(Err(error)) => {
            idle.refused();
            Some(error.to_string())
        }
        Err(_) => {
            idle.unknown();
            None
        }
    }
}

/// After a cut: what the client library still holds comes again, and the inbox tells which that is.
fn take_what_is_left(broker: &Broker, session: &Arc<Session>, consumer: &mut Consumer) {
    let mut arrivals = Arrivals::on(broker, session);
    while let Some(Some(Ok(delivery))) = consumer.next().now_or_never() {
        broker.inbox.push([arrivals.take_in(delivery)]);
    }
}

/// Ends the subscription; what was handed out before still comes, and can be settled.
async fn stop(broker: &Broker, session: &Arc<Session>, consumer: &mut Consumer) -> Ended {
    let cancelling = session.channel().basic_cancel(CONSUMER_TAG.into(), BasicCancelOptions::default());
    match timeout(CANCEL_TIMEOUT, cancelling).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Ended::Cut(error.to_string()),
        Err(_) => return Ended::Cut("RabbitMQ does not answer to the end of the subscription".to_owned()),
    }
    // With the answer to the cancellation the stream ends; the limit is for the case that both were cut off.
    let mut arrivals = Arrivals::on(broker, session);
    while let Ok(Some(Ok(delivery))) = timeout(CANCEL_TIMEOUT, consumer.next()).await {
        broker.inbox.push([arrivals.take_in(delivery)]);
    }
    debug!(queue = %broker.queue(), epoch = session.epoch(), "takes no more deliveries");
    Ended::AsWanted
}

/// What the subscription asks of the broker.
fn arguments(options: &Options, version: Option<Version>) -> FieldTable {
    let mut arguments = FieldTable::default();
    if let Some(priority) = options.consumer_priority {
        arguments.insert("x-priority".into(), AMQPValue::LongInt(priority));
    }
    // A classic queue refuses it, and older brokers do not know it.
    let takes_timeout = options.queue_type == QueueType::Quorum && version >= Some(Version::V4_3);
    if let Some(timeout) = options.consumer_timeout.filter(|_| takes_timeout) {
        let millis = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
        arguments.insert("x-consumer-timeout".into(), AMQPValue::LongLongInt(millis));
    }
    arguments
}

/// After how long the broker takes back what is not settled, as far as it is known.
pub(crate) fn hold_limit(
    options: &Options,
    version: Option<Version>,
    told: Option<Duration>,
) -> Option<Duration> {
    const DEFAULT: Duration = Duration::from_secs(30 * 60);
    // From 4.3 on classic queues wait for ever.
    if options.queue_type == QueueType::Classic && version >= Some(Version::V4_3) {
        return None;
    }
    let argument = options.arguments.get("x-consumer-timeout").and_then(Value::to_integer);
    let argument = argument.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis);
    options.consumer_timeout.or(argument).or(told).or(Some(DEFAULT))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use redrive_core::Receiver as _;

    use super::*;
    use crate::receive::RabbitMqReceiver;

    #[tokio::test]
    async fn after_a_panic_of_the_intake_whoever_waits_or_wants_more_is_told() {
        let broker = Arc::new(Broker::unconnected(Options::new("orders")));
        let receiver =
            RabbitMqReceiver::new(Arc::clone(&broker), Arc::new(watch::Sender::new(Wanted::Pause)));
        receiver.set_limit(5).await.unwrap();
        let intake =
            tokio::spawn(async move { watched(&broker, async { panic!("as the test wants it") }).await });
        let mut batch = VecDeque::new();
        for limit in [5, 6, 0] {
            let told = receiver.receive(&mut batch, 1).await.unwrap_err();
            let refused = receiver.set_limit(limit).await;
            assert_eq!(refused.is_err(), limit > 0, "to stop is no wish that cannot be met");
            for error in refused.err().into_iter().chain([told]) {
                assert_eq!(error.kind(), TransportErrorKind::Other);
                let said = error.to_string();
                assert!(
                    said.contains("`orders` panicked") && said.contains("connect a new transport"),
                    "{said}"
                );
            }
        }
        assert!(intake.await.unwrap_err().is_panic());
    }

    #[test]
    fn a_timeout_is_asked_for_only_where_it_is_understood() {
        let asked = |options: Options, version| {
            let options = options.consumer_timeout(Duration::from_secs(9));
            arguments(&options, version).inner().get("x-consumer-timeout").cloned()
        };
        let nine_seconds = Some(AMQPValue::LongLongInt(9000));
        let quorum = || Options::new("orders");
        assert_eq!(asked(quorum(), Some(Version::V4_3)), nine_seconds);
        assert_eq!(asked(quorum(), Some(Version::V4_0)), None);
        assert_eq!(asked(quorum(), None), None);
        assert_eq!(asked(quorum().queue_type(QueueType::Classic), Some(Version::V4_3)), None);
    }

    #[test]
    fn what_is_known_of_the_hold_limit() {
        let limit = |options: Options, version| {
            hold_limit(&options, Some(version), None).map(|limit| limit.as_secs())
        };
        let options = || Options::new("orders");
        assert_eq!(limit(options(), Version::V4_3), Some(1800));
        assert_eq!(limit(options().queue_type(QueueType::Classic), Version::V4_0), Some(1800));
        assert_eq!(limit(options().queue_type(QueueType::Classic), Version::V4_3), None);
        let told = Some(Duration::from_secs(7));
        assert_eq!(hold_limit(&options(), None, told), told);
        let with_argument = || options().argument("x-consumer-timeout", 60_000_i64);
        assert_eq!(limit(with_argument(), Version::V4_3), Some(60));
        assert_eq!(limit(with_argument().consumer_timeout(Duration::from_secs(9)), Version::V4_3), Some(9));
    }
}
