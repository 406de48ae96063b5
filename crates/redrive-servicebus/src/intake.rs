//! Taking deliveries from one entity: attach, give credit, hand on; again after an interruption.

use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::{Delivery, Received};
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::broker::Broker;
use crate::connection::Pace;
use crate::convert::Incoming;
use crate::dead_letter::{Words, dead_letter};
use crate::entity::Entity;
use crate::error::{Refusal, WireError};
use crate::inbox::{Source, Unreceived};
use crate::locks::Held;
use crate::receipt::{Parts, Receipt, Room};
use crate::wire::{Arrived, InSession, Wire, WireReceiver};

/// Why a message is dead-lettered that cannot be read.
const UNDECODABLE: &str = "UndecodableMessage";

/// Takes deliveries from one of the entities that a transport reads.
pub(crate) struct Intake {
    broker: Arc<Broker>,
    source: Source,
    entity: Entity,
    path: Arc<str>,
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
    pub(crate) fn new(broker: Arc<Broker>, source: Source, entity: Entity) -> Self {
        let path = entity.path().into();
        Self { broker, source, entity, path, retired: Vec::new() }
    }

    /// Takes deliveries until the transport is closed. Answers the links on which something is still in hand: what was handed out
    /// on them can be given back until they are dropped.
    pub(crate) async fn run(mut self) -> Vec<Retired> {
        let mut pace = Pace::default();
        while let Some(limit) = self.source.wanted().await {
            self.close_emptied().await;
            let began = Instant::now();
            match self.take(limit, &mut pace).await {
                Ok(End::Asked) => {}
                Ok(End::Interrupted(error)) => {
                    if began.elapsed() > Pace::LONGEST {
                        pace.reset();
                    }
                    self.broker.tell_interruption();
                    warn!(entity = %self.path, %error, "interrupted; attaching again");
                    self.rest(limit, &mut pace).await;
                }
                Err(error) if lasting(&error) => {
                    self.source.fail(error.into_error(&format!("receiving from `{}`", self.path)));
                    // Until somebody resumes it.
                    self.source.changed().await;
                }
                Err(error) => {
                    warn!(entity = %self.path, %error, "cannot attach; trying again");
                    self.rest(limit, &mut pace).await;
                }
            }
        }
        self.close_emptied().await;
        self.retired
    }

    /// After a failure, until the next try or another wish: a pause or an end does not wait for it.
    async fn rest(&self, limit: u32, pace: &mut Pace) {
        let mut wishes = self.source.wishes();
        tokio::select! {
            () = pace.wait() => {}
            () = wishes.other_than(limit) => {}
        }
    }

    async fn take(&mut self, capacity: u32, pace: &mut Pace) -> Result<End, WireError> {
        let mut wishes = self.source.wishes();
        let wire = tokio::select! {
            wire = self.broker.link.live() => wire?,
            () = wishes.other_than(capacity) => return Ok(End::Asked),
        };
        let mut receiver = wire.receiver(&self.path).await?;
        let room = Arc::new(Room::default());
        receiver.allow(capacity).await?;
        info!(entity = %self.path, capacity, "attached");
        // So many may be settled before the broker is told that there is room: it need not be told of each.
        let unsaid = capacity / 8;
        let mut taken: u32 = 0;
        let mut said: u32 = 0;
        let end = loop {
            tokio::select! {
                biased;
                () = wishes.other_than(capacity) => break End::Asked,
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
            delivery(&self.broker, &self.entity, &self.path, incoming, handed_out).failed_in_place(failures);
        self.source.push([Unreceived(Received { delivery, receipt })]);
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
