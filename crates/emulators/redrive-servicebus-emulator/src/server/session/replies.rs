//! A link on which a client receives the responses to its requests.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::time::Instant;

use super::Link;
use super::Session;
use crate::amqp::performative::Flow;
use crate::server::address::Address;
use crate::server::context::Context;

/// Maximum number of responses that wait for a client. The oldest is dropped: its request has timed out long ago.
const MAX_WAITING: usize = 256;

#[derive(Debug)]
pub(super) struct Replies {
    pub(super) name: String,
    pub(super) node: Address,
    /// The client's address for responses.
    pub(super) target: Option<String>,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    /// Each response with the time when it may be sent.
    waiting: VecDeque<(Instant, Bytes)>,
}

impl Replies {
    pub(super) fn new(name: String, node: Address, target: Option<String>) -> Self {
        Self { name, node, target, delivery_count: 0, credit: 0, waiting: VecDeque::new() }
    }

    pub(super) fn on_flow(&mut self, flow: &Flow) {
        self.credit = credit(flow, self.delivery_count);
        if flow.drain {
            self.delivery_count = self.delivery_count.wrapping_add(self.credit);
            self.credit = 0;
        }
    }

    /// Queues a response. Returns the number of bytes that were dropped for it.
    pub(super) fn push(&mut self, due: Instant, answer: Bytes) -> usize {
        self.waiting.push_back((due, answer));
        let dropped = if self.waiting.len() > MAX_WAITING { self.waiting.pop_front() } else { None };
        dropped.map_or(0, |(_, answer)| answer.len())
    }

    pub(super) fn close(&self, context: &mut Context) {
        context.let_go(self.waiting.iter().map(|(_, answer)| answer.len()).sum());
    }

    /// Returns when the next delayed response is to be sent.
    pub(super) fn next_due(&self) -> Option<Instant> {
        if self.credit == 0 { None } else { self.waiting.iter().map(|(due, _)| *due).min() }
    }

    fn pop_due(&mut self, now: Instant) -> Option<Bytes> {
        let at = self.waiting.iter().position(|(due, _)| *due <= now)?;
        self.waiting.remove(at).map(|(_, answer)| answer)
    }
}

/// Returns the credit after a flow, if the client may not have seen the last deliveries yet.
pub(super) fn credit(flow: &Flow, delivery_count: u32) -> u32 {
    let seen = flow.delivery_count.unwrap_or(0);
    let credit = seen.wrapping_add(flow.link_credit.unwrap_or(0)).wrapping_sub(delivery_count);
    // Negative: the client reduced its credit while deliveries were under way.
    if credit > i32::MAX as u32 { 0 } else { credit }
}

impl Session {
    pub(super) fn serve_replies(&mut self, context: &mut Context, handle: u32) {
        while self.has_room(context) {
            let Some(Link::Replies(replies)) = self.links.get_mut(&handle) else { return };
            if replies.credit == 0 {
                return;
            }
            let Some(answer) = replies.pop_due(context.now) else { return };
            let tag = Bytes::copy_from_slice(&replies.delivery_count.to_be_bytes());
            replies.credit -= 1;
            replies.delivery_count = replies.delivery_count.wrapping_add(1);
            context.let_go(answer.len());
            self.deliver(context, handle, tag, None, answer);
        }
    }

    /// Returns the link for the response to a request to this node: by the request's reply address, by the link's name, or the only
    /// link there is. The Python SDK gives no address.
    pub(super) fn reply_link(
        &mut self,
        node: &Address,
        reply_to: Option<&str>,
    ) -> Option<(u32, &mut Replies)> {
        let of_node = |replies: &Replies| replies.node == *node;
        let by = |wanted: &dyn Fn(&Replies) -> bool| {
            self.links.iter().find_map(|(handle, link)| match link {
                Link::Replies(replies) if of_node(replies) && wanted(replies) => Some(*handle),
                _ => None,
            })
        };
        let handle = by(&|replies| reply_to.is_some() && replies.target.as_deref() == reply_to)
            .or_else(|| by(&|replies| reply_to == Some(replies.name.as_str())))
            .or_else(|| by(&|_| true))?;
        match self.links.get_mut(&handle) {
            Some(Link::Replies(replies)) => Some((handle, replies)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_counts_from_what_the_client_has_seen_and_wraps() {
        let flow =
            |seen, given| Flow { delivery_count: Some(seen), link_credit: Some(given), ..Flow::default() };
        assert_eq!(credit(&flow(0, 10), 0), 10);
        assert_eq!(credit(&flow(0, 10), 4), 6);
        assert_eq!(credit(&flow(0, 2), 4), 0);
        assert_eq!(credit(&flow(u32::MAX, 10), 1), 8);
    }
}
