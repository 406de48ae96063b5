//! A connection by AMQP 1.0.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{Controller, Transaction, TransactionDischarge as _, TransactionPosting as _};
use fe2o3_amqp::{Connection, Sendable, Sender, Session};
use fe2o3_amqp_types::messaging::{Source, Target};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue};
use fe2o3_amqp_types::transaction::Coordinator;
use redrive_core::fail_point::{FailPoint, fail_point};
use serde_amqp::Value;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::timeout;
use tracing::{debug, warn};
use uuid::Uuid;

use super::receiver::AmqpReceiver;
use super::requests::{REPLY_WAIT, Requests};
use super::{Disposal, Swap, Wire, WireReceiver, management, read_error, stream};
use crate::address::ConnectionString;
use crate::convert::WireMessage;
use crate::error::{Refusal, WireError};
use crate::token::Token;

/// How long connecting and attaching may take.
const OPEN_WAIT: Duration = Duration::from_secs(30);
/// When to try again to put a token that could not be put.
const TOKEN_RETRY: Duration = Duration::from_secs(15);
/// How many transfers the broker may have under way to us.
const WINDOW: u32 = 5000;

/// Connects to the namespace.
pub(crate) async fn open(address: Arc<ConnectionString>) -> Result<Arc<dyn Wire>, WireError> {
    let opened = timeout(OPEN_WAIT, Amqp::open(address)).await;
    let amqp =
        opened.map_err(|_| WireError::interrupted(format!("no connection within {OPEN_WAIT:?}")))??;
    Ok(Arc::new(amqp))
}

#[derive(Debug)]
struct Amqp {
    inner: Arc<Inner>,
}

struct Inner {
    address: Arc<ConnectionString>,
    session: Mutex<SessionHandle<()>>,
    cbs: Requests,
    /// The audiences that have a token, and when they need a new one.
    tokens: Mutex<HashMap<String, Option<SystemTime>>>,
    management: Mutex<HashMap<String, Arc<Requests>>>,
    senders: Mutex<HashMap<String, Arc<Mutex<Sender>>>>,
    controller: Mutex<Option<Arc<Controller>>>,
    links: AtomicU64,
    ended: watch::Receiver<bool>,
    ask: mpsc::UnboundedSender<Ask>,
}

/// What is asked of the task that holds the connection.
#[derive(Debug)]
enum Ask {
    Close,
    Abort,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Amqp").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Amqp {
    async fn open(address: Arc<ConnectionString>) -> Result<Self, WireError> {
        let stream = stream::connect(&address).await?;
        let container = format!("redrive-{:016x}", fastrand::u64(..));
        let opened = Connection::builder()
            .container_id(container)
            .hostname(address.host.as_str())
            .scheme("amqp")
            .max_frame_size(65_536_u32)
            .idle_time_out(60_000_u32)
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream)
            .await;
        let mut connection =
            opened.map_err(|error| WireError::interrupted(format!("AMQP was not agreed on: {error}")))?;
        let begun =
            Session::builder().incoming_window(WINDOW).outgoing_window(WINDOW).begin(&mut connection).await;
        let mut session =
            begun.map_err(|error| WireError::interrupted(format!("no session was begun: {error}")))?;
        let cbs = Requests::attach(&mut session, "$cbs", "cbs").await?;
        let (ended, watched) = watch::channel(false);
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(hold(connection, asked, ended));
        let inner = Arc::new(Inner {
            address,
            session: Mutex::new(session),
            cbs,
            tokens: Mutex::default(),
            management: Mutex::default(),
            senders: Mutex::default(),
            controller: Mutex::default(),
            links: AtomicU64::new(0),
            ended: watched,
            ask,
        });
        tokio::spawn(renew_tokens(Arc::downgrade(&inner), inner.ended.clone()));
        Ok(Self { inner })
    }
}

/// Holds the connection until it ends, or shall end.
async fn hold(
    mut connection: ConnectionHandle<()>,
    mut asked: mpsc::UnboundedReceiver<Ask>,
    ended: watch::Sender<bool>,
) {
    let ask = tokio::select! {
        closed = connection.on_close() => {
            debug!(?closed, "the connection to Service Bus ended");
            None
        }
        ask = asked.recv() => ask,
    };
    ended.send_replace(true);
    if let Some(Ask::Close) = ask {
        let _ = timeout(Duration::from_secs(5), connection.close()).await;
    }
}

/// Puts new tokens in time, for as long as the connection stands.
async fn renew_tokens(inner: std::sync::Weak<Inner>, mut ended: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = tokio::time::sleep(TOKEN_RETRY) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let now = SystemTime::now();
        let due: Vec<String> = {
            let tokens = inner.tokens.lock().await;
            let due = tokens.iter().filter(|(_, renew_at)| renew_at.is_some_and(|at| at <= now));
            due.map(|(audience, _)| audience.clone()).collect()
        };
        for audience in due {
            match inner.put_token(&audience).await {
                Ok(renew_at) => drop(inner.tokens.lock().await.insert(audience, renew_at)),
                // Again in a while: the old one holds for some time.
                Err(error) => warn!(%audience, %error, "Service Bus did not take a new token"),
            }
        }
    }
}

