//! One clause under test: its bench, and the steps that clauses consist of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use redrive_core::transport::Needs;
use redrive_core::{Delivery, Message, Transport};
use tokio::time::{Instant, timeout};

use crate::harness::{Bench, Harness, Place, StartedOf, TransportOf};
use crate::planning::needs;
use crate::started::Started;
use crate::transcript::Transcript;

/// Time limit for any arrival. It only tells a hang from slowness: longer than a broker takes to redeliver an unconfirmed message
/// (RabbitMQ: 180 s), or to let the lock of a dead process expire.
pub(crate) const ARRIVAL: Duration = Duration::from_secs(240);
/// How long nothing may arrive where nothing is expected. A value that is too short can hide a fault, but never invent one.
pub(crate) const QUIET: Duration = Duration::from_millis(200);

/// A lease that clauses ask for: what is given back comes again well within it.
pub(crate) const LEASE: Duration = Duration::from_secs(120);

/// Checks that a delivery that was given back at this moment did not come again only because its lease ended.
pub(crate) fn within_the_lease(given_back: Instant) {
    let waited = given_back.elapsed();
    assert!(
        waited < LEASE / 2,
        "came again after {waited:?}: it was not given back, its lease of {LEASE:?} ended"
    );
}

/// One clause under test. [`run`](crate::run) creates it, and the clauses take it by reference.
pub struct Case<H: Harness> {
    pub(crate) harness: H,
    pub(crate) bench: H::Bench,
    transports: Mutex<Vec<Arc<TransportOf<H>>>>,
    does_not_apply: Mutex<Option<String>>,
    pub(crate) transcript: Transcript,
}

/// Another queue on the same broker.
pub(crate) struct Neighbour<H: Harness> {
    pub(crate) bench: H::Bench,
    pub(crate) transport: StartedOf<H>,
}

impl<H: Harness> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").finish_non_exhaustive()
    }
}

impl<H: Harness> Case<H> {
    pub(crate) fn new(harness: H, bench: H::Bench) -> Self {
        let (transports, does_not_apply, transcript) =
            (Mutex::default(), Mutex::default(), Transcript::new());
        Self { harness, bench, transports, does_not_apply, transcript }
    }

    /// Returns why the clause turned out not to apply.
    pub(crate) fn reason_not_to_apply(&self) -> Option<String> {
        self.does_not_apply.lock().clone()
    }

    pub(crate) fn does_not_apply(&self, reason: impl Into<String>) {
        *self.does_not_apply.lock() = Some(reason.into());
    }

    pub(crate) async fn close_all(&self) {
        let transports = std::mem::take(&mut *self.transports.lock());
        // A close that hangs must not stop the others, nor the clean-up.
        join_all(transports.iter().map(|transport| timeout(ARRIVAL, transport.close()))).await;
    }

    /// Returns a transport on the bench's queue, started with [`needs`].
    pub(crate) async fn started(&self) -> Arc<StartedOf<H>> {
        self.started_with(needs()).await
    }

    pub(crate) async fn started_with(&self, needs: Needs) -> Arc<StartedOf<H>> {
        let started = self.opened_with(needs).await;
        self.resume(&started).await;
        started
    }

    /// Returns a transport that was opened and takes nothing yet.
    pub(crate) async fn opened_with(&self, needs: Needs) -> Arc<StartedOf<H>> {
        let opened = Started::open_only(self.unopened().await, &needs).await;
        Arc::new(opened.unwrap_or_else(|error| panic!("the transport does not open: {error}")))
    }

    pub(crate) async fn unopened(&self) -> Arc<TransportOf<H>> {
        let transport = self.bench.transport().await;
        let transport =
            Arc::new(transport.unwrap_or_else(|error| panic!("the harness makes no transport: {error}")));
        self.transports.lock().push(Arc::clone(&transport));
        self.transcript.note(format_args!("{} is made", self.name(&transport)));
        transport
    }

    /// Returns the name of a transport in the transcript.
    pub(crate) fn name(&self, transport: &TransportOf<H>) -> String {
        let transports = self.transports.lock();
        let number = transports.iter().position(|made| std::ptr::eq(&raw const **made, transport));
        number.map_or_else(|| "the neighbour".to_owned(), |number| format!("transport {}", number + 1))
    }

