//! A connection with AMQP 1.0: opening it, attaching links, and closing it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::SenderAttachError;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::Controller;
use fe2o3_amqp::{Connection, Sender, Session};
use fe2o3_amqp_types::messaging::{Source, Target};
use fe2o3_amqp_types::transaction::Coordinator;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tracing::{debug, warn};

use super::link::Link;
use super::own_session::{Begin, OwnSession, Sessions};
use super::probe::{self, PROBE_EVERY};
use super::remembered::Remembered;
use super::requests::Requests;
use super::stream::CountingStream;
use super::tokens::Tokens;
use super::waits::{CLOSE_WAIT, OPEN_WAIT, REPLY_WAIT, no_answer};
use super::{read_error, sending, session, stream};
use crate::address::Address;
use crate::error::{Refusal, WireError};

/// The incoming and the outgoing window of an AMQP session: the most transfers that may be on their way in each direction.
const SESSION_WINDOW: u32 = 5000;

/// The most AMQP sessions on the connection: one for each link, as of a held session of an entity. Azure allows no more.
const MAX_CHANNELS: u16 = 4999;

/// A connection, with its tokens and its links.
pub(super) struct AmqpConnection {
    address: Arc<Address>,
    pub(super) tokens: Arc<Tokens>,
    management: ByEntity<Arc<Requests>>,
    senders: ByEntity<Arc<Link>>,
    /// The entities of which it is known if they require sessions.
    require_sessions: parking_lot::Mutex<Remembered>,
    pub(super) controller: Mutex<Option<Arc<OwnController>>>,
    links: AtomicU64,
    pub(super) ended: watch::Receiver<bool>,
    pub(super) sessions: Sessions,
    pub(super) end: mpsc::UnboundedSender<CloseMode>,
}

/// What is attached to each entity, behind a lock of its own: an entity that does not answer holds up no settlement of another.
struct ByEntity<T>(parking_lot::Mutex<HashMap<String, Attached<T>>>);

type Attached<T> = Arc<Mutex<Option<T>>>;

impl<T> ByEntity<T> {
    fn new() -> Self {
        Self(parking_lot::Mutex::default())
    }

    fn of(&self, entity: &str) -> Attached<T> {
        let mut all = self.0.lock();
        match all.get(entity) {
            Some(attached) => Arc::clone(attached),
            None => Arc::clone(all.entry(entity.to_owned()).or_default()),
        }
    }
}

impl<T> ByEntity<Arc<T>> {
    /// Forgets what failed, unless another one has taken its place.
    async fn forget(&self, entity: &str, failed: &Arc<T>) {
        self.of(entity).lock().await.take_if(|attached| Arc::ptr_eq(attached, failed));
    }
}

/// The link to the coordinator of transactions, with its AMQP session. The broker rolls back what is open when it ends.
#[derive(Debug)]
pub(super) struct OwnController {
    controller: Controller,
    _session: OwnSession,
}

impl OwnController {
    pub(super) fn get(&self) -> &Controller {
        &self.controller
    }
}

/// The way in which the task that holds the connection ends it.
#[derive(Debug)]
pub(super) enum CloseMode {
    /// Closes the connection and waits for the answer.
    Graceful,
    /// Drops the connection.
    Abrupt,
}

impl std::fmt::Debug for AmqpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Amqp").field("address", &self.address).finish_non_exhaustive()
    }
}

