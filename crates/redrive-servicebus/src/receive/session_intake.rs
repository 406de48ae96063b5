//! Taking deliveries from an entity with sessions: accept the next session, hand on its messages one by one, release it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_transport::{Backoff, Wish};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::arrival::{Counts, Origin, Taken, is_lasting};
use super::inbox::{Inbox, Source};
use super::session::{HeldSession, Left, Session, early};
use crate::connection::LONGEST_BACKOFF;
use crate::convert::later::later;
use crate::error::{Refusal, WireError};
use crate::options::Sessions;
use crate::receipt::InFlight;
use crate::wire::{Accepted, Arrived, SettleAs, Wire, WireReceiver};

/// The least time to wait for the first message of a session, however short the idle time is. The broker chose the session because
/// it has a message. Releasing the session before that message comes would accept it forever without a delivery.
const FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(1);

/// Holds one session at a time.
pub(crate) struct SessionIntake {
    origin: Origin,
    source: Source,
    /// Its number among the intakes of its entity: those beyond the limit of deliveries in flight do nothing.
    number: u32,
    sessions: Sessions,
    /// Bounds how many intakes wait for a session.
    accepting: Arc<Semaphore>,
    backoff: Backoff,
}

/// What an intake does while it holds a session.
#[derive(Clone, Copy, Debug)]
enum Now {
    /// One message was asked for; if none comes until then, the session is released.
    Asking(Instant),
    /// A message is in flight.
    Handing,
    /// The first message waits for its next attempt, and all that follow with it.
    Resting(Instant),
}

impl SessionIntake {
    /// The intakes of one entity.
    pub(crate) fn all(origin: &Origin, inbox: &Inbox, sessions: Sessions) -> Vec<Self> {
        let accepting = Arc::new(Semaphore::new(sessions.accepting as usize));
        let intake = |number: u32| Self {
            origin: origin.clone(),
            source: inbox.source(),
            number,
            sessions,
            accepting: Arc::clone(&accepting),
            backoff: Backoff::up_to(LONGEST_BACKOFF),
        };
        (0..sessions.concurrent).map(intake).collect()
    }

    /// Takes deliveries until the transport is closed.
    pub(crate) async fn run(mut self) {
        while let Some(limit) = self.source.wanted().await {
            let taken = if self.number >= limit { None } else { Some(self.take(limit).await) };
            let again = match taken {
                Some(Ok(())) => continue,
                Some(Err(error)) if error.is_lock_lost() => {
                    info!(entity = %self.origin.path, %error, "a session was lost; accepting another");
                    continue;
                }
                Some(Err(error)) if !is_lasting(&error) => {
                    warn!(entity = %self.origin.path, %error, "a session was interrupted, or none accepted; trying again");
                    if error.refusal != Refusal::NoSession {
                        let error =
                            error.into_error(&format!("accepting a session of `{}`", self.origin.path));
                        self.origin.shared.locks.tell_connection(Err(error));
                    }
                    true
                }
                Some(Err(error)) => {
                    self.source
                        .fail(error.into_error(&format!("accepting a session of `{}`", self.origin.path)));
                    false
                }
                None => false,
            };
            let wait = if again { self.backoff.next_wait() } else { Duration::MAX };
            tokio::select! {
                () = sleep(wait), if again => {}
                _ = self.source.changed() => {}
            }
        }
    }

    fn goes_on(&self) -> bool {
        matches!(self.source.wish(), Wish::Deliveries(limit) if self.number < limit)
    }

    /// Accepts a session and holds it for as long as it has messages.
    async fn take(&mut self, limit: u32) -> Result<(), WireError> {
        let asked = Instant::now();
        let mut wishes = self.source.wishes();
        let (connection, path) = (Arc::clone(&self.origin.shared.connection), Arc::clone(&self.origin.path));
        let (accepting, wait) = (Arc::clone(&self.accepting), self.sessions.wait);
        let accepted = async move {
            let Ok(turn) = accepting.acquire_owned().await else { return Ok(None) };
            let wire = connection.connection().await?;
            let accepted = wire.accept(&path, wait).await?;
            Ok(accepted.map(|accepted| (turn, wire, accepted)))
        };
        let accepted = tokio::select! {
            biased;
            () = wishes.other_than(limit) => return Ok(()),
            accepted = accepted => accepted,
        };
        let accepted = accepted?;
        self.origin.shared.locks.tell_connection(Ok(()));
        match accepted {
            Some((turn, wire, accepted)) => {
                self.backoff.reset();
                self.hold(wire, accepted, turn).await
            }
            // None is free. The broker should have waited before it answered that.
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
        // If the first message does not come, the turn is kept until the session is released: else the next one to accept would get
        // the session after it.
        let mut turn = Some(turn);
        let Accepted { place, mut receiver, locked_until } = accepted;
        debug!(entity = %self.origin.path, session = %place.id, "accepted a session");
        let longest = self.origin.shared.options.max_lock_renewal;
        let held = HeldSession::begin(place, &wire, &self.origin.path, locked_until, longest);
        let served = self.serve(&*wire, &held.session, &mut *receiver, &mut turn).await;
        if served.is_err() {
            // Before the loss signal: whoever receives that may ask at once.
            self.origin.shared.locks.tell_interruption();
        }
        debug!(entity = %self.origin.path, session = %held.session.place.id, "released a session");
        // Before the link ends: the message in flight is lost with it.
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
        // The next session is accepted after the first message is here: sessions begin in the order in which they are free.
        let mut now = self.ask(receiver, self.sessions.idle.max(FIRST_MESSAGE_WAIT)).await?;
        loop {
            let (until, waits) = match now {
                Now::Asking(until) | Now::Resting(until) => (until, true),
                Now::Handing => (Instant::now(), false),
            };
            tokio::select! {
                biased;
                wish = self.source.changed() => {
                    match wish {
                        // Nothing has stopped: a message may be asked for.
                        Wish::Deliveries(_) => {}
                        Wish::Nothing if !matches!(now, Now::Asking(_)) => self.source.stopped(),
                        // What was asked for is given back with the link, and not counted.
                        Wish::Nothing | Wish::End => return Ok(()),
                    }
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

    /// Asks for one message, and for no other before that one is settled.
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
                self.origin.dead_letter_undecodable(lock, &why, Some(&session.place)).await;
                return self.ask(receiver, self.sessions.idle).await;
            }
        };
        let limit = self.origin.shared.options.longest_rest();
        if let Some(rest) = early(&incoming, SystemTime::now()).filter(|&rest| rest <= limit)
            && receiver.handle().release(&tag).await
        {
            // It waits for its next attempt, and the consumer that made it wait no longer holds the session.
            return Ok(Now::Resting(later(Instant::now(), rest)));
        }
        session.take();
        let handed_out = incoming.delivery_count.saturating_sub(incoming.counted_before()).saturating_add(1);
        let taken = Taken {
            lock,
            tag,
            handle: receiver.handle(),
            lost: Arc::clone(&session.lost),
            in_flight: Arc::new(InFlight::default()),
            session: Some(Arc::clone(session)),
            counts: Counts { handed_out, failed_in_place: 0 },
        };
        self.origin.hand_on(incoming, taken, &self.source);
        Ok(Now::Handing)
    }

    /// Gives the message back, counted, before the next one is asked for: it comes first again.
    async fn give_back(&self, lock: Uuid, wire: &dyn Wire, session: &Session) -> Result<(), WireError> {
        let how = SettleAs::abandon().within(Some(&session.place));
        wire.settle(&self.origin.path, &[lock], &how).await
    }
}
