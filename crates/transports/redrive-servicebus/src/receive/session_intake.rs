//! Receives from an entity with sessions: accepts the next session, passes its messages on one by one, and releases it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_transport::{ReconnectBackoff, Wish};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::arrival::{ArrivalContext, ConsumedEntity, Counts};
use super::inbox::{Inbox, Source};
use crate::connection::LONGEST_BACKOFF;
use crate::convert::later::later;
use crate::error::{Refusal, WireError};
use crate::locks::ReceivingLink;
use crate::locks::session::{FollowUp, HeldSession, Session, remaining_wait};
use crate::options::Sessions;
use crate::receipt::InFlightCount;
use crate::topology;
use crate::wire::{Accepted, Arrived, SettleAs, Wire, WireReceiver};

/// The minimum time to wait for the first message of a session, even if the idle time is shorter. The broker offers a session
/// that has a message. Releasing it earlier would accept the same session forever without a delivery.
const FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(1);

/// The time within which the broker refuses a request for a session, if it does. Otherwise it waits for one.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);

/// Receives from one session at a time.
pub(crate) struct SessionIntake {
    consumed: ConsumedEntity,
    source: Source,
    /// Its number among the intakes of its entity. Intakes beyond the limit of deliveries in flight are idle.
    number: u32,
    sessions: Sessions,
    /// Bounds the number of intakes that wait for a session.
    accepting: Arc<Semaphore>,
    backoff: ReconnectBackoff,
    /// The connection of the last attempt. `None`: there was none.
    wire: Option<Arc<dyn Wire>>,
    /// False after a failure: the entity is compared with the options before the next session.
    is_verified: bool,
}

/// The phase of an intake that holds a session.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// One message was requested. If none arrives until this time, the session is released.
    Requested(Instant),
    /// A message is in flight.
    InFlight,
    /// The first message waits for its next attempt until this time, and all later ones wait with it.
    Resting(Instant),
}

/// An accepted session, before it is held.
struct Taken {
    wire: Arc<dyn Wire>,
    accepted: Accepted,
    turn: OwnedSemaphorePermit,
    receiving: ReceivingLink,
}

/// The error of a session that was held, or could not be accepted.
struct TakeError {
    error: WireError,
    /// True if messages of the session arrived.
    took_messages: bool,
}

impl From<WireError> for TakeError {
    fn from(error: WireError) -> Self {
        Self { error, took_messages: false }
    }
}

impl SessionIntake {
    /// Creates the intakes of one entity.
    pub(crate) fn all(consumed: &ConsumedEntity, inbox: &Inbox, sessions: Sessions) -> Vec<Self> {
        let accepting = Arc::new(Semaphore::new(sessions.accepting as usize));
        let intake = |number: u32| Self {
            consumed: consumed.clone(),
            source: inbox.source(),
            number,
            sessions,
            accepting: Arc::clone(&accepting),
            backoff: ReconnectBackoff::up_to(LONGEST_BACKOFF),
            wire: None,
            is_verified: true,
        };
        (0..sessions.concurrent).map(intake).collect()
    }