impl AmqpConnection {
    pub(super) async fn open(address: Arc<Address>) -> Result<Arc<Self>, WireError> {
        let (stream, received) = CountingStream::new(stream::connect(&address).await?);
        let container = format!("redrive-{:016x}", fastrand::u64(..));
        let opened = Connection::builder()
            .container_id(container)
            .hostname(address.host.as_str())
            .scheme("amqp")
            .max_frame_size(65_536_u32)
            .channel_max(MAX_CHANNELS)
            .idle_time_out(60_000_u32)
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream)
            .await;
        let mut connection = opened.map_err(|error| {
            WireError::interrupted(format!("the AMQP connection could not be opened: {error}"))
        })?;
        let session = OwnSession(begin(&mut connection).await?);
        let cbs = Requests::attach(session, "$cbs", "cbs").await?;
        let (ended, watched) = watch::channel(false);
        let (begins, begins_asked) = mpsc::unbounded_channel();
        let (end, end_asked) = mpsc::unbounded_channel();
        tokio::spawn(hold(connection, received, (begins_asked, end_asked), ended));
        let sessions = Sessions(begins);
        Ok(Arc::new(Self {
            tokens: Tokens::start(Arc::clone(&address), sessions.clone(), cbs, watched.clone()),
            address,
            management: ByEntity::new(),
            senders: ByEntity::new(),
            require_sessions: parking_lot::Mutex::default(),
            controller: Mutex::default(),
            links: AtomicU64::new(0),
            ended: watched,
            sessions,
            end,
        }))
    }

    /// Returns the `$management` node of an entity. Cancel safe.
    pub(super) async fn management(self: &Arc<Self>, entity: &str) -> Result<Arc<Requests>, WireError> {
        let mut node = self.management.of(entity).lock_owned().await;
        if let Some(node) = node.as_ref().filter(|node| node.is_live()) {
            return Ok(Arc::clone(node));
        }
        let (connection, entity) = (Arc::clone(self), entity.to_owned());
        in_task(async move {
            let attached = connection.attach_management(&entity).await?;
            Ok(Arc::clone(node.insert(Arc::new(attached))))
        })
        .await
    }

    async fn attach_management(&self, entity: &str) -> Result<Requests, WireError> {
        self.tokens.authorize(entity).await?;
        let name = self.link_name("management");
        let session = self.sessions.begin().await?;
        let node = format!("{entity}/$management");
        let attached = timeout(OPEN_WAIT, Requests::attach(session, &node, &name)).await;
        let attached = attached.map_err(|_| no_answer(entity)).and_then(|attached| attached);
        if attached.is_err() {
            self.tokens.forget(entity).await;
        }
        attached
    }

    /// Returns the link for sending to an entity. Cancel safe.
    pub(super) async fn sender(self: &Arc<Self>, target: &str) -> Result<Arc<Link>, WireError> {
        let mut link = self.senders.of(target).lock_owned().await;
        if let Some(link) = link.as_ref().filter(|link| !link.is_ended()) {
            return Ok(Arc::clone(link));
        }
        let (connection, target) = (Arc::clone(self), target.to_owned());
        in_task(async move {
            let attached = connection.attach_sender(&target).await?;
            Ok(Arc::clone(link.insert(Arc::new(attached))))
        })
        .await
    }

    /// Attaches a link for one message to an entity. Close it. Cancel safe.
    pub(super) async fn sender_alone(self: &Arc<Self>, target: &str) -> Result<Link, WireError> {
        let (connection, target) = (Arc::clone(self), target.to_owned());
        in_task(async move { connection.attach_sender(&target).await }).await
    }

    /// Puts a token for an entity, unless it has one. Cancel safe.
    pub(super) async fn authorize(self: &Arc<Self>, entity: &str) -> Result<(), WireError> {
        let (connection, entity) = (Arc::clone(self), entity.to_owned());
        in_task(async move { connection.tokens.authorize(&entity).await }).await
    }

    async fn attach_sender(&self, target: &str) -> Result<Link, WireError> {
        self.tokens.authorize(target).await?;
        let builder = Sender::builder()
            .name(self.link_name("sender"))
            .source(Source::builder().address("redrive").build())
            .target(Target::builder().address(target).build())
            .verify_incoming_source(false)
            .verify_incoming_target(false);
        let mut session = self.sessions.begin().await?;
        let attached = timeout(OPEN_WAIT, builder.attach(&mut session.0)).await;
        let attached = attached.map_err(|_| no_answer(target))?;
        if attached.is_err() {
            self.tokens.forget(target).await;
        }
        match attached {
            Ok(sender) => Ok(Link::new(sender, session)),
            Err(SenderAttachError::IllegalState) => Err(self.refusal_of_sender(target).await),
            Err(error) => Err(read_error::attach_sender(error)),
        }
    }

    /// Finds out why a link for sending was refused: the client library loses the reason, but reports it for a link for
    /// receiving.
    async fn refusal_of_sender(&self, target: &str) -> WireError {
        let attached = async {
            session::required(self.sessions.begin().await?, target, self.link_name("look")).await.map(drop)
        };
        let attached = timeout(OPEN_WAIT, attached).await;
        of_sending(attached.unwrap_or_else(|_| Err(no_answer(target))), target)
    }

    /// Forgets a link that failed: the next send attaches a new one. It ends with its last user.
    pub(super) async fn forget_sender(&self, target: &str, failed: &Arc<Link>) {
        self.senders.forget(target, failed).await;
    }

    pub(super) fn require_sessions(&self) -> parking_lot::MutexGuard<'_, Remembered> {
        self.require_sessions.lock()
    }

    pub(super) async fn controller(&self) -> Result<Arc<OwnController>, WireError> {
        let mut controller = self.controller.lock().await;
        if let Some(controller) = &*controller {
            return Ok(Arc::clone(controller));
        }
        let builder = Controller::builder()
            .name(self.link_name("controller"))
            .coordinator(Coordinator::default())
            .verify_incoming_target(false);
        let mut session = self.sessions.begin().await?;
        let attached = timeout(OPEN_WAIT, builder.attach(&mut session.0)).await;
        let attached = attached.map_err(|_| no_answer("the transaction coordinator"))?;
        let attached = attached.map_err(|error| of_coordinator(read_error::attach_sender(error)))?;
        self.await_reply(sending::try_out(&attached)).await.map_err(of_coordinator)?;
        let attached = OwnController { controller: attached, _session: session };
        Ok(Arc::clone(controller.insert(Arc::new(attached))))
    }

    /// Waits for an answer until a timeout, or until the connection ends: the client library may wait forever on a lost
    /// connection.
    pub(super) async fn await_reply<T>(
        &self,
        answer: impl Future<Output = Result<T, WireError>>,
    ) -> Result<T, WireError> {
        let mut ended = self.ended.clone();
        tokio::select! {
            biased;
            answered = answer => answered,
            _ = ended.wait_for(|ended| *ended) => Err(WireError::disconnected("the connection ended before the answer came")),
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

/// Runs an operation to its end, even if the caller stops waiting: a link whose attach was dropped stays
/// attached at the broker until its session ends, and an unfinished transaction keeps its message locked. The operation must have timeouts, and wait
/// for nothing that many callers wait for: each caller that stops waiting would leave a task.
pub(super) async fn in_task<T: Send + 'static>(
    operation: impl Future<Output = Result<T, WireError>> + Send + 'static,
) -> Result<T, WireError> {
    match tokio::spawn(operation).await {
        Ok(done) => done,
        Err(_) => Err(WireError::interrupted("the task of the operation panicked or was aborted")),
    }
}

async fn begin(connection: &mut ConnectionHandle<()>) -> Result<SessionHandle<()>, WireError> {
    let begun = Session::builder()
        .incoming_window(SESSION_WINDOW)
        .outgoing_window(SESSION_WINDOW)
        .begin(connection)
        .await;
    begun.map_err(|error| WireError::interrupted(format!("the AMQP session could not begin: {error}")))
}

/// Holds the connection until it ends, is told to end, or no longer answers.
async fn hold(
    mut connection: ConnectionHandle<()>,
    received: Arc<AtomicU64>,
    (mut begins, mut ends): (mpsc::UnboundedReceiver<Begin>, mpsc::UnboundedReceiver<CloseMode>),
    ended: watch::Sender<bool>,
) {
    let mut probes = interval_at(Instant::now() + PROBE_EVERY, PROBE_EVERY);
    probes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let how = loop {
        let answer = tokio::select! {
            closed = connection.on_close() => {
                debug!(?closed, "the connection to Service Bus ended");
                break None;
            }
            how = ends.recv() => break how,
            Some(answer) = begins.recv() => Some(answer),
            // A probe begins a session that nobody requested and that ends at once. Only the answer matters.
            _ = probes.tick() => None,
        };
        let begun = tokio::select! {
            how = ends.recv() => break how,
            begun = probe::unless_silent(begin(&mut connection), &received) => begun,
        };
        let Some(begun) = begun else {
            warn!("Service Bus no longer answers on an open connection: connecting again");
            break None;
        };
        // A session whose requester stopped waiting ends here.
        answer.map(|answer| answer.send(begun));
    };
    ended.send_replace(true);
    if let Some(CloseMode::Graceful) = how {
        let _ = timeout(CLOSE_WAIT, connection.close()).await;
    }
}

/// Returns the error of a link for sending whose reason is lost, by what a link for receiving met at the same entity. Why nobody can
/// receive there, as from a topic or an entity that forwards its messages, says nothing of sending.
fn of_sending(received: Result<(), WireError>, target: &str) -> WireError {
    let refused = format!("a link for sending to `{target}` was refused");
    match received {
        Ok(()) => WireError::new(Refusal::NoSending, refused),
        Err(error) => match error.refusal {
            Refusal::Forwards | Refusal::NotAllowed | Refusal::LinkRefused => {
                WireError::new(Refusal::NoSending, refused)
            }
            Refusal::Interrupted | Refusal::Disconnected => WireError::new(error.refusal, refused),
            _ => error,
        },
    }
}

/// Converts an error of the coordinator to [`Refusal::NoTransactions`] if it says clearly that there are none: on the Basic tier
/// `amqp:not-allowed`. Every other error may be over in a moment, and from this one on copies are stored outside of transactions.
pub(super) fn of_coordinator(error: WireError) -> WireError {
    match error.refusal {
        Refusal::NotAllowed | Refusal::NotImplemented => {
            WireError::new(Refusal::NoTransactions, error.to_string())
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_link_that_failed_is_forgotten() {
        let links = ByEntity::new();
        let (first, second) = (Arc::new(1), Arc::new(2));
        let current = async || links.of("orders").lock().await.clone();
        *links.of("orders").lock().await = Some(Arc::clone(&first));
        links.forget("orders", &first).await;
        assert_eq!(current().await, None);
        *links.of("orders").lock().await = Some(Arc::clone(&second));
        // Another message failed on the first link, and learns of it later.
        links.forget("orders", &first).await;
        assert_eq!(current().await, Some(second));
    }

    #[test]
    fn why_nobody_can_receive_says_nothing_of_sending() {
        let said = |received| of_sending(received, "orders").refusal;
        assert_eq!(said(Ok(())), Refusal::NoSending);
        for refusal in [Refusal::Forwards, Refusal::NotAllowed, Refusal::LinkRefused] {
            assert_eq!(said(Err(WireError::new(refusal, "not to be received from"))), Refusal::NoSending);
        }
        for refusal in [Refusal::NotFound, Refusal::Disabled, Refusal::Unauthorized, Refusal::Interrupted] {
            assert_eq!(said(Err(WireError::new(refusal.clone(), "of the entity"))), refusal);
        }
    }

    #[test]
    fn only_a_clear_answer_of_the_coordinator_says_that_there_are_no_transactions() {
        let refused = |condition| of_coordinator(WireError::from_condition(condition, None, "")).refusal;
        for condition in [
            "com.microsoft:timeout",
            "com.microsoft:server-busy",
            "com.microsoft:entity-disabled",
            "com.microsoft:operation-cancelled",
            "amqp:resource-limit-exceeded",
            "amqp:resource-locked",
            "amqp:link:detach-forced",
            "amqp:unauthorized-access",
            "amqp:not-found",
            "something-new",
            "",
        ] {
            assert_ne!(refused(condition), Refusal::NoTransactions, "{condition}");
        }
        for condition in ["amqp:not-implemented", "amqp:not-allowed"] {
            assert_eq!(refused(condition), Refusal::NoTransactions, "{condition}");
            let elsewhere = WireError::from_condition(condition, None, "").refusal;
            assert_ne!(elsewhere, Refusal::NoTransactions, "{condition}: not by the coordinator");
        }
    }
}
