//! The run-time REST API of a namespace, for networks that block everything but HTTPS.
//! <https://learn.microsoft.com/rest/api/servicebus/service-bus-runtime-rest>.
//!
//! It can send, lock one message, complete, unlock and renew. It cannot peek without locking, release without counting,
//! dead-letter, or use transactions. `client` sends requests over `http`, `message` and `properties` convert messages, and
//! `receiver` polls for messages.

mod client;
mod http;
mod message;
mod properties;
mod receiver;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::StreamExt as _;
use parking_lot::Mutex;
use redrive_core::fail_point::{FailPoint, fail_point};
use tokio::sync::watch;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{Arrived, Handle, LockedAll, ReplaceOp, SettleAs, SettleKind, Tag, Wire, WireReceiver};
use crate::address::Address;
use crate::convert::{Incoming, WireMessage};
use crate::error::{Refusal, WireError};
use client::{Answer, Client, Verb};
use receiver::RestReceiver;

/// The most requests that one operation on many messages sends at the same time.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// The shortest wait of a request for a message: the API counts in seconds, and does not document the meaning of 0.
const MIN_POLL_WAIT: Duration = Duration::from_secs(1);

/// Creates the client of a namespace. It sends no request yet.
pub(crate) fn open(
    address: Arc<Address>,
    poll_wait: Duration,
    polls: usize,
) -> Result<Arc<dyn Wire>, WireError> {
    let http = http::Http::new(&address)?;
    Ok(Arc::new(Rest::new(Client::new(Arc::new(http), address), poll_wait, polls)))
}

#[derive(Debug)]
pub(super) struct Rest {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    /// The time that a request waits for a message.
    poll_wait: Duration,
    /// The most requests that wait at the same time.
    polls: usize,
    held: Mutex<HashMap<Uuid, RestLock>>,
    /// Messages that were settled together with others for which it failed: settling them again succeeds at once.
    done: Mutex<HashSet<Uuid>>,
    /// Messages that arrived for a receiver that had ended, by their source: for the next one.
    spare: watch::Sender<HashMap<String, Vec<Arrived>>>,
    ended: watch::Sender<bool>,
}

/// A lock, with the sequence number of its message and its duration.
#[derive(Clone, Copy, Debug)]
struct RestLock {
    sequence_number: i64,
    lasts: Duration,
}

impl Rest {
    fn new(client: Client, poll_wait: Duration, polls: usize) -> Self {
        let poll_wait = poll_wait.max(MIN_POLL_WAIT);
        let (ended, _) = watch::channel(false);
        let (held, done) = Default::default();
        let (spare, _) = watch::channel(HashMap::new());
        Self { inner: Arc::new(Inner { client, poll_wait, polls: polls.max(1), held, done, spare, ended }) }
    }
}

impl Inner {
    /// Locks the next message, and waits for one.
    async fn peek_lock(&self, source: &str, wait: Duration) -> Result<Option<Arrived>, WireError> {
        let answer = self.ask(source, Verb::PeekLock { wait }).await?;
        // The client library treats 401 and 204 as successes too, but only 201 contains a message.
        match answer.status {
            201 => Ok(self.locked(source, answer)),
            204 => Ok(None),
            _ => Err(answer.into_error()),
        }
    }

    fn locked(&self, source: &str, answer: Answer) -> Option<Arrived> {
        let Some(read) = message::incoming(answer, SystemTime::now()) else {
            // It cannot be settled. It stays locked until the lock expires, which counts a delivery and prevents a busy loop.
            warn!(entity = %source, "a message arrived without a readable lock; it is redelivered");
            return None;
        };
        let sequence_number = read.incoming.sequence_number;
        self.held.lock().insert(read.lock, RestLock { sequence_number, lasts: read.lasts });
        let tag = Tag::Rest(source.into(), read.lock);
        Some(Arrived { lock: read.lock, tag, message: Ok(Box::new(read.incoming.read_from(source))) })
    }