    /// Receives until the transport is closed.
    pub(crate) async fn run(mut self) {
        while let Some(limit) = self.source.wanted().await {
            let taken = if self.number >= limit { None } else { Some(self.take(limit).await) };
            let again = match taken {
                Some(Ok(())) => continue,
                Some(Err(TakeError { error, took_messages: true })) if error.is_lock_lost() => {
                    info!(entity = %self.consumed.path, %error, "a session was lost; accepting another");
                    continue;
                }
                Some(Err(TakeError { error, .. })) => {
                    warn!(entity = %self.consumed.path, %error, "a session was interrupted, or none could be accepted; trying again");
                    self.is_verified = false;
                    self.consumed.refused(error, self.wire.as_ref()).await;
                    true
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

    fn is_active(&self) -> bool {
        matches!(self.source.wish(), Wish::Deliveries(limit) if self.number < limit)
    }

    /// Accepts a session and holds it for as long as it has messages.
    async fn take(&mut self, limit: u32) -> Result<(), TakeError> {
        let mut wishes = self.source.wishes();
        let accepted = tokio::select! {
            biased;
            () = wishes.other_than(limit) => return Ok(()),
            accepted = self.accept_next() => accepted?,
        };
        self.is_verified = true;
        match accepted {
            Some(accepted) => self.hold(accepted).await,
            None => Ok(()),
        }
    }

    /// Accepts the next session, or returns `None` if none became free in time.
    async fn accept_next(&mut self) -> Result<Option<Taken>, WireError> {
        let ConsumedEntity { shared, path, .. } = &self.consumed;
        let Ok(turn) = Arc::clone(&self.accepting).acquire_owned().await else { return Ok(None) };
        self.wire = None;
        let wire = shared.connection.connection().await?;
        self.wire = Some(Arc::clone(&wire));
        if !self.is_verified {
            topology::fits(&*wire, path, true).await?;
        }
        let requested_at = Instant::now();
        let mut receiving = None;
        let mut accepting = wire.accept(path, self.sessions.wait);
        let accepted = tokio::select! {
            accepted = &mut accepting => accepted,
            // Not refused: there is no session yet, and there may be none for long.
            () = sleep(REFUSED_WITHIN) => {
                receiving = Some(shared.locks.receiving(path));
                (&mut accepting).await
            }
        };
        drop(accepting);
        match accepted {
            Ok(accepted) => {
                let receiving = receiving.unwrap_or_else(|| shared.locks.receiving(path));
                Ok(Some(Taken { wire, accepted, turn, receiving }))
            }
            // If the broker does not wait, that is a refusal.
            Err(error)
                if error.refusal == Refusal::NoSession
                    && requested_at.elapsed() >= self.sessions.wait / 2 =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn hold(&mut self, taken: Taken) -> Result<(), TakeError> {
        // Until the end of this call: the session is held.
        let Taken { wire, accepted, turn, receiving: _receiving } = taken;
        // The turn ends with the first message, or with the session: otherwise the next intake would accept the session after
        // this one, and sessions would start out of order.
        let mut turn = Some(turn);
        let Accepted { reference, mut receiver, locked_until } = accepted;
        debug!(entity = %self.consumed.path, session = %reference.id, "accepted a session");
        let longest = self.consumed.shared.options.max_lock_renewal;
        let held = HeldSession::begin(reference, &wire, &self.consumed.path, locked_until, longest);
        let served = self.serve(&*wire, &held.session, &mut *receiver, &mut turn).await;
        let took_messages = turn.is_none();
        if served.is_err() {
            // Before the loss signal: its receiver may look for the interruption at once.
            self.consumed.shared.locks.signal_interruption();
        }
        if served.is_ok() || took_messages {
            // Not when accepting: a session that is always lost at once is not a success.
            self.backoff.reset();
        }
        debug!(entity = %self.consumed.path, session = %held.session.reference.id, "released a session");
        // Before the link ends: the message in flight is lost with the session.
        drop(held);
        receiver.close().await;
        served.map_err(|error| TakeError { error, took_messages })
    }

    async fn serve(
        &mut self,
        wire: &dyn Wire,
        session: &Arc<Session>,
        receiver: &mut dyn WireReceiver,
        turn: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<(), WireError> {
        // The next session is accepted after the first message arrived, so that sessions start in the order in which they become
        // free.
        let mut phase = self.request(receiver, self.sessions.idle.max(FIRST_MESSAGE_WAIT)).await?;
        loop {
            let (until, waits) = match phase {
                Phase::Requested(until) | Phase::Resting(until) => (until, true),
                Phase::InFlight => (Instant::now(), false),
            };
            tokio::select! {
                biased;
                wish = self.source.changed() => {
                    match wish {
                        // Receiving continues: a message may be requested.
                        Wish::Deliveries(_) => {}
                        Wish::Nothing if !matches!(phase, Phase::Requested(_)) => self.source.stopped(),
                        // The requested message is released with the link, which counts no delivery.
                        Wish::Nothing | Wish::End => return Ok(()),
                    }
                }
                () = session.gone() => {
                    return Err(WireError::new(Refusal::SessionLockLost, "the lock of the session is lost"));
                }
                arrived = receiver.next() => {
                    phase = self.accept(arrived?, session, receiver).await?;
                    turn.take();
                }
                follow_up = session.freed() => {
                    if let Some(lock) = follow_up.give_back {
                        self.give_back(lock, wire, session).await?;
                    }
                    phase = self.after(&follow_up, receiver).await?;
                }
                () = sleep_until(until), if waits => match phase {
                    Phase::Resting(_) if self.is_active() => phase = self.request(receiver, self.sessions.idle).await?,
                    _ => return Ok(()),
                },
                () = wire.ended() => return Err(WireError::interrupted("the connection ended")),
            }
        }
    }

    /// Requests one message. The next one is requested when that one is settled.
    async fn request(&self, receiver: &mut dyn WireReceiver, wait: Duration) -> Result<Phase, WireError> {
        receiver.allow(1).await?;
        Ok(Phase::Requested(later(Instant::now(), wait)))
    }

    async fn after(&self, follow_up: &FollowUp, receiver: &mut dyn WireReceiver) -> Result<Phase, WireError> {
        match follow_up.rest_until {
            Some(until) => Ok(Phase::Resting(until)),
            None if self.is_active() => self.request(receiver, self.sessions.idle).await,
            // The session is released at once.
            None => Ok(Phase::Resting(Instant::now())),
        }
    }

    async fn accept(
        &self,
        arrived: Arrived,
        session: &Arc<Session>,
        receiver: &mut dyn WireReceiver,
    ) -> Result<Phase, WireError> {
        let Arrived { lock, tag, message } = arrived;
        let incoming = match message {
            Ok(incoming) => *incoming,
            Err(why) => {
                self.consumed.dead_letter_undecodable(lock, &why, Some(&session.reference)).await;
                return self.request(receiver, self.sessions.idle).await;
            }
        };
        let longest = self.consumed.shared.options.longest_rest();
        if let Some(rest) = remaining_wait(&incoming, longest, SystemTime::now())
            && receiver.handle().release(&tag).await
        {
            // The message waits for its next attempt, and the consumer that gave it back no longer holds the session.
            return Ok(Phase::Resting(later(Instant::now(), rest)));
        }
        session.take();
        let broker_delivery_count =
            incoming.delivery_count.saturating_sub(incoming.counted_before()).saturating_add(1);
        let taken = ArrivalContext {
            lock,
            tag,
            handle: receiver.handle(),
            lost: Arc::clone(&session.lost),
            in_flight: Arc::new(InFlightCount::default()),
            session: Some(Arc::clone(session)),
            counts: Counts { broker_delivery_count, failures_in_place: 0 },
        };
        self.consumed.deliver(incoming, taken, &self.source);
        Ok(Phase::InFlight)
    }

    /// Abandons the message, which counts a delivery, before the next one is requested: it comes first again.
    async fn give_back(&self, lock: Uuid, wire: &dyn Wire, session: &Session) -> Result<(), WireError> {
        let how = SettleAs::abandon().within(Some(&session.reference));
        wire.settle(&self.consumed.path, &[lock], &how).await
    }
}
