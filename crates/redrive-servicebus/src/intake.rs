//! Taking deliveries from one entity: attach, give credit, hand on; again after an interruption.

use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::{Delivery, Received};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::broker::Broker;
use crate::connection::Pace;
use crate::convert::Incoming;
use crate::dead_letter::{Words, dead_letter};
use crate::entity::Entity;
use crate::error::{Refusal, WireError};
use crate::locks::Held;
use crate::receipt::{Parts, Receipt, Room};
use crate::wire::{Arrived, InSession, Wire, WireReceiver};

/// Why a message is dead-lettered that cannot be read.
const UNDECODABLE: &str = "UndecodableMessage";

/// What the transport wants of its intakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// So many in hand at most.
    Deliveries(u32),
    Pause,
    Close,
}

impl Wanted {
    pub(crate) fn is_deliveries(self) -> bool {
        matches!(self, Self::Deliveries(_))
    }

    /// Says it to all intakes. `again`: also where it was wanted already, and the links are made anew. Whoever comes after the
    /// end comes too late: an intake that had not yet heard of it would go on, and the end would wait for it for ever.
    pub(crate) fn say(self, to: &watch::Sender<Self>, again: bool) {
        to.send_if_modified(|before| {
            let new = *before != Self::Close && (again || *before != self);
            if new {
                *before = self;
            }
            new
        });
    }
}

/// Takes deliveries from one of the entities that a transport reads.
pub(crate) struct Intake {
    broker: Arc<Broker>,
    /// Its number among the intakes of the transport.
    number: usize,
    source: Entity,
    path: Arc<str>,
    wanted: watch::Receiver<Wanted>,
    retired: Vec<Retired>,
}

/// A link that hands out nothing more; what it handed out may still be given back by it, while it is kept.
pub(crate) type Retired = (Arc<Room>, Box<dyn WireReceiver>);

/// Why taking from a link ended.
enum End {
    Asked,
    Interrupted(WireError),
}

impl Intake {
    pub(crate) fn new(
        broker: Arc<Broker>,
        number: usize,
        source: Entity,
        wanted: watch::Receiver<Wanted>,
    ) -> Self {
        let path = source.path().into();
        Self { broker, number, source, path, wanted, retired: Vec::new() }
    }

    /// Takes deliveries until the transport is closed. Answers the links on which something is still in hand: what was handed out
    /// on them can be given back until they are dropped.
    pub(crate) async fn run(mut self) -> Vec<Retired> {
        let mut pace = Pace::default();
        loop {
            let wanted = self.no_pause().await;
            self.close_emptied().await;
            if !wanted.is_deliveries() {
                break;
            }
            let began = Instant::now();
            match self.take(wanted, &mut pace).await {
                Ok(End::Asked) => {}
                Ok(End::Interrupted(error)) => {
                    if began.elapsed() > Pace::LONGEST {
                        pace.reset();
                    }
                    self.broker.tell_interruption();
                    warn!(entity = %self.path, %error, "interrupted; attaching again");
                    self.rest(wanted, &mut pace).await;
                }
                Err(error) if lasting(&error) => {
                    let tried = format!("receiving from `{}`", self.path);
                    self.broker.inbox.fail(&error.into_error(&tried));
                    // Until somebody resumes it.
                    if self.wanted.changed().await.is_err() {
                        break;
                    }
                }
                Err(error) => {
                    warn!(entity = %self.path, %error, "cannot attach; trying again");
                    self.rest(wanted, &mut pace).await;
                }
            }
        }
        self.retired
    }

    /// What is wanted, once that is not a pause. A word that is soon followed by another may never be seen: after each change
    /// it is said anew that nothing comes from here, also where there is a pause again.
    async fn no_pause(&mut self) -> Wanted {
        loop {
            let wanted = *self.wanted.borrow_and_update();
            if wanted.is_deliveries() {
                // Not said of a pause that was asked for this moment: more may come from here until that is heard.
                return wanted;
            }
            self.say_drained();
            if wanted == Wanted::Close {
                return wanted;
            }
            if self.wanted.changed().await.is_err() {
                return Wanted::Close;
            }
        }
    }

