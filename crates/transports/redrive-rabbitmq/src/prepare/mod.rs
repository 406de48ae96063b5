//! Prepares the queues: declares or verifies them, and compares them through the management API, when the transport is opened
//! and before each subscription that follows an interruption.

mod occasion;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive_core::{TransportError, TransportErrorKind};
use tracing::{info, warn};

use crate::connection::Connection;
use crate::connections::ConnectionAccess;
use crate::declarations::Declarations;
use crate::delay::DelayStrategy;
use crate::error;
#[cfg(feature = "management")]
use crate::facts::ManagementFacts;
use crate::facts::TransportFacts;
#[cfg(feature = "management")]
use crate::management::{self, Comparison, Finding};
use crate::new_queues::NewQueues;
use crate::options::Options;
use crate::topology::{self, Part, Plan, Route, Task, Topology};
use occasion::{Consequence, Occasion, Owner};

/// Pauses between attempts to declare. A broker that stalls for 5 s gives up a new quorum queue without a leader, and closes the
/// connection: measured on 3.10, whose log says `failed to form new cluster`.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// No connection has this epoch.
const NEVER: u64 = 0;

/// Declares and verifies the queues of one transport.
#[derive(Debug)]
pub(crate) struct QueuePreparation {
    options: Arc<Options>,
    plan: Arc<Plan>,
    connections: Arc<ConnectionAccess>,
    facts: Arc<TransportFacts>,
    /// Epoch of the consuming connection for which the queues were last prepared, or [`NEVER`].
    prepared_in: AtomicU64,
    /// One caller at a time: many copies that come back at once need the queues declared only once.
    declaring: tokio::sync::Mutex<()>,
    new_queues: NewQueues,
    /// Declarations of queues that were missing, shared by all who found one missing.
    declarations: Declarations,
}

impl QueuePreparation {
    pub(crate) fn new(
        options: Arc<Options>,
        plan: Arc<Plan>,
        connections: Arc<ConnectionAccess>,
        facts: Arc<TransportFacts>,
    ) -> Self {
        let (prepared_in, declaring) = (AtomicU64::new(NEVER), tokio::sync::Mutex::default());
        let (declarations, new_queues) = (Declarations::default(), NewQueues::default());
        Self { options, plan, connections, facts, prepared_in, declaring, declarations, new_queues }
    }

    fn queue(&self) -> &str {
        &self.plan.names.work
    }

    /// Returns the connection for requests that the broker may answer by closing the channel.
    pub(crate) async fn control(&self) -> Result<Arc<Connection>, TransportError> {
        self.connections.control(self.facts.strategy().is_transient()).await
    }

