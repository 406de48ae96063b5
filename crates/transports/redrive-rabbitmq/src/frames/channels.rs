//! The channels of one connection whose messages do not go through the client library.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::task::Context;

use futures::task::AtomicWaker;
use parking_lot::{Mutex, MutexGuard};
use redrive_core::Bytes;
use redrive_core::transport::Origin;
use tokio::sync::oneshot;

use super::confirms::Confirms;
use super::deliveries::Queue;
use super::ended::Ended;

/// The channels of one connection. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnChannels(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Woken when frames wait.
    writer: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    channels: HashMap<u16, Entry>,
    /// Channels for questions that the broker may answer by closing them.
    asking: HashMap<u16, CloseReason>,
    /// Number of channels so far.
    registered: u64,
    /// Frames that wait to be written.
    waiting: VecDeque<Unit>,
    /// The library closes the connection.
    library_closes: bool,
    /// Set once the connection ends: the library may not know it yet.
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Entry {
    /// Tells it from earlier channels of the same number.
    id: u64,
    inbound: Inbound,
    /// Set once one side ends the channel: nothing more is written on it.
    ending: Option<Ended>,
}

/// What is taken of the frames that the broker sends on a channel.
#[derive(Clone, Debug, Default)]
enum Inbound {
    #[default]
    Nothing,
    /// Deliveries, and the answers to `basic.get`.
    Deliveries(Arc<Queue>),
    /// Confirms, and returned messages.
    Confirms(Arc<Confirms>),
}

impl Inbound {
    /// Nothing more comes.
    fn end(&self, why: Ended) {
        match self {
            Self::Nothing => {}
            Self::Deliveries(queue) => queue.end(why),
            Self::Confirms(confirms) => confirms.end(why),
        }
    }
}

/// Why the broker closed a channel for questions, once it has. The library does not know: it would log an error.
#[derive(Clone, Debug, Default)]
pub(crate) struct CloseReason(Arc<OnceLock<Ended>>);

impl CloseReason {
    /// Returns the reason as the library would say it.
    pub(crate) fn error(&self) -> Option<lapin::Error> {
        self.0.get().cloned().map(Into::into)
    }
}

/// Frames of whole messages or methods, which are written without a frame of somebody else between them.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) channel: u16,
    pub(super) pieces: VecDeque<Bytes>,
    /// Told when all of it is written; dropped if it never will be.
    pub(super) written: oneshot::Sender<()>,
}

/// An open channel.
#[derive(Debug)]
pub(crate) struct OwnChannel {
    number: u16,
    id: u64,
    channels: OwnChannels,
}

impl OwnChannel {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Takes the deliveries of this channel from now on.
    pub(super) fn take_deliveries(&self, origin: Origin) -> Arc<Queue> {
        let queue = Arc::new(Queue::new(origin));
        self.take(&Inbound::Deliveries(Arc::clone(&queue)));
        queue
    }

    /// Takes the confirms of this channel from now on. It is in confirm mode, and the library publishes nothing on it.
    pub(super) fn take_confirms(&self) -> Arc<Confirms> {
        let confirms = Arc::<Confirms>::default();
        self.take(&Inbound::Confirms(Arc::clone(&confirms)));
        confirms
    }

    fn take(&self, inbound: &Inbound) {
        let mut state = self.channels.state();
        let ended = match state.entry(self) {
            Some(entry) => {
                entry.inbound = inbound.clone();
                entry.ending.clone()
            }
            None => Some(state.ended.clone().unwrap_or_default()),
        };
        drop(state);
        if let Some(why) = ended {
            inbound.end(why);
        }
    }

    /// Passes frames to the connection at once. The future is ready when they are written, and need not be awaited.
    ///
    /// # Errors
    /// If the channel ends before.
    pub(crate) fn write(
        &self,
        pieces: VecDeque<Bytes>,
    ) -> impl Future<Output = lapin::Result<()>> + Send + use<> {
        let (written, is_written) = oneshot::channel();
        let unit = Unit { channel: self.number, pieces, written };
        let mut state = self.channels.state();
        let is_open = state.ended.is_none();
        if is_open && state.entry(self).is_some_and(|entry| entry.ending.is_none()) {
            state.waiting.push_back(unit);
            drop(state);
            self.channels.0.writer.wake();
        }
        let (channels, number, id) = (self.channels.clone(), self.number, self.id);
        async move { is_written.await.map_err(|_| channels.end_of(number, id).into()) }
    }
}

impl State {
    fn entry(&mut self, channel: &OwnChannel) -> Option<&mut Entry> {
        self.channels.get_mut(&channel.number).filter(|entry| entry.id == channel.id)
    }

