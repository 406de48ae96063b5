//! Actions, and ends that die in the middle of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, Holder, ReportRequest, Reported, Selection, ShelfCursor, ShelfPage,
    ShelfReport,
};
use redrive_core::{Message, Shelf, Shelves, TransportError, TransportErrorKind};
use redrive_memory::MemoryBroker;
use redrive_ops::{OperatorSocket, SocketShelves};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use crate::raw::Raw;
use crate::{BEFORE_A_STALL, Service, place, soon};

#[tokio::test]
async fn a_request_of_an_operator_that_dies_is_carried_out_whole_or_not_at_all() {
    let service = Service::with(300).await;
    let request = json!({ "ask": "redrive", "shelf": "dead-letter", "which": "all" });

    let mut dies_early = Raw::opened(service.socket.path()).await;
    let frame = request.to_string();
    let length = u32::try_from(frame.len()).expect("small").to_be_bytes();
    dies_early.send_bytes(&[&length[..], &frame.as_bytes()[..frame.len() - 1]].concat()).await;
    drop(dies_early);
    let operator = service.operator().await;
    assert_eq!(operator.count(Shelf::DeadLetter).await.expect("counted"), 300);

    let mut dies_late = Raw::opened(service.socket.path()).await;
    dies_late.send(&request).await;
    drop(dies_late);
    soon("all are redriven", || service.shelved() == 0).await;
    assert_eq!(service.broker.depth("orders"), 300);
}

#[tokio::test]
async fn an_operator_that_does_not_read_holds_up_nobody() {
    let service = Service::with(0).await;
    let large = Message::new("x".repeat(50_000));
    let direct = service.broker.shelves("orders");
    for _ in 0..20 {
        direct.restore(Shelf::DeadLetter, large.clone()).await.expect("stored");
    }
    let mut slow = Raw::opened(service.socket.path()).await;
    slow.send(&json!({ "ask": "browse", "shelf": "dead-letter", "after": null, "limit": 20 })).await;
    assert!(slow.receive().await.expect("the first frame")["page"].is_object());

    let operator = service.operator().await;
    assert_eq!(operator.browse(Shelf::DeadLetter, None, 20).await.expect("a page").entries.len(), 20);
    service.broker.publish("orders", Message::new("new")).expect("stored");
    // Closing does not wait for it either.
    let closed = tokio::time::timeout(BEFORE_A_STALL, service.socket.close()).await;
    closed.expect("it does not wait until the operator is disconnected");
}

/// Shelves whose redrive waits until it may go on.
#[derive(Clone, Default)]
struct Gated(Arc<Gate>);

struct Gate {
    may_go_on: Semaphore,
    begun: AtomicUsize,
    done: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Self { may_go_on: Semaphore::new(0), begun: AtomicUsize::new(0), done: AtomicUsize::new(0) }
    }
}