impl Inner {
    /// Shows who we are, once per entity.
    async fn authorize(&self, path: &str) -> Result<(), WireError> {
        let entity = path.split("/$").next().unwrap_or(path);
        let audience = format!("sb://{}/{entity}", self.address.host);
        // Held meanwhile: everybody else would only ask the same.
        let mut tokens = self.tokens.lock().await;
        if let Entry::Vacant(missing) = tokens.entry(audience) {
            let renew_at = self.put_token(missing.key()).await?;
            missing.insert(renew_at);
        }
        Ok(())
    }

    async fn put_token(&self, audience: &str) -> Result<Option<SystemTime>, WireError> {
        let token = Token::for_audience(&self.address.credential, audience, SystemTime::now());
        let mut properties = OrderedMap::new();
        for (name, value) in
            [("operation", "put-token"), ("type", "servicebus.windows.net:sastoken"), ("name", audience)]
        {
            properties.insert(name.to_owned(), SimpleValue::String(value.to_owned()));
        }
        self.cbs.request(properties, Value::String(token.text), None).await?.check()?;
        Ok(token.renew_at)
    }

    async fn management(&self, entity: &str) -> Result<Arc<Requests>, WireError> {
        let mut nodes = self.management.lock().await;
        if let Some(node) = nodes.get(entity).filter(|node| node.is_live()) {
            return Ok(Arc::clone(node));
        }
        self.authorize(entity).await?;
        let name = self.link_name("management");
        let attached = {
            let mut session = self.session.lock().await;
            timeout(OPEN_WAIT, Requests::attach(&mut session, &format!("{entity}/$management"), &name)).await
        };
        let node = Arc::new(attached.map_err(|_| slow(entity))??);
        nodes.insert(entity.to_owned(), Arc::clone(&node));
        Ok(node)
    }

    async fn sender(&self, target: &str) -> Result<Arc<Mutex<Sender>>, WireError> {
        let mut senders = self.senders.lock().await;
        if let Some(sender) = senders.get(target) {
            return Ok(Arc::clone(sender));
        }
        self.authorize(target).await?;
        let builder = Sender::builder()
            .name(self.link_name("sender"))
            .source(Source::builder().address("redrive").build())
            .target(Target::builder().address(target).build())
            .verify_incoming_source(false)
            .verify_incoming_target(false);
        let attached = timeout(OPEN_WAIT, builder.attach(&mut *self.session.lock().await)).await;
        let sender = attached.map_err(|_| slow(target))?.map_err(read_error::attach_sender)?;
        let sender = Arc::new(Mutex::new(sender));
        senders.insert(target.to_owned(), Arc::clone(&sender));
        Ok(sender)
    }

    /// After it failed: the next one who sends gets a new link.
    async fn forget_sender(&self, target: &str) {
        self.senders.lock().await.remove(target);
    }

    async fn controller(&self) -> Result<Arc<Controller>, WireError> {
        let mut controller = self.controller.lock().await;
        if let Some(controller) = &*controller {
            return Ok(Arc::clone(controller));
        }
        let builder = Controller::builder()
            .name(self.link_name("controller"))
            .coordinator(Coordinator::default())
            .verify_incoming_target(false);
        let attached = timeout(OPEN_WAIT, builder.attach(&mut *self.session.lock().await)).await;
        let attached = attached.map_err(|_| slow("the transaction coordinator"))?;
        let attached = attached.map_err(|error| no_transactions(read_error::attach_sender(error)))?;
        Ok(Arc::clone(controller.insert(Arc::new(attached))))
    }

    async fn replace(&self, swap: Swap) -> Result<(), WireError> {
        let sender = self.sender(&swap.target).await?;
        let node = self.management(&swap.entity).await?;
        let controller = self.controller().await?;
        let declared = async { Transaction::declare(&controller, None).await.map_err(read_error::control) };
        let mut transaction = match self.answered(declared).await {
            Ok(transaction) => transaction,
            Err(error) => {
                self.controller.lock().await.take();
                return Err(no_transactions(error));
            }
        };
        // Dropped, it would block this thread to roll back; the broker does that by itself in two minutes.
        transaction.set_rollback_on_drop_trials(0);
        match self.do_both(&sender, &node, &transaction, &swap).await {
            Ok(()) => {
                fail_point(FailPoint::AckHandedOver);
                let committed = async { transaction.commit().await.map_err(read_error::control) };
                let committed = self.answered(committed).await;
                fail_point(FailPoint::AckWritten);
                committed
            }
            Err(error) => {
                // Where this fails too, the broker rolls back with the link.
                let rolled_back = async { transaction.rollback().await.map_err(read_error::control) };
                if self.answered(rolled_back).await.is_err() {
                    self.controller.lock().await.take();
                }
                if error.refusal == Refusal::Interrupted {
                    self.forget_sender(&swap.target).await;
                }
                Err(error)
            }
        }
    }

