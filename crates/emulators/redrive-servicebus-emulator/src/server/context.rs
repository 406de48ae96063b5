//! State that all links of a connection share: the output, and the client's rights.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::errors::amqp_error;
use super::keys::Authorised;
use super::mailbox::Mailbox;
use super::shared_state::SharedState;
use crate::amqp::frame::{FrameKind, put_frame};
use crate::amqp::performative::Performative;
use crate::amqp::state::AmqpError;
use crate::broker::{BrokerError, TransactionId};
use crate::faults::{Effect, Step};

/// With this much output no more deliveries are taken from a queue.
const ENOUGH: usize = 256 * 1024;

/// Maximum size of everything that the links of a connection hold.
const MAX_HELD: usize = 256 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Context {
    pub(super) shared: Arc<SharedState>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) out: BytesMut,
    pub(super) now: Instant,
    pub(super) max_frame: usize,
    pub(super) authorised: Authorised,
    /// Transactions that this connection declared; no other connection may use them.
    pub(super) transactions: BTreeSet<TransactionId>,
    /// Number of bytes that all links hold: incomplete messages, and responses that the client has not taken.
    held: usize,
    /// True if a link had more output than there is room for.
    pub(super) held_back: bool,
    /// True if a fault demands the end of this connection.
    pub(super) drop_connection: bool,
    delayed: Vec<(Instant, Bytes)>,
}

impl Context {
    pub(super) fn new(shared: Arc<SharedState>, mailbox: Arc<Mailbox>, max_frame: usize) -> Self {
        Self {
            authorised: Authorised::default(),
            shared,
            mailbox,
            out: BytesMut::new(),
            now: Instant::now(),
            max_frame,
            transactions: BTreeSet::new(),
            held: 0,
            held_back: false,
            drop_connection: false,
            delayed: Vec::new(),
        }
    }

    pub(super) fn send(&mut self, channel: u16, performative: &Performative) {
        put_frame(FrameKind::Amqp, channel, &mut self.out, |to| performative.encode(to));
    }

    /// Returns true if links should stop for now; they continue once all output is sent.
    pub(super) fn has_enough_to_send(&mut self) -> bool {
        let enough = self.out.len() >= ENOUGH;
        self.held_back |= enough;
        enough
    }

    pub(super) fn hold(&mut self, bytes: usize) -> Result<(), AmqpError> {
        self.held += bytes;
        if self.held > MAX_HELD {
            let text = "This connection holds too much that is not finished, or that it does not take.";
            return Err(AmqpError::new("amqp:resource-limit-exceeded", text));
        }
        Ok(())
    }

    pub(super) fn let_go(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Returns the effect of a fault at this step on this entity, if there is one.
    pub(super) fn fault(&mut self, step: Step, entity: &str) -> Option<Effect> {
        self.shared.faults.strike(step, entity)
    }

    /// Sends the response of a step, or applies the fault's effect to it.
    pub(super) fn answer(&mut self, fault: Option<&Effect>, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        write(self);
        match fault {
            Some(Effect::LoseReply) => self.out.truncate(start),
            Some(Effect::DropConnection) => {
                self.out.truncate(start);
                self.drop_connection = true;
            }
            Some(Effect::DelayReply(by)) => {
                let frames = self.out.split_off(start).freeze();
                self.delayed.push((self.now + *by, frames));
            }
            Some(Effect::Refuse { .. } | Effect::Detach { .. } | Effect::WithholdCredit) | None => {}
        }
    }

    pub(super) fn next_delayed(&self) -> Option<Instant> {
        self.delayed.iter().map(|(at, _)| *at).min()
    }

    pub(super) fn release_delayed(&mut self) {
        let now = self.now;
        for (_, frames) in self.delayed.extract_if(.., |(at, _)| *at <= now) {
            self.out.extend_from_slice(&frames);
        }
    }

    pub(super) fn roll_back_all(&mut self) {
        for transaction in std::mem::take(&mut self.transactions) {
            // A transaction that timed out is rolled back already.
            let _ = self.shared.with(|broker, now| broker.roll_back(transaction, now));
        }
    }

    /// Checks that a token of this connection allows access to this path.
    pub(super) fn check_authorised(&self, path: &str) -> Result<(), AmqpError> {
        let keys = &self.shared.keys;
        if keys.admits_all() || self.authorised.covers(path, self.shared.clock.now()) {
            return Ok(());
        }
        let text = format!(
            "Unauthorized access to '{path}': no token of this connection allows it. Put one on $cbs first."
        );
        Err(AmqpError::new("amqp:unauthorized-access", text))
    }

    /// Returns the transaction with this id, if this connection declared it.
    pub(super) fn transaction(&self, id: &Bytes) -> Result<TransactionId, AmqpError> {
        let known = <[u8; 8]>::try_from(&id[..]).ok().map(|id| TransactionId(u64::from_be_bytes(id)));
        known
            .filter(|id| self.transactions.contains(id))
            .ok_or_else(|| amqp_error(&BrokerError::UnknownTransaction))
    }
}
