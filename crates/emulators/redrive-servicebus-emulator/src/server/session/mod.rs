//! One AMQP session: its windows, and its links by handle.
//!
//! `attach` creates a link; `incoming`, `consumer`, `replies` and `accepting` are the kinds of links; `outgoing` holds transfers
//! on their way to the client; `idle` detaches unused links.

mod accepting;
mod attach;
mod consumer;
mod idle;
mod incoming;
mod outgoing;
mod replies;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::time::Instant;
use uuid::Uuid;

use self::accepting::Accepting;
use self::consumer::Consumer;
use self::idle::LastUsed;
use self::incoming::IncomingLink;
use self::outgoing::Outgoing;
use self::replies::Replies;
use super::context::Context;
use super::errors::session_lock_lost;
use super::mailbox::{Detaching, LinkKey};
use crate::amqp::performative::{Begin, Detach, Flow, Performative};
use crate::amqp::state::AmqpError;

/// Number of transfers that the client may send. They are processed at once, so this window never closes.
const INCOMING_WINDOW: u32 = i32::MAX as u32;
/// Azure's value: a session has at most 256 links.
const HANDLE_MAX: u32 = 255;
/// Maximum number of unsettled deliveries that are remembered, for a client that never settles.
const MAX_UNSETTLED: usize = 1 << 16;

/// A link, by its kind.
#[derive(Debug)]
enum Link {
    /// The client sends.
    Incoming(IncomingLink),
    /// The client receives messages.
    Consumer(Consumer),
    /// The client receives responses to requests.
    Replies(Replies),
    /// The client waits for a session.
    Accepting(Box<Accepting>),
}

#[derive(Debug)]
pub(super) struct Session {
    channel: u16,
    next_incoming_id: u32,
    next_outgoing_id: u32,
    /// Number of transfers that the client accepts.
    window: u32,
    next_delivery_id: u32,
    links: BTreeMap<u32, Link>,
    /// Deliveries handed out in this session, by delivery id.
    unsettled: BTreeMap<u32, Unsettled>,
    /// Deliveries of sessions whose lock was lost: the client may settle them before it learns of the loss.
    lost: BTreeSet<u32>,
    outgoing: VecDeque<Outgoing>,
    last_used: LastUsed,
}

/// A delivery that the client has not settled.
#[derive(Debug, Clone, Copy)]
struct Unsettled {
    handle: u32,
    token: Uuid,
}

impl Session {
    pub(super) fn new(channel: u16, begin: &Begin) -> Self {
        Self {
            channel,
            next_incoming_id: begin.next_outgoing_id,
            next_outgoing_id: 1,
            window: begin.incoming_window,
            next_delivery_id: 1,
            links: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            lost: BTreeSet::new(),
            outgoing: VecDeque::new(),
            last_used: LastUsed::default(),
        }
    }

    /// Returns the response to the client's begin.
    pub(super) fn begin(&self) -> Begin {
        Begin {
            remote_channel: Some(self.channel),
            next_outgoing_id: self.next_outgoing_id,
            incoming_window: INCOMING_WINDOW,
            outgoing_window: INCOMING_WINDOW,
            handle_max: HANDLE_MAX,
        }
    }

    pub(super) fn on_performative(
        &mut self,
        context: &mut Context,
        performative: Performative,
        payload: &[u8],
    ) -> Result<(), AmqpError> {
        match performative {
            Performative::Attach(attach) => self.on_attach(context, &attach)?,
            Performative::Flow(flow) => self.on_flow(context, &flow),
            Performative::Transfer(transfer) => {
                self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
                self.on_transfer(context, transfer, payload)?;
            }
            Performative::Disposition(disposition) => self.on_disposition(context, disposition),
            Performative::Detach(detach) => self.on_detach(context, &detach),
            // The connection handles these itself.
            Performative::Open(_)
            | Performative::Begin(_)
            | Performative::End(_)
            | Performative::Close(_) => {}
        }
        Ok(())
    }

    fn check_handle(&self, handle: u32) -> Result<(), AmqpError> {
        if handle > HANDLE_MAX {
            let text = format!("handle {handle} is above handle-max, {HANDLE_MAX}");
            return Err(AmqpError::new("amqp:connection:framing-error", text));
        }
        if self.links.contains_key(&handle) {
            return Err(AmqpError::new("amqp:session:handle-in-use", format!("handle {handle} is in use")));
        }
        Ok(())
    }

    fn on_flow(&mut self, context: &mut Context, flow: &Flow) {
        // Before a client has seen our begin it does not know our first id, so it counts from that.
        let acknowledged = flow.next_incoming_id.unwrap_or(1);
        let window = acknowledged.wrapping_add(flow.incoming_window).wrapping_sub(self.next_outgoing_id);
        // Transfers in flight may exceed a window that was reduced.
        self.window = if window > INCOMING_WINDOW { 0 } else { window };
        let link = flow.handle.and_then(|handle| self.links.get_mut(&handle));
        match link {
            Some(Link::Consumer(consumer)) => consumer.on_flow(flow),
            Some(Link::Replies(replies)) => replies.on_flow(flow),
            Some(Link::Accepting(accepting)) => accepting.on_flow(flow),
            Some(Link::Incoming(_)) | None => {}
        }
        if let Some(handle) = flow.handle {
            self.touch(context, handle);
        }
        self.serve_all(context);
        if flow.echo {
            self.send_flow(context, flow.handle);
        }
    }

    fn on_detach(&mut self, context: &mut Context, detach: &Detach) {
        if self.remove_link(context, detach.handle).is_some() {
            let answer = Detach { handle: detach.handle, closed: detach.closed, error: None };
            context.send(self.channel, &Performative::Detach(answer));
        }
    }