    /// Stops writing on the channel. Returns what is taken of it.
    fn end(&mut self, channel: u16, why: Ended) -> Inbound {
        let Some(entry) = self.channels.get_mut(&channel) else { return Inbound::Nothing };
        entry.ending.get_or_insert(why);
        self.waiting.retain(|unit| unit.channel != channel);
        entry.inbound.clone()
    }
}

impl OwnChannels {
    /// Adds a channel that the library has opened.
    pub(crate) fn register(&self, number: u16) -> OwnChannel {
        let mut state = self.state();
        state.registered += 1;
        let id = state.registered;
        let ending = state.ended.clone();
        state.channels.insert(number, Entry { id, inbound: Inbound::Nothing, ending });
        OwnChannel { number, id, channels: self.clone() }
    }

    pub(super) fn deliveries_of(&self, channel: u16) -> Option<Arc<Queue>> {
        match self.state().channels.get(&channel)? {
            Entry { ending: Some(Ended::ByTheBroker(..)), .. } => None,
            Entry { inbound: Inbound::Deliveries(queue), .. } => Some(Arc::clone(queue)),
            _ => None,
        }
    }

    pub(super) fn confirms_of(&self, channel: u16) -> Option<Arc<Confirms>> {
        match &self.state().channels.get(&channel)?.inbound {
            Inbound::Confirms(confirms) => Some(Arc::clone(confirms)),
            _ => None,
        }
    }

    /// Returns the frames that are written next: of this channel, or of any.
    pub(super) fn next(&self, of: Option<u16>) -> Option<Unit> {
        let waiting = &mut self.state().waiting;
        let at = waiting.iter().position(|unit| of.is_none_or(|channel| channel == unit.channel))?;
        waiting.remove(at)
    }

    /// Wakes this task when frames wait.
    pub(super) fn wake_for_frames(&self, cx: &Context<'_>) {
        self.0.writer.register(cx.waker());
    }

    /// The broker ends the channel: nothing more is written on it. Those who wait for an answer hear of it once the library has answered,
    /// and knows it too: it ends its connection if a channel is closed that it takes for open.
    pub(super) fn broker_ends(&self, channel: u16, why: Ended) {
        let _later = self.state().end(channel, why);
    }

    /// The library ends the channel: nothing more may be written on it. The broker still answers for what was written before.
    pub(super) fn library_ends(&self, channel: u16) {
        let inbound = self.state().end(channel, Ended::default());
        inbound.end(Ended::default());
    }

    /// One side has answered to the end of the channel by the other. The number may belong to another channel from now on.
    pub(super) fn is_over(&self, channel: u16) {
        let mut state = self.state();
        state.asking.remove(&channel);
        state.waiting.retain(|unit| unit.channel != channel);
        let Some(Entry { inbound, ending, .. }) = state.channels.remove(&channel) else { return };
        drop(state);
        inbound.end(ending.unwrap_or_default());
    }

    /// Makes an open channel of the library one for questions that the broker may answer by closing it.
    pub(crate) fn ask_on(&self, number: u16) -> CloseReason {
        let reason = CloseReason::default();
        self.state().asking.insert(number, reason.clone());
        reason
    }

    /// Keeps why the broker closes a channel. Returns true if it is one for questions.
    pub(super) fn is_answered(&self, channel: u16, why: Ended) -> bool {
        let asking = self.state().asking.remove(&channel);
        asking.is_some_and(|reason| reason.0.set(why).is_ok())
    }

    /// The library closes the connection, and all channels with it.
    pub(super) fn library_closes(&self) {
        self.state().library_closes = true;
    }

    pub(super) fn is_closed_by_library(&self) -> bool {
        self.state().library_closes
    }

    /// The connection ends: nothing more is written on it.
    pub(super) fn connection_ends(&self, why: Ended) {
        let mut state = self.state();
        state.ended.get_or_insert(why);
        state.waiting.clear();
    }

    /// The connection has ended.
    pub(super) fn connection_has_ended(&self, why: Ended) {
        self.connection_ends(why);
        let mut state = self.state();
        let why = state.ended.clone().unwrap_or_default();
        let channels = std::mem::take(&mut state.channels);
        drop(state);
        for Entry { inbound, ending, .. } in channels.into_values() {
            inbound.end(ending.unwrap_or_else(|| why.clone()));
        }
    }

    fn end_of(&self, channel: u16, id: u64) -> Ended {
        let state = self.state();
        let entry = state.channels.get(&channel).filter(|entry| entry.id == id);
        let ending = entry.and_then(|entry| entry.ending.clone());
        ending.or_else(|| state.ended.clone()).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

#[cfg(test)]
#[path = "channels_tests.rs"]
mod tests;
