//! Transactions: operations that are kept until the end, and then carried out all or not at all.
//!
//! Nothing is visible before the end. Each operation is checked when it is enlisted, so that its client learns of a lost lock at
//! once. At the end all operations are checked together again: only then is it certain that none can fail.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use uuid::Uuid;

use super::content::Incoming;
use super::effects::Due;
use super::send::Reserved;
use super::settle::Settlement;
use super::stored::SequenceNumber;
use super::{Broker, BrokerError, ConnectionId, EntityId, Timestamp};

const TIMEOUT: Duration = Duration::from_secs(120);
const MAX_MESSAGES: usize = 100;
/// Limits of one connection: open transactions hold memory that no quota counts, and one client must not use up that of others.
const MAX_OPEN: usize = 1000;
const MAX_OPEN_BYTES: u64 = 256 << 20;

/// Identifies a transaction; never used twice by one broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub u64);

/// An operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// As [`Broker::send`].
    Send {
        /// A queue or topic.
        to: EntityId,
        /// All or none.
        messages: Vec<Incoming>,
    },
    /// As [`Broker::schedule`].
    Schedule {
        /// A queue or topic.
        to: EntityId,
        /// All or none.
        messages: Vec<Incoming>,
    },
    /// As [`Broker::cancel`].
    Cancel {
        /// A queue or topic.
        at: EntityId,
        /// The numbers that scheduling returned.
        numbers: Vec<SequenceNumber>,
    },
    /// As [`Broker::settle`].
    Settle {
        /// Where the messages were received.
        at: EntityId,
        /// Their locks.
        tokens: Vec<Uuid>,
        /// How to settle them.
        settlement: Settlement,
    },
}

#[derive(Debug, Default)]
pub(super) struct Transactions {
    next: u64,
    open: BTreeMap<u64, Transaction>,
    /// By connection; only for connections with an open transaction.
    used: HashMap<ConnectionId, Used>,
}

/// What the open transactions of one connection hold together.
#[derive(Debug, Default)]
struct Used {
    transactions: usize,
    bytes: u64,
}

#[derive(Debug)]
struct Transaction {
    of: ConnectionId,
    ends_at: Timestamp,
    operations: Vec<Enlisted>,
}

#[derive(Debug)]
struct Enlisted {
    operation: Operation,
    /// Numbers of the scheduled messages, which the client knows.
    numbers: Vec<SequenceNumber>,
}

impl Broker {
    /// Begins a transaction of this connection. It ends by [`commit`](Self::commit), by [`roll_back`](Self::roll_back), or after
    /// 2 minutes.
    ///
    /// # Errors
    /// [`BrokerError::TooMany`] if the connection has 1000 open transactions.
    pub fn declare(&mut self, of: ConnectionId, now: Timestamp) -> Result<TransactionId, BrokerError> {
        self.advance(now);
        if self.transactions.used.get(&of).is_some_and(|used| used.transactions >= MAX_OPEN) {
            return Err(BrokerError::TooMany {
                reason: "The connection has 1000 open transactions. End some of them.",
            });
        }
        let id = self.transactions.next;
        self.transactions.next += 1;
        let ends_at = self.now + TIMEOUT;
        self.transactions.open.insert(id, Transaction { of, ends_at, operations: Vec::new() });
        self.transactions.used.entry(of).or_default().transactions += 1;
        self.effects.at(ends_at, Due::ForgetTransaction(id));
        Ok(TransactionId(id))
    }

    /// Adds an operation. Returns the numbers of the messages that it schedules.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTransaction`], and every error of the operation alone. The transaction stays open, without the
    /// operation.
    pub fn enlist(
        &mut self,
        id: TransactionId,
        operation: Operation,
        now: Timestamp,
    ) -> Result<Vec<SequenceNumber>, BrokerError> {
        self.advance(now);
        let transaction = self.transactions.open.get(&id.0).ok_or(BrokerError::UnknownTransaction)?;
        let messages =
            transaction.operations.iter().map(|enlisted| enlisted.operation.messages()).sum::<usize>();
        if messages + operation.messages() > MAX_MESSAGES {
            return Err(BrokerError::TooMany { reason: "A transaction has at most 100 messages." });
        }
        let of = transaction.of;
        let held = self.transactions.used.get(&of).map_or(0, |used| used.bytes);
        if held + operation.bytes() > MAX_OPEN_BYTES {
            return Err(BrokerError::TooMany {
                reason: "The open transactions of a connection have at most 256 MiB together.",
            });
        }
        self.check_all(
            transaction.operations.iter().map(|enlisted| &enlisted.operation).chain([&operation]),
        )?;
        let numbers = match &operation {
            Operation::Schedule { to, messages } => self.reserve_numbers(*to, messages.len()),
            _ => Vec::new(),
        };
        self.transactions.used.entry(of).or_default().bytes += operation.bytes();
        if let Some(transaction) = self.transactions.open.get_mut(&id.0) {
            transaction.operations.push(Enlisted { operation, numbers: numbers.clone() });
        }
        Ok(numbers)
    }