    pub(crate) async fn publish(&self, message: Message) {
        self.transcript.note(format_args!("publish `{}`", message.id().unwrap_or_default()));
        self.bench
            .publish(message)
            .await
            .unwrap_or_else(|error| panic!("the harness does not publish: {error}"));
    }

    /// Publishes messages with these ids, in this order.
    pub(crate) async fn publish_ids(&self, ids: &[&str]) {
        for &id in ids {
            self.publish(Message::new(format!("body of {id}")).with_id(id)).await;
        }
    }

    /// Publishes messages with the ids `m0`, `m1`, … in this order. Returns the ids, sorted as text.
    pub(crate) async fn publish_many(&self, count: usize) -> Vec<String> {
        let mut ids: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
        for id in &ids {
            self.publish(Message::new(format!("body of {id}")).with_id(id.clone())).await;
        }
        ids.sort();
        ids
    }

    pub(crate) async fn set_limit(&self, transport: &StartedOf<H>, limit: u32) {
        self.transcript.note(format_args!("{}: limit {limit}", self.name(transport)));
        let set = transport.set_limit(limit).await;
        set.unwrap_or_else(|error| panic!("`set_limit({limit})` fails: {error}"));
    }

    pub(crate) async fn pause(&self, transport: &StartedOf<H>) {
        self.set_limit(transport, 0).await;
    }

    pub(crate) async fn resume(&self, transport: &StartedOf<H>) {
        transport.resume().await.unwrap_or_else(|error| panic!("`set_limit` fails: {error}"));
    }

    /// Returns another queue with a started transport, if the harness has one.
    pub(crate) async fn neighbour(&self) -> Option<Neighbour<H>> {
        let bench = self.bench.neighbour().await;
        let bench = bench.unwrap_or_else(|error| panic!("the harness makes no neighbour: {error}"))?;
        let transport = bench.transport().await;
        let transport = transport.unwrap_or_else(|error| panic!("the harness makes no transport: {error}"));
        let opened = Started::open(Arc::new(transport), &needs()).await;
        let transport =
            opened.unwrap_or_else(|error| panic!("the neighbour's transport does not open: {error}"));
        Some(Neighbour { bench, transport })
    }

    /// Makes a place unwritable or writable. Returns false if the harness cannot; the clause then does not apply.
    pub(crate) async fn set_writable(&self, place: Place, writable: bool) -> bool {
        let set = self.bench.set_writable(place, writable).await;
        let set = set.unwrap_or_else(|error| panic!("the harness does not change the {place}: {error}"));
        self.applies_if(set, || format!("the harness cannot make the {place} unwritable"))
    }

    /// Returns `can`. If the harness cannot, the clause does not apply, for this reason.
    pub(crate) fn applies_if(&self, can: bool, otherwise: impl FnOnce() -> String) -> bool {
        if !can {
            self.does_not_apply(otherwise());
        }
        can
    }

    /// Makes the broker lend deliveries for this long. Returns false if it does not lend them; the clause then does not apply.
    pub(crate) async fn lease_for(&self, lease: Duration) -> bool {
        let set = self.bench.lease_for(lease).await;
        let set = set.unwrap_or_else(|error| panic!("the harness does not change the lease: {error}"));
        self.applies_if(set, || "deliveries are not lent for a time".to_owned())
    }

    /// Makes a living transport lose a delivery. Returns false if the harness cannot.
    pub(crate) async fn lose(&self, transport: &TransportOf<H>, delivery: &Delivery) -> bool {
        let lost = self.bench.lose(transport, delivery).await;
        lost.unwrap_or_else(|error| panic!("the harness does not lose a delivery: {error}"))
    }

    /// Cuts the connection of a transport. Returns false if it has none.
    pub(crate) async fn interrupt(&self, transport: &TransportOf<H>) -> bool {
        self.transcript.note(format_args!("{}: its connection is cut", self.name(transport)));
        let interrupted = self.bench.interrupt(transport).await;
        let interrupted =
            interrupted.unwrap_or_else(|error| panic!("the harness does not cut the connection: {error}"));
        self.applies_if(interrupted, || "the harness cuts no connection".to_owned())
    }

    pub(crate) async fn kill(&self, transport: &TransportOf<H>) {
        self.transcript.note(format_args!("kill {}", self.name(transport)));
        self.bench
            .kill(transport)
            .await
            .unwrap_or_else(|error| panic!("the harness does not kill the transport: {error}"));
    }
}