    async fn do_both(
        &self,
        sender: &Mutex<Sender>,
        node: &Requests,
        transaction: &Transaction<'_>,
        swap: &Swap,
    ) -> Result<(), WireError> {
        let sendable = Sendable::builder().message(swap.message.clone()).build();
        let stored = transaction
            .post_batchable(&mut *sender.lock().await, sendable)
            .await
            .map_err(read_error::post)?;
        fail_point(FailPoint::CopyHandedOver);
        // The answer of the settlement, not only that of the commit: that one says yes even where the settlement was refused.
        let complete = Disposal::complete();
        management::settle(node, &[swap.lock], &complete, Some(transaction)).await?;
        let stored = self.answered(async { stored.await.map_err(read_error::post) }).await?;
        fail_point(FailPoint::CopyConfirmed);
        read_error::outcome(stored)
    }

    /// The client library may wait for ever for an answer on a connection that is gone.
    async fn answered<T>(&self, answer: impl Future<Output = Result<T, WireError>>) -> Result<T, WireError> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answered = answer => answered,
            _ = ended.wait_for(|ended| *ended) => Err(WireError::interrupted("the connection ended before the answer came")),
            () = tokio::time::sleep(REPLY_WAIT) => Err(WireError::interrupted(format!("no answer within {REPLY_WAIT:?}"))),
        }
    }

    fn link_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.links.fetch_add(1, Ordering::Relaxed))
    }

    fn is_live(&self) -> bool {
        !*self.ended.borrow()
    }
}

#[async_trait]
impl Wire for Amqp {
    async fn receiver(&self, source: &str) -> Result<Box<dyn WireReceiver>, WireError> {
        self.inner.authorize(source).await?;
        let name = self.inner.link_name("receiver");
        let mut session = self.inner.session.lock().await;
        let attached = timeout(OPEN_WAIT, AmqpReceiver::attach(&mut session, source, name)).await;
        Ok(Box::new(attached.map_err(|_| slow(source))??))
    }

    async fn settle(&self, entity: &str, locks: &[Uuid], how: &Disposal) -> Result<(), WireError> {
        // A second time where the link ended, as it does when nothing happens for ten minutes.
        for last in [false, true] {
            let node = self.inner.management(entity).await?;
            match management::settle(&node, locks, how, None).await {
                Err(error)
                    if !last
                        && error.refusal == Refusal::Interrupted
                        && !node.is_live()
                        && self.is_live() => {}
                settled => return settled,
            }
        }
        Err(slow(entity))
    }

    async fn send(&self, target: &str, message: WireMessage) -> Result<(), WireError> {
        let sender = self.inner.sender(target).await?;
        let sendable = Sendable::builder().message(message).build();
        let handed_over = sender.lock().await.send_batchable(sendable).await;
        fail_point(FailPoint::CopyHandedOver);
        let stored = match handed_over {
            Ok(stored) => self.inner.answered(async { stored.await.map_err(read_error::send) }).await,
            Err(error) => Err(read_error::send(error)),
        };
        match stored {
            Ok(outcome) => read_error::outcome(outcome),
            Err(error) => {
                self.inner.forget_sender(target).await;
                Err(error)
            }
        }
    }

    async fn replace(&self, swap: Swap) -> Result<(), WireError> {
        // In a task of its own: whoever asked may stop waiting, and a transaction left half done would hold the message.
        let inner = Arc::clone(&self.inner);
        match tokio::spawn(async move { inner.replace(swap).await }).await {
            Ok(done) => done,
            Err(_) => Err(WireError::interrupted("the transaction was given up")),
        }
    }

    async fn renew(&self, entity: &str, locks: &[Uuid]) -> Result<Vec<SystemTime>, WireError> {
        management::renew(&*self.inner.management(entity).await?, locks).await
    }

    async fn peek(&self, entity: &str, from: i64, count: i32) -> Result<Vec<WireMessage>, WireError> {
        management::peek(&*self.inner.management(entity).await?, from, count).await
    }

    fn is_live(&self) -> bool {
        self.inner.is_live()
    }

    async fn ended(&self) {
        let _ = self.inner.ended.clone().wait_for(|ended| *ended).await;
    }

    async fn close(&self) {
        let _ = self.inner.ask.send(Ask::Close);
        self.ended().await;
        // The task that closes it says that it ended when it begins to; this waits for the other end.
        self.inner.ask.closed().await;
    }

    fn abort(&self) {
        let _ = self.inner.ask.send(Ask::Abort);
    }
}

fn slow(what: &str) -> WireError {
    WireError::interrupted(format!("no answer about `{what}` within {OPEN_WAIT:?}"))
}

/// What the coordinator refuses, it will refuse again; a connection that is gone is another matter.
fn no_transactions(error: WireError) -> WireError {
    match error.refusal {
        Refusal::Interrupted | Refusal::Busy | Refusal::Unauthorized => error,
        _ => WireError::new(Refusal::NoTransactions, error.to_string()),
    }
}