    /// Detaches the link; the client's own detach then finds no link, and gets no response. A link that waits for a session is refused:
    /// clients ignore the detach of a link that is not attached, and would wait.
    fn detach(&mut self, context: &mut Context, handle: u32, error: AmqpError) {
        if let Some(Link::Accepting(_)) = self.links.get(&handle) {
            self.refuse(context, handle, error);
        } else if self.remove_link(context, handle).is_some() {
            let detach = Detach { handle, closed: true, error: Some(error) };
            context.send(self.channel, &Performative::Detach(detach));
        }
    }

    fn remove_link(&mut self, context: &mut Context, handle: u32) -> Option<Link> {
        let mut link = self.links.remove(&handle)?;
        self.last_used.forget(handle);
        self.unsettled.retain(|_, unsettled| unsettled.handle != handle);
        // A partly sent delivery must not continue after its link is detached.
        self.outgoing.retain(|outgoing| outgoing.handle != handle);
        let key = LinkKey { channel: self.channel, handle };
        match &mut link {
            Link::Consumer(consumer) => consumer.close(context, key),
            Link::Incoming(incoming) => incoming.close(context),
            Link::Accepting(accepting) => accepting.close(context, key),
            Link::Replies(replies) => replies.close(context),
        }
        Some(link)
    }

    pub(super) fn detach_forced(&mut self, context: &mut Context, detaching: &Detaching) {
        let hit = |link: &Link| {
            let path = match link {
                Link::Incoming(incoming) => {
                    let sends = incoming.entity().filter(|_| detaching.senders);
                    sends.or_else(|| incoming.managed().filter(|_| detaching.management))
                }
                receiving => receiving.entity().filter(|_| detaching.receivers),
            };
            path.is_some_and(|path| path.eq_ignore_ascii_case(&detaching.entity))
        };
        let handles: Vec<_> =
            self.links.iter().filter(|(_, link)| hit(link)).map(|(handle, _)| *handle).collect();
        for handle in handles {
            self.detach(context, handle, detaching.error.clone());
        }
    }

    pub(super) fn lose_session(&mut self, context: &mut Context, handle: u32) {
        if matches!(self.links.get(&handle), Some(Link::Consumer(_))) {
            self.lost
                .extend(self.unsettled.iter().filter(|(_, held)| held.handle == handle).map(|(id, _)| *id));
            while self.lost.len() > MAX_UNSETTLED {
                self.lost.pop_first();
            }
            self.detach(context, handle, session_lock_lost());
        }
    }

    /// Gives back what all links held.
    pub(super) fn end(&mut self, context: &mut Context) {
        let handles: Vec<_> = self.links.keys().copied().collect();
        for handle in handles {
            self.remove_link(context, handle);
        }
    }

    /// Serves this link.
    pub(super) fn serve(&mut self, context: &mut Context, handle: u32) {
        self.send_outgoing(context);
        match self.links.get(&handle) {
            Some(Link::Consumer(_)) => self.serve_consumer(context, handle),
            Some(Link::Replies(_)) => self.serve_replies(context, handle),
            Some(Link::Accepting(_)) => self.try_accept(context, handle),
            Some(Link::Incoming(_)) | None => {}
        }
    }

    pub(super) fn serve_all(&mut self, context: &mut Context) {
        let handles: Vec<_> = self.links.keys().copied().collect();
        for handle in handles {
            self.serve(context, handle);
        }
    }

    pub(super) fn on_time(&mut self, context: &mut Context) {
        let handles: Vec<_> = self.links.keys().copied().collect();
        for handle in handles {
            match self.links.get(&handle) {
                Some(Link::Accepting(accepting)) if accepting.deadline <= context.now => {
                    self.refuse_waiting(context, handle);
                }
                Some(Link::Replies(_)) => self.serve_replies(context, handle),
                _ => {}
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.links.values().filter_map(Link::deadline).min()
    }

    pub(super) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Sends the state of the session, and of one link.
    fn send_flow(&self, context: &mut Context, handle: Option<u32>) {
        let mut flow = Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: INCOMING_WINDOW,
            next_outgoing_id: self.next_outgoing_id,
            outgoing_window: INCOMING_WINDOW,
            ..Flow::default()
        };
        if let Some((handle, link)) = handle.and_then(|handle| Some((handle, self.links.get(&handle)?))) {
            let (delivery_count, credit, drain) = match link {
                Link::Incoming(incoming) => (incoming.delivery_count, incoming.credit, false),
                Link::Consumer(consumer) => (consumer.delivery_count, consumer.credit, consumer.drain),
                Link::Replies(replies) => (replies.delivery_count, replies.credit, false),
                Link::Accepting(_) => return,
            };
            flow.handle = Some(handle);
            flow.delivery_count = Some(delivery_count);
            flow.link_credit = Some(credit);
            flow.drain = drain;
        }
        context.send(self.channel, &Performative::Flow(flow));
    }
}

impl Link {
    /// Returns the entity that it sends to or receives from.
    fn entity(&self) -> Option<&str> {
        match self {
            Self::Incoming(incoming) => incoming.entity(),
            Self::Consumer(consumer) => Some(&consumer.path),
            Self::Accepting(accepting) => Some(&accepting.path),
            Self::Replies(_) => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Accepting(accepting) => Some(accepting.deadline),
            Self::Replies(replies) => replies.next_due(),
            Self::Incoming(_) | Self::Consumer(_) => None,
        }
    }
}