    /// When nothing is wanted, nothing comes from here.
    fn say_drained(&self) {
        let wanted = &self.wanted;
        self.broker.inbox.drained(self.number, || !wanted.borrow().is_deliveries());
    }

    /// After a failure, until the next try or another wish: a pause or an end does not wait for it.
    async fn rest(&self, now: Wanted, pace: &mut Pace) {
        let mut wanted = self.wanted.clone();
        tokio::select! {
            () = pace.wait() => {}
            () = otherwise(now, &mut wanted) => {}
        }
    }

    async fn take(&mut self, now: Wanted, pace: &mut Pace) -> Result<End, WireError> {
        let mut wanted = self.wanted.clone();
        let wire = tokio::select! {
            wire = self.broker.link.live() => wire?,
            () = otherwise(now, &mut wanted) => return Ok(End::Asked),
        };
        let mut receiver = wire.receiver(&self.path).await?;
        let room = Arc::new(Room::default());
        let capacity = self.broker.capacity();
        receiver.allow(capacity).await?;
        info!(entity = %self.path, capacity, "attached");
        // So many may be settled before the broker is told that there is room: it need not be told of each.
        let unsaid = capacity / 8;
        let mut taken: u32 = 0;
        let mut said: u32 = 0;
        let end = loop {
            tokio::select! {
                biased;
                () = otherwise(now, &mut wanted) => break End::Asked,
                arrived = receiver.next() => match arrived {
                    Ok(arrived) => {
                        // Not when attached: a link that is detached at once, again and again, is no success.
                        pace.reset();
                        taken = taken.wrapping_add(1);
                        self.accept(arrived, &room, &*receiver);
                    }
                    Err(error) => break End::Interrupted(error),
                },
                () = room.freed.notified() => {
                    let settled = taken.wrapping_sub(room.in_hand());
                    if settled.wrapping_sub(said) > unsaid {
                        said = settled;
                        receiver.allow(capacity.saturating_sub(room.in_hand())).await?;
                    }
                }
                () = wire.ended() => break End::Interrupted(WireError::interrupted("the connection ended")),
            }
        };
        match end {
            End::Asked => {
                self.drain(&*wire, &mut *receiver, &room).await;
                self.retired.push((room, receiver));
                Ok(End::Asked)
            }
            End::Interrupted(error) if lasting(&error) => Err(error),
            interrupted => Ok(interrupted),
        }
    }

    /// Nothing more is handed out; what was, is taken.
    async fn drain(&self, wire: &dyn Wire, receiver: &mut dyn WireReceiver, room: &Arc<Room>) {
        if receiver.drain().await.is_err() {
            return;
        }
        // The client library does not say when the broker has done it. The answer to this request comes behind it.
        let _ = wire.peek(&self.path, i64::MAX, 1).await;
        while let Some(Ok(arrived)) = receiver.next_now() {
            self.accept(arrived, room, receiver);
        }
    }

