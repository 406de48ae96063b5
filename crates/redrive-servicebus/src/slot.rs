//! Taking deliveries from sessions: accept the next one, hand on its messages one by one, let it go.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::Received;
use redrive_transport::Wish;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::broker::Broker;
use crate::connection::Pace;
use crate::entity::Entity;
use crate::error::{Refusal, WireError};
use crate::inbox::{Inbox, Source, Unreceived};
use crate::intake::{dead_letter_undecodable, delivery, lasting};
use crate::later::later;
use crate::receipt::{Parts, Receipt, Room};
use crate::session::{HeldSession, Left, Session, early, is_loss};
use crate::sessions::Sessions;
use crate::wire::{Accepted, Arrived, Disposal, Wire, WireReceiver};

/// How long the first message of a session is waited for at least, however soon an idle one is let go. There is one, or the
/// broker would not have chosen it; but it takes its time to come. Let go before, the session would be accepted again and
/// again, and never a message handed out.
const FIRST: Duration = Duration::from_secs(1);

/// Holds one session at a time.
pub(crate) struct Slot {
    broker: Arc<Broker>,
    source: Source,
    /// Its number among the slots of its entity: those beyond what may be in hand rest.
    place: u32,
    entity: Entity,
    path: Arc<str>,
    sessions: Sessions,
    /// Who may wait for a session.
    accepting: Arc<Semaphore>,
}

/// What a slot does that holds a session.
#[derive(Clone, Copy, Debug)]
enum Now {
    /// One message was asked for; without one the session is let go then.
    Asking(Instant),
    /// A message is in hand.
    Handing,
    /// The first message waits for its next attempt, and all that follow with it.
    Resting(Instant),
}

impl Slot {
    /// The slots of one entity.
    pub(crate) fn all(broker: &Arc<Broker>, inbox: &Inbox, entity: &Entity, sessions: Sessions) -> Vec<Self> {
        let accepting = Arc::new(Semaphore::new(sessions.accepting as usize));
        let slot = |place: u32| Self {
            broker: Arc::clone(broker),
            source: inbox.source(),
            place,
            entity: entity.clone(),
            path: entity.path().into(),
            sessions,
            accepting: Arc::clone(&accepting),
        };
        (0..sessions.concurrent).map(slot).collect()
    }

    /// Takes deliveries until the transport is closed.
    pub(crate) async fn run(mut self) {
        let mut pace = Pace::default();
        while let Some(limit) = self.source.wanted().await {
            let taken = if self.place >= limit { None } else { Some(self.take(limit, &mut pace).await) };
            let again = match taken {
                Some(Ok(())) => continue,
                Some(Err(error)) if is_loss(&error.refusal) => {
                    info!(entity = %self.path, %error, "a session was lost; accepting another");
                    continue;
                }
                Some(Err(error)) if !lasting(&error) => {
                    warn!(entity = %self.path, %error, "a session was interrupted, or none accepted; trying again");
                    true
                }
                Some(Err(error)) => {
                    self.source.fail(error.into_error(&format!("accepting a session of `{}`", self.path)));
                    false
                }
                None => false,
            };
            // Until it is time, or something else is wanted.
            tokio::select! {
                () = pace.wait(), if again => {}
                _ = self.source.changed() => {}
            }
        }
    }

    fn goes_on(&self) -> bool {
        matches!(self.source.wish(), Wish::Deliveries(limit) if self.place < limit)
    }

    /// Accepts a session and holds it for as long as it has messages.
    async fn take(&mut self, limit: u32, pace: &mut Pace) -> Result<(), WireError> {
        let asked = Instant::now();
        let mut wishes = self.source.wishes();
        let (broker, path) = (Arc::clone(&self.broker), Arc::clone(&self.path));
        let (accepting, wait) = (Arc::clone(&self.accepting), self.sessions.wait);
        let accepted = async move {
            let Ok(turn) = accepting.acquire_owned().await else { return Ok(None) };
            let wire = broker.link.live().await?;
            let accepted = wire.accept(&path, wait).await?;
            Ok(accepted.map(|accepted| (turn, wire, accepted)))
        };
        let accepted = tokio::select! {
            biased;
            () = wishes.other_than(limit) => return Ok(()),
            accepted = accepted => accepted,
        };
        match accepted? {
            Some((turn, wire, accepted)) => {
                pace.reset();
                self.hold(wire, accepted, turn).await
            }
            // None is free. It should have taken its time to say so.
            None if asked.elapsed() < wait / 2 => {
                Err(WireError::new(Refusal::NoSession, "no session was free, said at once"))
            }
            None => Ok(()),
        }
    }