impl Gated {
    fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    fn done(&self) -> usize {
        self.0.done.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Shelves for Gated {
    async fn count(&self, _: Shelf) -> Result<u64, TransportError> {
        Ok(1)
    }

    async fn holder(&self, _: Shelf) -> Result<Option<Holder>, TransportError> {
        Ok(None)
    }

    async fn oldest(&self, _: Shelf) -> Result<Option<SystemTime>, TransportError> {
        Ok(None)
    }

    async fn browse(&self, _: Shelf, _: Option<&ShelfCursor>, _: usize) -> Result<ShelfPage, TransportError> {
        Ok(ShelfPage::default())
    }

    async fn redrive(&self, _: Shelf, _: &Selection) -> Result<ShelfReport, TransportError> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        self.0.may_go_on.acquire().await.expect("open").forget();
        self.0.done.fetch_add(1, Ordering::SeqCst);
        Ok(ShelfReport::default())
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.redrive(Shelf::DeadLetter, which).await
    }

    async fn discard(&self, shelf: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.redrive(shelf, which).await
    }

    async fn replace(&self, _: &EntryHandle, _: Message) -> Result<Option<EntryHandle>, TransportError> {
        Ok(None)
    }

    async fn redrive_as(&self, _: &EntryHandle, _: Message) -> Result<(), TransportError> {
        Ok(())
    }
}

#[tokio::test]
async fn an_action_that_has_begun_ends_whoever_goes_away() {
    let (_folder, path) = place();
    let shelves = Gated::default();
    let socket = OperatorSocket::builder().queue("orders", shelves.clone()).bind(&path).await.expect("opens");

    // The operator goes.
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    let acting = tokio::spawn(async move { operator.redrive(Shelf::DeadLetter, &Selection::All).await });
    soon("it has begun", || shelves.begun() == 1).await;
    acting.abort();
    assert!(acting.await.expect_err("aborted").is_cancelled());
    shelves.0.may_go_on.add_permits(1);
    soon("it is done", || shelves.done() == 1).await;

    // The socket is closed: the answer still comes.
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    let acting = tokio::spawn(async move { operator.redrive(Shelf::DeadLetter, &Selection::All).await });
    soon("it has begun", || shelves.begun() == 2).await;
    let closing = tokio::spawn(socket.close());
    soon("nobody can connect", || !path.exists()).await;
    assert!(!closing.is_finished());
    shelves.0.may_go_on.add_permits(1);
    let report = acting.await.expect("no panic").expect("the answer");
    assert!(report.stopped.is_none());
    closing.await.expect("closed");
}

#[tokio::test]
async fn a_future_that_is_dropped_leaves_nothing_to_the_next_call() {
    let (_folder, path) = place();
    let shelves = Gated::default();
    let socket = OperatorSocket::builder().queue("orders", shelves.clone()).bind(&path).await.expect("opens");
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    {
        let acting = operator.redrive(Shelf::DeadLetter, &Selection::All);
        let mut acting = std::pin::pin!(acting);
        let begun = async {
            while shelves.begun() == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut acting => panic!("it waits"),
            () = begun => {}
        }
    }
    // Not the answer of the redrive.
    assert_eq!(operator.count(Shelf::DeadLetter).await.expect("counted"), 1);
    shelves.0.may_go_on.add_permits(1);
    socket.close().await;
}

#[tokio::test]
async fn what_a_service_does_that_dies_is_not_known() {
    let (_folder, path) = place();
    let listener = UnixListener::bind(&path).expect("bound");
    // It reads a request, and dies.
    let service = tokio::spawn(async move {
        loop {
            let mut operator = Raw::accepted(&listener).await;
            operator.receive().await;
        }
    });
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    let one = EntryHandle::new(Shelf::DeadLetter, "1");
    let named = Selection::handles([one.clone(), EntryHandle::new(Shelf::DeadLetter, "2")]);
    let unknown = |error: &TransportError| {
        assert_eq!(error.kind(), TransportErrorKind::Unreachable);
        assert!(error.to_string().contains("not known: look again"), "{error}");
    };
    for report in [
        operator.redrive(Shelf::DeadLetter, &named).await,
        operator.park(&named).await,
        operator.discard(Shelf::DeadLetter, &named).await,
    ] {
        let report = report.expect("a report");
        unknown(report.stopped.as_ref().expect("it stopped"));
        assert_eq!(report.entries.len(), 2);
        for entry in report.entries {
            let EntryOutcome::Failed(error) = entry.outcome else { panic!("{entry:?}") };
            unknown(&error);
        }
    }
    let report = operator.redrive(Shelf::DeadLetter, &Selection::All).await.expect("a report");
    unknown(&report.stopped.expect("it stopped"));
    unknown(&operator.redrive_as(&one, Message::new("")).await.expect_err("lost"));
    unknown(&operator.restore(Shelf::DeadLetter, Message::new("")).await.expect_err("lost"));
    service.abort();
}

#[tokio::test]
async fn an_operator_connects_again_to_a_service_that_was_restarted() {
    let (_folder, path) = place();
    let broker = MemoryBroker::new();
    let open = || OperatorSocket::builder().queue("orders", broker.shelves("orders")).bind(&path);
    let first = open().await.expect("it opens");
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    assert_eq!(operator.count(Shelf::DeadLetter).await.expect("counted"), 0);
    first.close().await;
    let error = operator.count(Shelf::DeadLetter).await.expect_err("nobody listens");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    assert!(error.to_string().contains("no service listens"), "{error}");
    let second = open().await.expect("it opens");
    assert_eq!(operator.count(Shelf::DeadLetter).await.expect("counted"), 0);
    second.close().await;
    let third = open().await.expect("it opens");
    let report = operator.redrive(Shelf::DeadLetter, &Selection::All).await.expect("a report");
    assert!(report.stopped.is_none(), "it was not asked twice, and not in vain: {report:?}");
    third.close().await;
}

#[tokio::test]
async fn nobody_reports_to_an_operator_that_has_gone() {
    let service = Service::with(1).await;
    let operator = service.operator().await;
    let reported = operator.reported().await.expect("collected").expect("it can");
    let report = reported.shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!(report.done(), 1);
    let message = service.broker.queued("orders").remove(0).message;
    let request = ReportRequest::of(&message).expect("it asks for a report");
    let publisher = service.broker.transport("orders").publisher();
    request.clone().report(&publisher).await.expect("it is collected");
    // The shelves go on, without reports.
    let Reported { shelves, reports, .. } = reported;
    drop(reports);
    let refused = async {
        while request.clone().report(&publisher).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), refused).await.expect("nobody collects");
    assert_eq!(shelves.count(Shelf::DeadLetter).await.expect("counted"), 0);
}

#[tokio::test]
async fn one_operator_at_a_time_has_the_lease_of_a_shelf() {
    let service = Service::with(3).await;
    let (ada, bob) = (service.operator().await, service.operator().await);
    let lease = async |operator: &SocketShelves| operator.lease(Shelf::DeadLetter).await;
    let leased = lease(&ada).await.expect("leased").expect("the broker has leases");
    let refused = lease(&bob).await.expect_err("ada has it");
    assert_eq!(refused.kind(), TransportErrorKind::Locked, "{refused}");
    let here = service.broker.shelves("orders");
    assert!(here.lease(Shelf::DeadLetter).await.is_err(), "the service itself neither");
    assert!(bob.lease(Shelf::Parking).await.expect("another shelf").is_some());

    let one = bob.browse(Shelf::DeadLetter, None, 1).await.expect("looking is free").entries.remove(0);
    let report = leased.shelves.discard(Shelf::DeadLetter, &one.handle.into()).await.expect("a report");
    assert_eq!(report.done(), 1);
    leased.lease.pause().await;
    assert_eq!(leased.lease.held(), 0);
    assert!(lease(&bob).await.is_err(), "a pause is no end");
    leased.lease.end().await;
    drop(lease(&bob).await.expect("it is free").expect("leased"));
    let free = async {
        while here.lease(Shelf::DeadLetter).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), free).await.expect("a dropped lease ends");
}
