//! Scans one shelf.

use std::collections::{HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use lapin::options::BasicQosOptions;
use redrive_core::shelves::{EntryHandle, Holder, Shelved};
use redrive_core::{Message, Shelf, TransportError};
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::delivery_limit::{self, ReadEffect};
use super::fingerprint::Fingerprint;
use super::numbers::{Name, Numbers, TakenNumbers};
use super::open_scans::OpenScan;
use super::owners::Owners;
use super::refusal;
use super::turn::Turn;
use super::window;
use crate::broker::{Version, deaths, delivery_count};
use crate::connection::{Connection, joined, while_open};
use crate::convert;
use crate::delivery_channel::DeliveryChannel;
use crate::error;
use crate::frames::TakenDelivery;
use crate::receipt::Receipt;
use crate::topology::{self, QueueState};

/// Number of messages that one refusal gives back: before 4.3, a quorum queue does not keep the order of more.
const GIVEN_BACK_AT_ONCE: usize = 32;
/// Number of refusals that are sent together: RabbitMQ combines them when about 32 wait for a quorum queue.
const REFUSED_TOGETHER: usize = 16;
/// Time limit for the broker to count what it got back, while another client consumes the queue and may take it before.
const COUNTED_WITHIN: Duration = Duration::from_millis(250);
/// The same while nobody else consumes it. A broker that waits for its disk, or gets no processor, answers long before it has processed.
const COUNTED_ALONE_WITHIN: Duration = Duration::from_secs(5);

/// The messages of a window, and how many are left to take.
type Taking = (Vec<TakenDelivery>, u32);

/// A message in flight that the scan has not returned yet.
struct Read {
    message: Message,
    tag: u64,
    redelivered: bool,
    whole: bool,
}

impl Read {
    fn from(taken: TakenDelivery) -> Self {
        let TakenDelivery { tag, redelivered, header, body, .. } = taken;
        let (message, left_out) = convert::read(&header, body);
        Self { message, tag, redelivered, whole: left_out.is_none() }
    }

    /// Returns true if a quorum queue has delivered this message before. A message that it dead-lettered may only seem so.
    fn came_back_to_a_quorum_queue(&self) -> bool {
        self.redelivered && delivery_count::HEADERS.iter().any(|name| self.message.headers().contains(name))
    }
}

/// A message of the shelf, in flight.
pub(super) struct Found {
    pub(super) name: Name,
    pub(super) shelved: Shelved,
    pub(super) tag: u64,
    /// False if it was read without some of its headers.
    pub(super) whole: bool,
}

/// A scan of one shelf. If it is dropped before its [end](Self::end), it ends a little later.
pub(super) struct ShelfScan(Option<Scan>);

impl ShelfScan {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the scan")]
    pub(super) fn new(
        connection: Arc<Connection>,
        channel: Arc<DeliveryChannel>,
        queue: String,
        shelf: Shelf,
        taken: Arc<TakenNumbers>,
        owners: Arc<Owners>,
        read_effect: ReadEffect,
        turn: Turn,
        open: OpenScan,
    ) -> Self {
        Self(Some(Scan {
            connection,
            channel,
            queue,
            shelf,
            taken,
            owners,
            read_effect,
            numbers: Numbers::default(),
            left: None,
            window: 1,
            taking: None,
            largest_body: 0,
            window_ends: Vec::new(),
            moves: false,
            ahead: VecDeque::new(),
            held: Vec::new(),
            in_hand: None,
            passed: HashSet::new(),
            permit: None,
            began: Instant::now(),
            turn,
            asks_for_holders: false,
            holder: None,
            _open: open,
        }))
    }

    /// Gives kept messages back in their order. When it resolves, the next scan sees them. Returns who may have held messages meanwhile,
    /// if that was [asked](Scan::look_for_holders).
    ///
    /// Cancel safe: everything is given back, a little later.
    pub(super) async fn end(mut self) -> Result<Option<Holder>, TransportError> {
        match self.begin_end() {
            Some(ending) => joined(ending.await),
            None => Ok(None),
        }
    }

    /// `None` outside of a runtime: the broker takes everything back with the channel, perhaps in another order.
    fn begin_end(&mut self) -> Option<JoinHandle<Result<Option<Holder>, TransportError>>> {
        let scan = self.0.take()?;
        Handle::try_current().ok().map(|runtime| runtime.spawn(scan.end()))
    }
}

impl Deref for ShelfScan {
    type Target = Scan;

    fn deref(&self) -> &Scan {
        self.0.as_ref().expect("it has not ended")
    }
}

impl DerefMut for ShelfScan {
    fn deref_mut(&mut self) -> &mut Scan {
        self.0.as_mut().expect("it has not ended")
    }
}

impl Drop for ShelfScan {
    fn drop(&mut self) {
        self.begin_end();
    }
}

/// A scan on its own channel. It returns only messages that are there at the beginning.
pub(super) struct Scan {
    connection: Arc<Connection>,
    channel: Arc<DeliveryChannel>,
    queue: String,
    shelf: Shelf,
    taken: Arc<TakenNumbers>,
    owners: Arc<Owners>,
    read_effect: ReadEffect,
    numbers: Numbers,
    /// Number of those messages that are not requested yet; the first answer tells it. (A passive declaration is late for a quorum
    /// queue: directly after a confirmed publish it can still report 0.)
    left: Option<u32>,
    /// Size of the last window.
    window: u32,
    /// The window that is being taken, on its own task: if nobody waits for it any more, its messages still must be given back.
    taking: Option<JoinHandle<Result<Taking, TransportError>>>,
    largest_body: usize,
    /// The last message of each window.
    window_ends: Vec<u64>,
    /// True if what is given back now would stand behind messages that were behind it.
    moves: bool,
    /// In flight, and not returned yet.
    ahead: VecDeque<Read>,
    /// Messages to give back, in this order, and their names.
    held: Vec<u64>,
    /// The last one that was returned, until it is kept or removed.
    in_hand: Option<u64>,
    passed: HashSet<Name>,
    /// Released when everything is back.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    pub(super) began: Instant,
    turn: Turn,
    asks_for_holders: bool,
    holder: Option<Holder>,
    /// Dropped when everything is back.
    _open: OpenScan,
}

impl Scan {
    /// Returns the next message. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Found>, TransportError> {
        if self.ahead.is_empty() {
            self.take_window().await?;
        }
        let Some(Read { mut message, tag, whole, .. }) = self.ahead.pop_front() else { return Ok(None) };
        // Each look raises them: they are the queue's, and not part of the entry.
        message.headers_mut().retain(|name, _| !delivery_count::HEADERS.contains(&name));
        let name = self.numbers.next(&self.taken, self.shelf, Fingerprint::of(&message));
        let shelved = self.owners.mark(deaths::shelved(name.handle(self.shelf), message));
        self.in_hand = Some(tag);
        Ok(Some(Found { name, shelved, tag, whole }))
    }

    /// Returns true if there may be a next one.
    pub(super) fn has_more(&self) -> bool {
        !self.ahead.is_empty() || self.left != Some(0)
    }

    /// Keeps a message on the shelf.
    pub(super) fn keep(&mut self, found: &Found) {
        self.in_hand = None;
        self.held.push(found.tag);
        self.passed.insert(found.name);
    }

    /// Returns true if the scan keeps this entry on the shelf, or may do so: it is not redelivered.
    pub(super) fn has_passed(&self, entry: &EntryHandle) -> bool {
        Name::parse(entry.entry()).is_none_or(|name| self.passed.contains(&name))
    }

    /// Returns how many messages are held.
    pub(super) fn held(&self) -> u64 {
        (self.held.len() + self.ahead.len()) as u64
    }

    /// Returns who may hold messages that the scan does not see; its [end](ShelfScan::end) looks again, and tells it. Before anything is
    /// taken.
    pub(super) async fn look_for_holders(&mut self) -> Result<Option<Holder>, TransportError> {
        self.asks_for_holders = true;
        (_, self.holder) = self.turn.count(&self.connection, &self.queue).await?;
        Ok(self.holder)
    }

    /// Lets others have the turn, and keeps what is held. Nothing more may be fetched before the [next turn](Self::go_on).
    pub(super) async fn rest(&mut self) {
        std::mem::take(&mut self.turn).end().await;
    }

    /// Goes on with a turn, which is on [its connection](Self::connection).
    pub(super) fn go_on(&mut self, turn: Turn) {
        self.turn = turn;
    }

    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// Returns true while its messages can be settled.
    pub(super) fn is_live(&self) -> bool {
        self.channel.is_live()
    }

    /// Removes a message from the shelf.
    pub(super) async fn remove(&mut self, found: &Found) -> Result<(), TransportError> {
        self.in_hand = None;
        Receipt::new(found.tag, Arc::clone(&self.channel)).ack().await?;
        self.taken.note(self.shelf, found.name);
        Ok(())
    }

    /// Waits until the broker has processed what was removed.
    pub(super) async fn settled(&self) -> Result<(), TransportError> {
        self.channel.settle_down().await;
        let channel = self.channel.channel();
        // A request that changes nothing, behind all acknowledgements of the channel.
        let request = channel.basic_qos(1, BasicQosOptions { global: false });
        while_open(channel, request)
            .await
            .map_err(|cause| error::lost(error::said(&cause)).with_source(cause))?;
        self.channel.check()
    }

    /// Returns the name of a message that was stored on the shelf meanwhile.
    pub(super) fn name_of_stored(&mut self, fingerprint: Fingerprint) -> Name {
        self.numbers.next(&self.taken, self.shelf, fingerprint)
    }

    /// Takes the next messages. Cancel safe: they come with the next call.
    async fn take_window(&mut self) -> Result<(), TransportError> {
        if self.left == Some(0) {
            return Ok(());
        }
        let taking = self.taking.get_or_insert_with(|| {
            let (channel, queue) = (Arc::clone(&self.channel), self.queue.clone());
            let size = self.left.map(|left| window::next_size(self.window, self.largest_body, left));
            self.window = size.unwrap_or(1);
            tokio::spawn(take_window(channel, queue, self.left.zip(size)))
        });
        let ended = taking.await;
        self.taking = None;
        let (taken, left) = joined(ended)?;
        self.left = Some(left);
        self.ahead.extend(taken.into_iter().map(Read::from));
        let Some(last) = self.ahead.back() else { return Ok(()) };
        self.window_ends.push(last.tag);
        self.moves = self.read_effect == ReadEffect::MovesToTheEnd || last.came_back_to_a_quorum_queue();
        let bodies = self.ahead.iter().map(|read| read.message.body().len());
        self.largest_body = bodies.fold(self.largest_body, usize::max);
        let counts = self.ahead.iter().map(|read| delivery_count::returns(read.message.headers()));
        let highest = i64::from(counts.max().unwrap_or(0));
        if let ReadEffect::SafeBelow(limit) = self.read_effect
            && highest >= delivery_limit::refused_from(limit)
        {
            // Only this window is held, and only for a moment.
            self.left = Some(0);
            return Err(refusal::dies_with_the_process(&self.queue, limit, highest));
        }
        Ok(())
    }

    /// Gives kept messages back in their order, and waits until the broker has processed everything before the channel closes.
    ///
    /// A quorum queue puts them behind all that came back earlier and was not taken since. So that also is taken, and given back.
    async fn end(mut self) -> Result<Option<Holder>, TransportError> {
        self.held.extend(self.in_hand);
        loop {
            self.held.extend(self.ahead.drain(..).map(|read| read.tag));
            let goes_on =
                self.taking.is_some() || self.left != Some(0) && self.moves && !self.held.is_empty();
            if !goes_on || self.take_window().await.is_err() {
                break;
            }
        }
        self.channel.settle_down().await;
        let _ = self.give_back().await;
        self.channel.settle_down().await;
        // When the broker answers, everything is back in its place, and the next scan sees it.
        self.channel.close().await;
        let holder = match self.asks_for_holders && self.holder.is_none() {
            true => self.turn.count(&self.connection, &self.queue).await.map(|(_, holder)| holder),
            false => Ok(self.holder),
        };
        self.turn.end().await;
        holder
    }

    /// Gives kept messages back in their order. If that fails, the channel is gone, and the broker takes everything back.
    async fn give_back(&self) -> Result<(), TransportError> {
        let keeps_order = self.channel.version().is_some_and(|version| version >= Version::V4_3);
        let at_once = if keeps_order { usize::MAX } else { GIVEN_BACK_AT_ONCE };
        let refusals: Vec<_> = refusals(&self.held, &self.window_ends, at_once).collect();
        let state = async || topology::queue_state_on(self.channel.channel(), &self.queue).await;
        let mut expected = if refusals.len() > REFUSED_TOGETHER { state().await?.messages } else { 0 };
        for together in refusals.chunks(REFUSED_TOGETHER) {
            for refusal in together {
                self.channel.give_back_up_to(refusal.last).await;
                expected += refusal.messages;
            }
            let sent = Instant::now();
            while together.len() == REFUSED_TOGETHER {
                let QueueState { messages: ready, consumers } = state().await?;
                let within = if consumers == 0 { COUNTED_ALONE_WITHIN } else { COUNTED_WITHIN };
                if ready >= expected {
                    break;
                }
                if sent.elapsed() > within {
                    // Another client has taken some: it is not waited for again.
                    expected = ready;
                    break;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        Ok(())
    }
}

/// Takes a window of this size of those that are left; without numbers, the first message.
async fn take_window(
    channel: Arc<DeliveryChannel>,
    queue: String,
    left_and_size: Option<(u32, u32)>,
) -> Result<Taking, TransportError> {
    let Some((left, size)) = left_and_size else {
        let found = window::first(&channel, &queue).await?;
        return Ok(found.map_or_else(Taking::default, |(first, left)| (vec![first], left)));
    };
    let taken = window::take(&channel, &queue, size).await?;
    let count = taken.len() as u32;
    // Another client took the others.
    let left = if count < size { 0 } else { left.saturating_sub(count) };
    Ok((taken, left))
}

/// Gives back messages that follow each other.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    last: u64,
    messages: u32,
}

/// Divides the kept messages into refusals, each of at most `at_once` messages of one window.
fn refusals(held: &[u64], window_ends: &[u64], at_once: usize) -> impl Iterator<Item = Refusal> {
    let mut from = 0;
    window_ends.iter().flat_map(move |end| {
        let window = &held[from..][..held[from..].partition_point(|tag| tag <= end)];
        from += window.len();
        window
            .chunks(at_once)
            .map(|chunk| Refusal { last: chunk[chunk.len() - 1], messages: chunk.len() as u32 })
    })
}

#[cfg(test)]
mod tests {
    use super::{Refusal, refusals};

    #[test]
    fn each_window_is_given_back_up_to_the_last_message_that_was_kept() {
        let refusals = |held: &[u64], at_once| {
            let refusals = refusals(held, &[1, 3, 7], at_once);
            refusals.map(|Refusal { last, messages }| (last, messages)).collect::<Vec<_>>()
        };
        assert_eq!(refusals(&[1, 2, 3, 4, 5, 6, 7], usize::MAX), [(1, 1), (3, 2), (7, 4)]);
        assert_eq!(refusals(&[1, 2, 3, 4, 5, 6, 7], 3), [(1, 1), (3, 2), (6, 3), (7, 1)]);
        assert_eq!(refusals(&[2, 4, 6], usize::MAX), [(2, 1), (6, 2)]);
        assert_eq!(refusals(&[1], 1), [(1, 1)]);
        assert!(refusals(&[], 1).is_empty());
    }
}
