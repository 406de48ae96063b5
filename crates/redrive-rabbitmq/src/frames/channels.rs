//! The channels of one connection whose deliveries and copies do not go through the client library.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::task::AtomicWaker;
use redrive_core::Bytes;

use super::confirms::{Confirms, CopyChannel, Ended};
use super::deliveries::{DeliveryQueue, Queue};

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
    deliveries: HashMap<u16, Arc<Queue>>,
    copies: HashMap<u16, Copies>,
    /// Frames that wait to be written.
    waiting: VecDeque<Unit>,
    /// Set once the connection has ended: the library may not know it yet.
    ended: Option<Ended>,
}

#[derive(Debug)]
struct Copies {
    confirms: Arc<Confirms>,
    /// Set once the broker has ended the channel: the library has not answered yet.
    ending: Option<Ended>,
}

/// Frames of whole messages, which are written without a frame of somebody else between them.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) channel: u16,
    pub(super) pieces: VecDeque<Bytes>,
}

impl OwnChannels {
    /// Takes the deliveries of this channel from now on, until the channel ends.
    pub(crate) fn take_deliveries(&self, channel: u16) -> DeliveryQueue {
        let queue = Arc::<Queue>::default();
        self.state().deliveries.insert(channel, Arc::clone(&queue));
        DeliveryQueue::new(queue)
    }

    /// Takes the confirms of this channel from now on, until the channel ends. It is in confirm mode, and nobody else publishes on it.
    pub(crate) fn take_confirms(&self, channel: u16) -> CopyChannel {
        let confirms = Arc::<Confirms>::default();
        let mut state = self.state();
        match &state.ended {
            Some(why) => confirms.end(why.clone()),
            None => {
                state.copies.insert(channel, Copies { confirms: Arc::clone(&confirms), ending: None });
            }
        }
        drop(state);
        CopyChannel::new(channel, self.clone(), confirms)
    }

    pub(super) fn deliveries_of(&self, channel: u16) -> Option<Arc<Queue>> {
        self.state().deliveries.get(&channel).cloned()
    }

    pub(super) fn confirms_of(&self, channel: u16) -> Option<Arc<Confirms>> {
        self.state().copies.get(&channel).map(|copies| Arc::clone(&copies.confirms))
    }

    /// Adds frames to those that wait, unless the channel has ended.
    pub(super) fn write(&self, unit: Unit, confirms: &Arc<Confirms>) {
        let mut state = self.state();
        let is_open = |copies: &Copies| Arc::ptr_eq(&copies.confirms, confirms) && copies.ending.is_none();
        if state.copies.get(&unit.channel).is_some_and(is_open) {
            state.waiting.push_back(unit);
            drop(state);
            self.0.writer.wake();
        }
    }

    /// Returns the frames that are written next.
    pub(super) fn next(&self) -> Option<Unit> {
        self.state().waiting.pop_front()
    }

    /// Wakes this task when frames wait.
    pub(super) fn wake_for_frames(&self, cx: &std::task::Context<'_>) {
        self.0.writer.register(cx.waker());
    }

    /// The broker has ended the channel: nothing more is written on it. Its callers hear of it once the library has answered, and knows it
    /// too: the library ends its connection if a channel is closed that it takes for open.
    pub(super) fn broker_ends(&self, channel: u16, why: Ended) {
        let mut state = self.state();
        state.deliveries.remove(&channel);
        if let Some(copies) = state.copies.get_mut(&channel) {
            copies.ending.get_or_insert(why);
            state.waiting.retain(|unit| unit.channel != channel);
        }
    }

    /// The channel is over for the broker. The number may belong to another channel from now on.
    pub(super) fn broker_has_ended(&self, channel: u16) {
        self.state().deliveries.remove(&channel);
    }

    /// The library is about to end the channel, or to answer to its end: nothing more may be written on it.
    pub(super) fn library_ends(&self, channel: u16) {
        let mut state = self.state();
        let Some(Copies { confirms, ending }) = state.copies.remove(&channel) else { return };
        state.waiting.retain(|unit| unit.channel != channel);
        drop(state);
        confirms.end(ending.unwrap_or_default());
    }

    /// The connection has ended, or is about to.
    pub(super) fn connection_ended(&self, why: &Ended) {
        let mut state = self.state();
        state.waiting.clear();
        state.ended.get_or_insert_with(|| why.clone());
        let copies = std::mem::take(&mut state.copies);
        drop(state);
        for Copies { confirms, ending } in copies.into_values() {
            confirms.end(ending.unwrap_or_else(|| why.clone()));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_waits_on_a_connection_that_has_ended() {
        let channels = OwnChannels::default();
        let before = channels.take_confirms(1);
        channels.connection_ended(&Ended::default());
        let after = channels.take_confirms(2);
        for copies in [before, after] {
            let message = crate::frames::Written { header: Bytes::new(), body: Bytes::new() };
            assert!(copies.publish(vec![message], VecDeque::new()).await.is_err());
        }
        assert!(channels.next().is_none());
    }

    fn unit(channel: u16) -> Unit {
        Unit { channel, pieces: VecDeque::new() }
    }

    #[test]
    fn a_number_of_a_channel_is_used_again() {
        let channels = OwnChannels::default();
        let _consumer = channels.take_deliveries(1);
        let _copies = channels.take_confirms(1);
        channels.broker_ends(1, Ended::default());
        channels.library_ends(1);
        assert!(channels.deliveries_of(1).is_none() && channels.confirms_of(1).is_none());
    }

    #[test]
    fn nothing_is_written_on_a_channel_that_has_ended() {
        let channels = OwnChannels::default();
        let (_first, _other) = (channels.take_confirms(1), channels.take_confirms(2));
        let (first, other) = (channels.confirms_of(1).unwrap(), channels.confirms_of(2).unwrap());
        channels.write(unit(1), &first);
        channels.write(unit(2), &other);
        channels.broker_ends(1, Ended::default());
        channels.write(unit(1), &first);
        channels.library_ends(1);
        channels.write(unit(1), &first);
        let _next = channels.take_confirms(1);
        channels.write(unit(1), &first);
        assert_eq!(channels.next().map(|unit| unit.channel), Some(2));
        assert!(channels.next().is_none());
    }
}