    async fn settle_one(&self, entity: &str, id: Uuid, verb: fn(i64, Uuid) -> Verb) -> Result<(), WireError> {
        if self.done.lock().remove(&id) {
            return Ok(());
        }
        let Some(held) = self.held(id) else { return Err(lost()) };
        let answer = self.ask(entity, verb(held.sequence_number, id)).await?;
        let settled = answer.of_lock();
        if !matches!(&settled, Err(error) if error.refusal != Refusal::LockLost) {
            self.held.lock().remove(&id);
        }
        settled
    }

    async fn renew_one(&self, entity: &str, id: Uuid) -> Result<SystemTime, WireError> {
        let Some(held) = self.held(id) else { return Err(lost()) };
        let asked_at = SystemTime::now();
        let renewed = self.ask(entity, Verb::Renew(held.sequence_number, id)).await?.of_lock();
        if matches!(&renewed, Err(error) if error.refusal == Refusal::LockLost) {
            self.held.lock().remove(&id);
        }
        // The response has no expiry time. Each renewal lasts as long as the first lock.
        renewed.map(|()| asked_at + held.lasts)
    }

    async fn ask(&self, entity: &str, verb: Verb) -> Result<Answer, WireError> {
        self.ask_with(entity, verb, client::Content::default()).await
    }

    async fn ask_with(
        &self,
        entity: &str,
        verb: Verb,
        content: client::Content,
    ) -> Result<Answer, WireError> {
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(WireError::interrupted("the transport was closed")),
            answer = self.client.ask(entity, verb, content) => answer,
        }
    }

    /// Unlocks a message that nobody receives, which counts a delivery.
    async fn unlock(&self, entity: &str, id: Uuid) {
        if let Err(error) = self.settle_one(entity, id, Verb::Unlock).await {
            debug!(%entity, %error, "a message could not be given back; its lock expires");
        }
    }

    fn keep_spare(&self, source: &str, arrived: Arrived) {
        self.spare.send_modify(|spare| spare.entry(source.to_owned()).or_default().push(arrived));
    }

    fn take_spare(&self, source: &str) -> Vec<Arrived> {
        let mut spare = Vec::new();
        self.spare.send_if_modified(|all| {
            spare = all.remove(source).unwrap_or_default();
            false
        });
        let now = SystemTime::now();
        let holds = |incoming: &Incoming| incoming.locked_until.is_some_and(|until| until > now);
        spare.retain(|arrived| arrived.message.as_deref().is_ok_and(holds));
        spare
    }

    fn held(&self, id: Uuid) -> Option<RestLock> {
        self.held.lock().get(&id).copied()
    }

    fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }
}

#[async_trait]
impl Wire for Rest {
    async fn receiver(&self, source: &str) -> Result<Box<dyn WireReceiver>, WireError> {
        let mut first = self.inner.take_spare(source);
        if first.is_empty() {
            // Only reading shows if the entity exists and may be read.
            first.extend(self.inner.peek_lock(source, MIN_POLL_WAIT).await?);
        }
        Ok(Box::new(RestReceiver::start(Arc::clone(&self.inner), source, first)))
    }

    async fn settle(&self, entity: &str, locks: &[Uuid], how: &SettleAs) -> Result<(), WireError> {
        let verb: fn(i64, Uuid) -> Verb = match &how.kind {
            SettleKind::Complete => Verb::Complete,
            SettleKind::Abandon if how.properties.is_empty() => Verb::Unlock,
            SettleKind::Abandon => return Err(cannot("change the properties of a message")),
            SettleKind::DeadLetter { .. } => return Err(cannot("dead-letter a message")),
        };
        let settled = futures::stream::iter(locks.iter().copied())
            .map(|id| async move { (id, self.inner.settle_one(entity, id, verb).await) })
            .buffered(MAX_CONCURRENT_REQUESTS)
            .collect::<Vec<_>>()
            .await;
        let refused = settled.iter().filter_map(|(_, settled)| settled.as_ref().err());
        // A lost lock is reported first: the caller then settles the others one by one.
        let Some(error) = refused.min_by_key(|error| error.refusal != Refusal::LockLost).cloned() else {
            return Ok(());
        };
        let mut done = self.inner.done.lock();
        done.extend(settled.into_iter().filter(|(_, settled)| settled.is_ok()).map(|(id, _)| id));
        Err(error)
    }