    /// Carries out all enlisted operations, or none if one has become impossible. Either way the transaction ends.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTransaction`]; [`BrokerError::TransactionRolledBack`] with the reason.
    pub fn commit(&mut self, id: TransactionId, now: Timestamp) -> Result<(), BrokerError> {
        self.advance(now);
        let enlisted = self.end(id)?;
        self.check_all(enlisted.iter().map(|enlisted| &enlisted.operation))
            .map_err(|cause| BrokerError::TransactionRolledBack { cause: Box::new(cause) })?;
        for Enlisted { operation, numbers } in enlisted {
            match operation {
                Operation::Send { to, messages } => self.apply_send(to, messages),
                Operation::Schedule { to, messages } => self.apply_schedule(to, messages, &numbers),
                Operation::Cancel { at, numbers } => self.apply_cancel(at, &numbers),
                Operation::Settle { at, tokens, settlement } => self.apply_settle(at, &tokens, &settlement),
            }
        }
        Ok(())
    }

    /// Ends the transaction without carrying anything out.
    ///
    /// # Errors
    /// [`BrokerError::UnknownTransaction`].
    pub fn roll_back(&mut self, id: TransactionId, now: Timestamp) -> Result<(), BrokerError> {
        self.advance(now);
        self.end(id).map(drop)
    }

    fn end(&mut self, id: TransactionId) -> Result<Vec<Enlisted>, BrokerError> {
        let transaction = self.transactions.take(id.0).ok_or(BrokerError::UnknownTransaction)?;
        self.effects.not_at(transaction.ends_at, Due::ForgetTransaction(id.0));
        Ok(transaction.operations)
    }

    /// Checks that all operations can be carried out together.
    fn check_all<'a>(&self, operations: impl Iterator<Item = &'a Operation>) -> Result<(), BrokerError> {
        let mut reserved = Reserved::new();
        let mut settled = HashSet::new();
        let mut cancelled = HashSet::new();
        for operation in operations {
            match operation {
                Operation::Send { to, messages } | Operation::Schedule { to, messages } => {
                    self.check_send(*to, messages, &mut reserved)?;
                }
                Operation::Cancel { at, numbers } => {
                    self.check_cancel(*at, numbers)?;
                    if let Some(&number) = numbers.iter().find(|&&number| !cancelled.insert((*at, number))) {
                        return Err(self.entity(*at).not_found(number));
                    }
                }
                Operation::Settle { at, tokens, settlement } => {
                    self.check_settle(*at, tokens, settlement)?;
                    if !tokens.iter().all(|&token| settled.insert(token)) {
                        return Err(BrokerError::MessageLockLost { path: self.path(*at).to_owned() });
                    }
                }
            }
        }
        Ok(())
    }
}

impl Transactions {
    pub(super) fn forget(&mut self, id: u64) {
        drop(self.take(id));
    }

    fn take(&mut self, id: u64) -> Option<Transaction> {
        let transaction = self.open.remove(&id)?;
        if let Some(used) = self.used.get_mut(&transaction.of) {
            used.transactions -= 1;
            used.bytes -=
                transaction.operations.iter().map(|enlisted| enlisted.operation.bytes()).sum::<u64>();
            if used.transactions == 0 {
                self.used.remove(&transaction.of);
            }
        }
        Some(transaction)
    }
}

impl Operation {
    /// Returns at least 1: an operation without messages takes memory too.
    fn messages(&self) -> usize {
        let messages = match self {
            Self::Send { messages, .. } | Self::Schedule { messages, .. } => messages.len(),
            Self::Cancel { numbers, .. } => numbers.len(),
            Self::Settle { tokens, .. } => tokens.len(),
        };
        messages.max(1)
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Send { messages, .. } | Self::Schedule { messages, .. } => {
                messages.iter().map(|incoming| incoming.size).sum()
            }
            Self::Cancel { .. } | Self::Settle { .. } => 0,
        }
    }
}