    async fn hold(
        &mut self,
        wire: Arc<dyn Wire>,
        accepted: Accepted,
        turn: OwnedSemaphorePermit,
    ) -> Result<(), WireError> {
        // Until the session is let go, should its first message not come: else whoever accepts next would get the one after it.
        let mut turn = Some(turn);
        let Accepted { place, mut receiver, locked_until } = accepted;
        debug!(entity = %self.path, session = %place.id, "accepted a session");
        let longest = self.broker.options.max_lock_renewal;
        let held = HeldSession::begin(place, &wire, &self.path, locked_until, longest);
        let served = self.serve(&*wire, &held.session, &mut *receiver, &mut turn).await;
        if served.is_err() {
            // First: who hears of the loss may ask at once.
            self.broker.tell_interruption();
        }
        debug!(entity = %self.path, session = %held.session.place.id, "let a session go");
        // Before the link ends: what is in hand is not ours any more.
        drop(held);
        receiver.close().await;
        served
    }

    async fn serve(
        &mut self,
        wire: &dyn Wire,
        session: &Arc<Session>,
        receiver: &mut dyn WireReceiver,
        turn: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), WireError> {
        // Whoever accepts next does so after the first message is here: sessions begin in the order in which they are free.
        let mut now = self.ask(receiver, self.sessions.idle.max(FIRST)).await?;
        loop {
            let (until, waits) = match now {
                Now::Asking(until) | Now::Resting(until) => (until, true),
                Now::Handing => (Instant::now(), false),
            };
            tokio::select! {
                biased;
                wish = self.source.changed() => {
                    match wish {
                        Wish::Deliveries(_) => {}
                        Wish::Nothing if !matches!(now, Now::Asking(_)) => {}
                        // What was asked for is given back with the link, and not counted.
                        Wish::Nothing | Wish::End => return Ok(()),
                    }
                    self.source.stopped();
                }
                () = session.gone() => {
                    return Err(WireError::new(Refusal::SessionLockLost, "the lock of the session is lost"));
                }
                arrived = receiver.next() => {
                    now = self.accept(arrived?, session, receiver).await?;
                    turn.take();
                }
                left = session.freed() => {
                    if let Some(lock) = left.give_back {
                        self.give_back(lock, wire, session).await?;
                    }
                    now = self.after(&left, receiver).await?;
                }
                () = sleep_until(until), if waits => match now {
                    Now::Resting(_) if self.goes_on() => now = self.ask(receiver, self.sessions.idle).await?,
                    _ => return Ok(()),
                },
                () = wire.ended() => return Err(WireError::interrupted("the connection ended")),
            }
        }
    }

    /// One message, and no more before that one is settled.
    async fn ask(&self, receiver: &mut dyn WireReceiver, patience: Duration) -> Result<Now, WireError> {
        receiver.allow(1).await?;
        Ok(Now::Asking(later(Instant::now(), patience)))
    }

    async fn after(&self, left: &Left, receiver: &mut dyn WireReceiver) -> Result<Now, WireError> {
        match left.rest_until {
            Some(until) => Ok(Now::Resting(until)),
            None if self.goes_on() => self.ask(receiver, self.sessions.idle).await,
            // Over at once.
            None => Ok(Now::Resting(Instant::now())),
        }
    }

    async fn accept(
        &self,
        arrived: Arrived,
        session: &Arc<Session>,
        receiver: &mut dyn WireReceiver,
    ) -> Result<Now, WireError> {
        let Arrived { lock, tag, message } = arrived;
        let incoming = match message {
            Ok(incoming) => *incoming,
            Err(why) => {
                warn!(entity = %self.path, %why, "a message cannot be read; it is dead-lettered");
                dead_letter_undecodable(&self.broker, &self.path, lock, why, Some(&session.place)).await;
                return self.ask(receiver, self.sessions.idle).await;
            }
        };
        let limit = self.broker.options.longest_rest();
        if let Some(rest) = early(&incoming, SystemTime::now()).filter(|&rest| rest <= limit)
            && receiver.handle().release(&tag).await
        {
            // Whoever let it wait does not hold the session any more.
            return Ok(Now::Resting(later(Instant::now(), rest)));
        }
        session.take();
        let receipt = Receipt::new(Parts {
            broker: Arc::clone(&self.broker),
            entity: Arc::clone(&self.path),
            lock,
            tag,
            handle: receiver.handle(),
            sequence_number: incoming.sequence_number,
            enqueued_at: incoming.enqueued_at,
            marked: incoming.shelf.is_some(),
            delivered: incoming.message.headers().clone(),
            lost: Arc::clone(&session.lost),
            room: Arc::new(Room::default()),
            session: Some(Arc::clone(session)),
            delivery_count: incoming.delivery_count,
        });
        let handed_out = incoming.delivery_count.saturating_sub(incoming.counted_before()).saturating_add(1);
        let delivery = delivery(&self.broker, &self.entity, &self.path, incoming, handed_out);
        self.source.push([Unreceived(Received { delivery, receipt })]);
        Ok(Now::Handing)
    }

    /// Counted, and before the next one is asked for: it comes first again.
    async fn give_back(&self, lock: Uuid, wire: &dyn Wire, session: &Session) -> Result<(), WireError> {
        let how = Disposal::abandon().within(Some(&session.place));
        wire.settle(&self.path, &[lock], &how).await
    }
}
