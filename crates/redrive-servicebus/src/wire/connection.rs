//! A connection by AMQP 1.0: how it is opened, its tokens kept valid, its links attached, and how it ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::Controller;
use fe2o3_amqp::{Connection, Sender, Session};
use fe2o3_amqp_types::messaging::{Source, Target};
use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue};
use fe2o3_amqp_types::transaction::Coordinator;
use serde_amqp::Value;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::requests::{REPLY_WAIT, Requests};
use super::{read_error, stream};
use crate::address::ConnectionString;
use crate::error::{Refusal, WireError};
use crate::token::Token;

/// How long connecting and attaching may take.
pub(super) const OPEN_WAIT: Duration = Duration::from_secs(30);
/// When to try again to put a token that could not be put.
const TOKEN_RETRY: Duration = Duration::from_secs(15);
/// How many transfers the broker may have under way to us.
const WINDOW: u32 = 5000;

/// How many AMQP sessions there may be, one for each session of an entity that is held; no more than Azure allows.
const CHANNELS: u16 = 4999;

/// A connection: its session, what it may, and its links.
pub(super) struct AmqpConnection {
    address: Arc<ConnectionString>,
    pub(super) session: Mutex<SessionHandle<()>>,
    cbs: Requests,
    /// The audiences that have a token, and when they need a new one.
    tokens: Mutex<HashMap<String, Option<SystemTime>>>,
    management: Mutex<HashMap<String, Arc<Requests>>>,
    senders: Mutex<HashMap<String, Arc<Mutex<Sender>>>>,
    pub(super) controller: Mutex<Option<Arc<Controller>>>,
    links: AtomicU64,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) ask: mpsc::UnboundedSender<Ask>,
}

/// What is asked of the task that holds the connection.
#[derive(Debug)]
pub(super) enum Ask {
    /// Another AMQP session.
    Begin(oneshot::Sender<Result<SessionHandle<()>, WireError>>),
    Close,
    Abort,
}

impl std::fmt::Debug for AmqpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Amqp").field("address", &self.address).finish_non_exhaustive()
    }
}

impl AmqpConnection {
    pub(super) async fn open(address: Arc<ConnectionString>) -> Result<Arc<Self>, WireError> {
        let stream = stream::connect(&address).await?;
        let container = format!("redrive-{:016x}", fastrand::u64(..));
        let opened = Connection::builder()
            .container_id(container)
            .hostname(address.host.as_str())
            .scheme("amqp")
            .max_frame_size(65_536_u32)
            .channel_max(CHANNELS)
            .idle_time_out(60_000_u32)
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream)
            .await;
        let mut connection =
            opened.map_err(|error| WireError::interrupted(format!("AMQP was not agreed on: {error}")))?;
        let mut session = begin(&mut connection).await?;
        let cbs = Requests::attach(&mut session, "$cbs", "cbs").await?;
        let (ended, watched) = watch::channel(false);
        let (ask, asked) = mpsc::unbounded_channel();
        tokio::spawn(hold(connection, asked, ended));
        let connection = Arc::new(Self {
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
        tokio::spawn(renew_tokens(Arc::downgrade(&connection), connection.ended.clone()));
        Ok(connection)
    }

    /// An AMQP session of one's own.
    pub(super) async fn begin(&self) -> Result<SessionHandle<()>, WireError> {
        let ended = || WireError::interrupted("the connection ended");
        let (answer, begun) = oneshot::channel();
        self.ask.send(Ask::Begin(answer)).map_err(|_| ended())?;
        begun.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Shows who we are, once per entity.
    pub(super) async fn authorize(&self, path: &str) -> Result<(), WireError> {
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

    pub(super) async fn management(&self, entity: &str) -> Result<Arc<Requests>, WireError> {
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

    pub(super) async fn sender(&self, target: &str) -> Result<Arc<Mutex<Sender>>, WireError> {
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
    pub(super) async fn forget_sender(&self, target: &str) {
        self.senders.lock().await.remove(target);
    }

    pub(super) async fn controller(&self) -> Result<Arc<Controller>, WireError> {
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

    /// The client library may wait for ever for an answer on a connection that is gone.
    pub(super) async fn answered<T>(
        &self,
        answer: impl Future<Output = Result<T, WireError>>,
    ) -> Result<T, WireError> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answered = answer => answered,
            _ = ended.wait_for(|ended| *ended) => Err(WireError::interrupted("the connection ended before the answer came")),
            () = tokio::time::sleep(REPLY_WAIT) => Err(WireError::interrupted(format!("no answer within {REPLY_WAIT:?}"))),
        }
    }

    pub(super) fn link_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.links.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn is_live(&self) -> bool {
        !*self.ended.borrow()
    }
}

async fn begin(connection: &mut ConnectionHandle<()>) -> Result<SessionHandle<()>, WireError> {
    let begun = Session::builder().incoming_window(WINDOW).outgoing_window(WINDOW).begin(connection).await;
    begun.map_err(|error| WireError::interrupted(format!("no session was begun: {error}")))
}

/// Holds the connection until it ends, or shall end.
async fn hold(
    mut connection: ConnectionHandle<()>,
    mut asked: mpsc::UnboundedReceiver<Ask>,
    ended: watch::Sender<bool>,
) {
    let ask = loop {
        let ask = tokio::select! {
            closed = connection.on_close() => {
                debug!(?closed, "the connection to Service Bus ended");
                None
            }
            ask = asked.recv() => ask,
        };
        let Some(Ask::Begin(answer)) = ask else { break ask };
        let begun = timeout(OPEN_WAIT, begin(&mut connection)).await;
        // Not waited for any more, it ends.
        let _ = answer.send(begun.unwrap_or_else(|_| Err(slow("another session"))));
    };
    ended.send_replace(true);
    if let Some(Ask::Close) = ask {
        let _ = timeout(Duration::from_secs(5), connection.close()).await;
    }
}

/// Puts new tokens in time, for as long as the connection stands.
async fn renew_tokens(connection: std::sync::Weak<AmqpConnection>, mut ended: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = tokio::time::sleep(TOKEN_RETRY) => {}
        }
        let Some(connection) = connection.upgrade() else { return };
        let now = SystemTime::now();
        let due: Vec<String> = {
            let tokens = connection.tokens.lock().await;
            let due = tokens.iter().filter(|(_, renew_at)| renew_at.is_some_and(|at| at <= now));
            due.map(|(audience, _)| audience.clone()).collect()
        };
        for audience in due {
            match connection.put_token(&audience).await {
                Ok(renew_at) => drop(connection.tokens.lock().await.insert(audience, renew_at)),
                // Again in a while: the old one holds for some time.
                Err(error) => warn!(%audience, %error, "Service Bus did not take a new token"),
            }
        }
    }
}

/// An end that does not answer.
pub(super) fn slow(what: &str) -> WireError {
    WireError::interrupted(format!("no answer about `{what}` within {OPEN_WAIT:?}"))
}

/// What the coordinator refuses, it will refuse again; a connection that is gone is another matter.
pub(super) fn no_transactions(error: WireError) -> WireError {
    match error.refusal {
        Refusal::Interrupted | Refusal::Busy | Refusal::Unauthorized => error,
        _ => WireError::new(Refusal::NoTransactions, error.to_string()),
    }
}