    /// Declares or verifies the queues; not on the publishing connection, which may be blocked. Retries if the broker gives up in
    /// between.
    pub(crate) async fn prepare(&self) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        self.prepare_now().await
    }

    async fn prepare_now(&self) -> Result<(), TransportError> {
        for pause in PAUSES {
            let connection = self.control().await?;
            match self.prepare_on(&connection, Occasion::Open).await {
                Err(error) if error.kind() == TransportErrorKind::Unreachable => {
                    warn!(queue = %self.queue(), %error, "the queues are not ready: trying again in {pause:?}");
                    tokio::time::sleep(pause).await;
                }
                done => return done,
            }
        }
        let connection = self.control().await?;
        self.prepare_on(&connection, Occasion::Open).await
    }

    /// Prepares the queues again: somebody may have replaced a queue. An error of the kind `Topology` means that a queue does not
    /// fit; any other error, that this could not be checked.
    pub(crate) async fn prepare_again(&self) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        let connection = self.control().await?;
        self.prepare_on(&connection, Occasion::Again).await
    }

    /// Returns true if the queues were last prepared for this consuming connection.
    pub(crate) fn is_prepared_for(&self, connection: &Connection) -> bool {
        self.prepared_in.load(Ordering::Acquire) == connection.epoch
    }

    /// Forgets that the queues are prepared: one was missing, and what is found from now on may be new.
    pub(crate) fn distrust(&self) {
        self.prepared_in.store(NEVER, Ordering::Release);
    }

    async fn prepare_on(&self, connection: &Connection, occasion: Occasion) -> Result<(), TransportError> {
        let epoch = self.connections.consuming().await?.epoch;
        self.facts.note_connection(connection);
        let parts = self.parts();
        if !self.prepare_all(connection, &parts).await? {
            self.prepare_each(connection, &parts, occasion).await?;
        }
        self.refuse_unfit(connection, &parts).await?;
        #[cfg(feature = "management")]
        self.compare(&parts).await?;
        let found_at_first = self.prepared_in.swap(epoch, Ordering::AcqRel) == NEVER;
        if found_at_first && parts.iter().any(|(part, task)| *task == Task::Declare && part.is_quorum()) {
            // Another process may have declared it a moment ago.
            self.note_new_queue();
        }
        let parts = parts.len();
        info!(queue = %self.queue(), parts, topology = ?self.options.topology, "queues are prepared");
        Ok(())
    }

    /// Returns what must exist, in the order of declaration.
    fn parts(&self) -> Vec<(Part, Task)> {
        self.parts_with(&*self.facts.strategy())
    }

    /// Returns the same for messages that wait by this strategy.
    pub(crate) fn parts_with(&self, strategy: &dyn DelayStrategy) -> Vec<(Part, Task)> {
        let topology = self.options.topology;
        let task = |declared| match topology {
            _ if declared => Some(Task::Declare),
            Topology::Declare | Topology::DeclareOwn | Topology::Verify => Some(Task::Verify),
            Topology::Nothing => None,
        };
        let waiting = task(self.options.delay.is_declared(topology));
        let ours = self.plan.parts().into_iter().map(|part| (task(self.is_declared(&part)), part));
        let waiting = strategy.parts().into_iter().map(|part| (waiting, part));
        ours.chain(waiting).filter_map(|(task, part)| Some((part, task?))).collect()
    }

    fn owner(&self, part: &Part) -> Owner {
        let bound = |part: &Part| self.plan.bindings.iter().any(|(exchange, _)| part.is_binding_to(exchange));
        match part {
            part if part.is_queue(self.queue()) => Owner::Work,
            part if part.is_other() || bound(part) => Owner::Application,
            _ => Owner::Redrive,
        }
    }

    /// Returns true if redrive declares this part of the plan.
    fn is_declared(&self, part: &Part) -> bool {
        let declared = match self.options.topology {
            Topology::Declare => true,
            Topology::DeclareOwn => !part.is_of(self.queue()),
            Topology::Verify | Topology::Nothing => false,
        };
        declared && !part.is_other()
    }

    /// Refuses a work queue of others that loses messages by its kind. One that redrive declares, the broker compares.
    pub(crate) async fn refuse_unfit(
        &self,
        connection: &Connection,
        parts: &[(Part, Task)],
    ) -> Result<(), TransportError> {
        let queue = self.queue();
        if parts.iter().any(|(part, task)| *task == Task::Declare && part.is_queue(queue)) {
            return Ok(());
        }
        topology::refuse_unfit(connection, queue).await
    }

    /// Prepares all parts at once. Returns false if something does not fit; [`prepare_each`](Self::prepare_each) then finds out what.
    async fn prepare_all(
        &self,
        connection: &Connection,
        parts: &[(Part, Task)],
    ) -> Result<bool, TransportError> {
        let with = |task| parts.iter().filter(move |(_, of)| *of == task).map(|(part, _)| part);
        let channel = connection.channel_to_ask().await?;
        if topology::first_unfit(&channel, &with(Task::Verify).collect::<Vec<_>>()).await.is_some() {
            return Ok(false);
        }
        let declared: Vec<_> = with(Task::Declare).collect();
        // The reply to a declaration does not tell whether the queue existed.
        match topology::first_unfit(&channel, &declared).await {
            None => Ok(topology::declare_all(&channel, &declared).await),
            Some((first, error)) if error::is_missing(&error) => {
                let (queue, missing) = (self.queue(), declared[first]);
                if self.prepared_in.load(Ordering::Acquire) == NEVER {
                    info!(%queue, %missing, "declaring the queues");
                } else {
                    warn!(
                        %queue, %missing,
                        "declaring the queues again: one is gone, with all messages in it"
                    );
                }
                self.distrust();
                Ok(topology::declare_all(&connection.channel_to_ask().await?, &declared).await)
            }
            Some(_) => Ok(false),
        }
    }

    /// Prepares the parts one by one, and reports what is wrong.
    async fn prepare_each(
        &self,
        connection: &Connection,
        parts: &[(Part, Task)],
        occasion: Occasion,
    ) -> Result<(), TransportError> {
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        for (part, task) in parts {
            let Err(error) = self.prepare_part(connection, part, *task).await else { continue };
            match occasion.after(&error, self.owner(part), connection.is_up()) {
                Consequence::Fail => return Err(error),
                Consequence::TryAgainLater => {
                    return Err(TransportError::new(TransportErrorKind::Unreachable, error.to_string()));
                }
                Consequence::Ignore => {
                    warn!(queue = %self.queue(), %error, "a queue is missing or unavailable: receiving continues without it");
                }
                Consequence::FailAtLast if *task == Task::Verify && error::is_missing(&error) => {
                    missing.push(part);
                }
                Consequence::FailAtLast => wrong.push(error),
            }
        }
        if !missing.is_empty() {
            let never = missing.iter().all(|part| part.is_other());
            let missing: Vec<_> = missing.iter().map(ToString::to_string).collect();
            wrong.insert(0, error::missing(&missing, never));
        }
        // First the errors that waiting does not cure.
        wrong.sort_by_key(|error| error.kind() != TransportErrorKind::Topology);
        wrong.into_iter().next().map_or(Ok(()), Err)
    }

    pub(crate) fn declarations(&self) -> &Declarations {
        &self.declarations
    }

    /// Declares what is missing: a spare delay queue when it is first needed, or whatever was deleted. Before the transport is
    /// open, only the queue of this route: it is not known yet which delay queues will be needed.
    pub(crate) async fn declare_missing(&self, route: &Route) -> Result<(), TransportError> {
        let strategy = self.facts.strategy();
        let leads_to = |part: &Part| route.exchange.is_empty() && part.is_queue(&route.routing_key);
        if !self.facts.knows_needs() {
            let named = strategy.parts().into_iter().find(leads_to).or_else(|| strategy.spare(route));
            let parts = match (named, self.work_parts()) {
                // The queue that a message comes back to must exist before it waits.
                (Some(named), work) => work.into_iter().chain([named]).collect(),
                (None, work) if work.last().is_some_and(leads_to) => work,
                (None, _) => self.plan.parts().into_iter().filter(leads_to).collect(),
            };
            return self.declare_parts(parts).await;
        }
        if let Some(spare) = strategy.spare(route) {
            info!(queue = route.target(), "declaring a delay queue for a new wait");
            return self.declare_parts(vec![spare]).await;
        }
        let _one_at_a_time = self.declaring.lock().await;
        warn!(queue = route.target(), "the queue is missing: declaring it");
        self.distrust();
        self.prepare_now().await
    }

    /// Returns the shelf that the work queue dead-letters to, what leads there, and the work queue, as far as redrive declares them:
    /// without the shelf, an expired message would be lost.
    pub(crate) fn work_parts(&self) -> Vec<Part> {
        let mut parts = self.plan.parts();
        parts.truncate(1 + parts.iter().position(|part| part.is_queue(self.queue())).unwrap_or_default());
        parts.retain(|part| self.is_declared(part) && !part.is_queue(&self.plan.names.parking));
        parts
    }

    /// Declares these parts, of which one was missing a moment ago.
    pub(crate) async fn declare_parts(&self, parts: Vec<Part>) -> Result<(), TransportError> {
        let _one_at_a_time = self.declaring.lock().await;
        let connection = self.control().await?;
        let missing = parts.last().map(ToString::to_string).unwrap_or_default();
        info!(queue = %self.queue(), missing, "declaring a missing queue that a message was published to");
        let all: Vec<_> = parts.iter().collect();
        let declared = topology::declare_all(&connection.channel_to_ask().await?, &all).await;
        if !declared {
            for part in &parts {
                topology::prepare(&connection, part, Task::Declare).await?;
            }
        }
        // Others need not wait for it.
        for queue in parts.iter().filter(|part| part.is_quorum()).filter_map(Part::queue) {
            self.note_new(Some(queue.name.clone()));
        }
        Ok(())
    }

    async fn prepare_part(
        &self,
        connection: &Connection,
        part: &Part,
        task: Task,
    ) -> Result<(), TransportError> {
        topology::prepare(connection, part, task).await?;
        if task == Task::Declare && part.is_quorum() {
            self.note_new_queue();
        }
        Ok(())
    }

    fn note_new_queue(&self) {
        self.note_new(None);
    }

    /// Notes that a queue, or any, may be new.
    fn note_new(&self, named: Option<String>) {
        let wait = self.options.new_queue_wait;
        let new_queue = named.as_deref().unwrap_or("any");
        info!(queue = %self.queue(), new_queue, ?wait, "a quorum queue may be new: copies are published after this wait");
        self.new_queues.note(named, wait);
    }

    /// Waits until the target of this route is no quorum queue that is younger than [`Options::new_queue_wait`].
    pub(crate) async fn wait_quorum_ready(&self, route: &Route) {
        self.new_queues.wait_ready(route).await;
    }

    /// Returns true if redrive declares the target of this route.
    pub(crate) fn declares(&self, route: &Route) -> bool {
        let leads_here = |part: &Part| match part {
            Part::Queue(queue) => *route == Route::queue(&queue.name),
            Part::Exchange(exchange) => *route.exchange == *exchange.name,
            Part::Binding(_) | Part::OtherExchange(_) | Part::OtherQueue(_) => false,
        };
        let strategy = self.facts.strategy();
        let waiting = strategy.parts().iter().any(leads_here) || strategy.spare(route).is_some();
        self.plan.parts().iter().any(|part| leads_here(part) && self.is_declared(part))
            || waiting && self.options.delay.is_declared(self.options.topology)
    }

    /// Compares the queues, and the policies on them, through the management API.
    #[cfg(feature = "management")]
    async fn compare(&self, parts: &[(Part, Task)]) -> Result<(), TransportError> {
        let mut wrong = Vec::new();
        for finding in self.compared(parts, None).await?.unwrap_or_default() {
            match finding {
                Finding::Wrong(said) => wrong.push(said),
                Finding::Doubtful(said) | Finding::Unknown(said) => warn!(queue = %self.queue(), "{said}"),
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        Err(TransportError::new(TransportErrorKind::Topology, wrong.join("; ")))
    }

    /// Returns the findings of the management API; `None` if it is not asked.
    #[cfg(feature = "management")]
    pub(crate) async fn compared(
        &self,
        parts: &[(Part, Task)],
        preflight: Option<&management::Preflight>,
    ) -> Result<Option<Vec<Finding>>, TransportError> {
        let Some(url) = self.options.management_url.as_deref() else { return Ok(None) };
        if self.options.topology == Topology::Nothing {
            return Ok(Some(Vec::new()));
        }
        let comparison = Comparison {
            url,
            certificates: self.options.connection.tls.cert_chain.as_deref(),
            broker: self.connections.uri(),
            names: &self.plan.names,
            native_dead_letter: self.options.native_dead_letter,
            delivery_limit: self.options.delivery_limit,
        };
        let compared = management::compare(&comparison, parts, preflight).await?;
        if let Some(work) = compared.work {
            let (delivery_limit, consumer_timeout) = (work.delivery_limit(), work.consumer_timeout());
            self.facts.note_management(ManagementFacts { delivery_limit, consumer_timeout });
        }
        Ok(Some(compared.findings))
    }
}