    fn accept(&self, arrived: Arrived, room: &Arc<Room>, receiver: &dyn WireReceiver) {
        let Arrived { lock, tag, message } = arrived;
        let handle = receiver.handle();
        let incoming = match message {
            Ok(incoming) => *incoming,
            Err(why) => {
                warn!(entity = %self.path, %why, "a message cannot be read; it is dead-lettered");
                let broker = Arc::clone(&self.broker);
                let (path, room) = (Arc::clone(&self.path), Arc::clone(room));
                tokio::spawn(async move {
                    dead_letter_undecodable(&broker, &path, lock, why, None).await;
                    // It has no receipt that would say so; and unsaid, no credit is given for another one.
                    room.freed.notify_one();
                });
                return;
            }
        };
        let longest = self.broker.options.max_lock_renewal;
        let held = Held::new(
            Arc::clone(&self.path),
            tag.clone(),
            Arc::clone(&handle),
            incoming.sequence_number,
            incoming.locked_until,
            longest,
        );
        let lost = Arc::clone(&held.lost);
        let count = incoming.delivery_count;
        let failures = if self.broker.options.hold_lock_up_to.is_some() { count } else { 0 };
        let receipt = Receipt::new(Parts {
            broker: Arc::clone(&self.broker),
            entity: Arc::clone(&self.path),
            lock,
            tag,
            handle,
            sequence_number: incoming.sequence_number,
            enqueued_at: incoming.enqueued_at,
            marked: incoming.shelf.is_some(),
            delivered: incoming.message.headers().clone(),
            lost,
            room: Arc::clone(room),
            session: None,
            delivery_count: count,
        });
        if count > 0 {
            // Whoever holds it from before has lost it.
            self.broker.locks.lose_earlier(&self.path, incoming.sequence_number);
        }
        self.broker.locks.enter(lock, held);
        let handed_out = count.saturating_add(1);
        let delivery =
            delivery(&self.broker, &self.source, &self.path, incoming, handed_out).failed_in_place(failures);
        self.broker.inbox.push(Received { delivery, receipt });
    }

    /// Closes links on which nothing is in hand any more.
    async fn close_emptied(&mut self) {
        let (emptied, rest) =
            std::mem::take(&mut self.retired).into_iter().partition(|(room, _)| room.in_hand() == 0);
        self.retired = rest;
        let emptied: Vec<Retired> = emptied;
        for (_, receiver) in emptied {
            receiver.close().await;
        }
    }
}

/// What goes through the layers.
pub(crate) fn delivery(
    broker: &Broker,
    source: &Entity,
    path: &Arc<str>,
    incoming: Incoming,
    handed_out: u32,
) -> Delivery {
    let topic = match source {
        Entity::Subscription { topic, .. } => topic.as_str(),
        Entity::Queue(_) => "",
    };
    Delivery::new(incoming.message, broker.entity(), SystemTime::now())
        .enqueued_at(incoming.enqueued_at)
        .with_broker_number(incoming.sequence_number.cast_unsigned())
        .published_to(topic, Arc::clone(path))
        .handed_out_times(handed_out)
}

/// Resolves when something else is wanted than was before.
pub(crate) async fn otherwise(before: Wanted, wanted: &mut watch::Receiver<Wanted>) {
    // Where nobody wants anything any more, neither.
    let _ = wanted.wait_for(|wanted| *wanted != before).await;
}

/// What time does not mend.
pub(crate) fn lasting(error: &WireError) -> bool {
    matches!(error.refusal, Refusal::NotFound | Refusal::Unauthorized | Refusal::NotAllowed)
}

/// Nobody can handle it, and left alone it would come again until the broker gives it up.
pub(crate) async fn dead_letter_undecodable(
    broker: &Broker,
    path: &str,
    lock: Uuid,
    why: String,
    session: Option<&InSession>,
) {
    let settled = dead_letter(broker, path, lock, session, Words::new(UNDECODABLE, &why)).await;
    if let Err(error) = settled {
        warn!(entity = %path, %error, "a message that cannot be read was not dead-lettered; it comes again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_nothing_else_is_wanted() {
        let (wanted, mut seen) = watch::channel(Wanted::Pause);
        let deliveries = Wanted::Deliveries(1);
        deliveries.say(&wanted, false);
        assert_eq!(*seen.borrow_and_update(), deliveries);
        deliveries.say(&wanted, false);
        assert!(!seen.has_changed().expect("it is open"), "the links would be made anew");
        deliveries.say(&wanted, true);
        assert!(seen.has_changed().expect("it is open"));
        Wanted::Close.say(&wanted, false);
        for (late, again) in [(Wanted::Deliveries(1), true), (Wanted::Pause, false)] {
            late.say(&wanted, again);
            assert_eq!(*seen.borrow_and_update(), Wanted::Close, "{late:?}");
        }
    }
}