    async fn send(&self, target: &str, message: WireMessage) -> Result<(), WireError> {
        let content = message::outgoing(message)?;
        let answer = self.inner.ask_with(target, Verb::Send, content).await?;
        if !(200..300).contains(&answer.status) {
            return Err(answer.into_error());
        }
        fail_point(FailPoint::CopyConfirmed);
        Ok(())
    }

    async fn replace(&self, _: Vec<ReplaceOp>) -> Result<(), WireError> {
        Err(WireError::new(Refusal::NoTransactions, "the REST API has no transactions"))
    }

    async fn renew(&self, entity: &str, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError> {
        let renewed = futures::stream::iter(locks.iter().copied())
            .map(|id| self.inner.renew_one(entity, id))
            .buffered(MAX_CONCURRENT_REQUESTS)
            .collect::<Vec<_>>()
            .await;
        renewed.into_iter().collect()
    }

    async fn peek(&self, _: &str, _: i64, _: i32) -> Result<Vec<WireMessage>, WireError> {
        Err(cannot("peek a message without locking it"))
    }

    async fn lock_all(&self, entity: &str, limit: usize) -> Result<Option<LockedAll>, WireError> {
        let mut all = Vec::new();
        let mut failed = None;
        let mut emptied = false;
        while !emptied && failed.is_none() && all.len() < limit {
            let polls = futures::stream::iter(0..MAX_CONCURRENT_REQUESTS.min(limit - all.len()))
                .map(|_| self.inner.peek_lock(entity, MIN_POLL_WAIT))
                .buffer_unordered(MAX_CONCURRENT_REQUESTS)
                .collect::<Vec<_>>()
                .await;
            for polled in polls {
                match polled {
                    Ok(Some(arrived)) => all.push(arrived),
                    Ok(None) => emptied = true,
                    Err(error) => failed = Some(error),
                }
            }
        }
        if let Some(error) = failed {
            for arrived in all {
                self.inner.unlock(entity, arrived.lock).await;
            }
            return Err(error);
        }
        all.sort_by_key(|arrived| arrived.message.as_ref().map_or(0, |incoming| incoming.sequence_number));
        Ok(Some((all, Arc::<Inner>::clone(&self.inner))))
    }

    fn is_live(&self) -> bool {
        !self.inner.has_ended()
    }

    async fn ended(&self) {
        let _ = self.inner.ended.subscribe().wait_for(|ended| *ended).await;
    }

    async fn close(&self) {
        let spare = self.inner.spare.send_replace(HashMap::new());
        for (source, arrived) in spare {
            for arrived in arrived {
                self.inner.unlock(&source, arrived.lock).await;
            }
        }
        self.inner.ended.send_replace(true);
    }

    fn abort(&self) {
        self.inner.ended.send_replace(true);
    }
}

#[async_trait]
impl Handle for Inner {
    /// Unlocks a message, which counts a delivery: the API cannot release without counting.
    async fn release(&self, tag: &Tag) -> bool {
        let Tag::Rest(entity, id) = tag else { return false };
        self.settle_one(entity, *id, Verb::Unlock).await.is_ok()
    }

    async fn forget(&self, _: &Tag) {}
}

fn lost() -> WireError {
    WireError::new(Refusal::LockLost, "the lock is no longer known")
}

fn cannot(what: &str) -> WireError {
    WireError::new(Refusal::NotAllowed, format!("the REST API cannot {what}"))
}
