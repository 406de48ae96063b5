//! What passes the socket is what the shelves themselves answer.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use redrive_core::shelves::{
    EntryHandle, EntryOutcome, Holder, Selection, ShelfCursor, ShelfPage, ShelfReport, Shelved, WorkQueue,
};
use redrive_core::{
    Bytes, Headers, Message, Shelf, Shelves, Timestamp, TransportError, TransportErrorKind, Value,
};
use redrive_ops::{OperatorSocket, SocketShelves};

use crate::{Service, place};

/// Shelves that answer everything that there is.
struct Everything;

fn handle(text: &str) -> EntryHandle {
    EntryHandle::new(Shelf::DeadLetter, text)
}

fn failed(kind: TransportErrorKind) -> TransportError {
    TransportError::new(kind, format!("it is {kind:?}"))
}

const KINDS: [TransportErrorKind; 16] = [
    TransportErrorKind::Unreachable,
    TransportErrorKind::Unauthorized,
    TransportErrorKind::Topology,
    TransportErrorKind::Unsupported,
    TransportErrorKind::Unconfirmed,
    TransportErrorKind::Unroutable,
    TransportErrorKind::NotSent,
    TransportErrorKind::Full,
    TransportErrorKind::TooLarge,
    TransportErrorKind::Refused,
    TransportErrorKind::Lost,
    TransportErrorKind::NotFound,
    TransportErrorKind::Locked,
    TransportErrorKind::Busy,
    TransportErrorKind::Closed,
    TransportErrorKind::Other,
];

fn entries() -> Vec<Shelved> {
    let nested = Headers::from_iter([("$u8", Value::List(vec![Value::Null, Value::Bool(true)]))]);
    let mut message = Message::new(Bytes::from_static(&[0, 255, 27]))
        .with_id("order \u{1b}[31m\u{202e}")
        .with_kind("")
        .with_header("redrive-attempt", 3_i64)
        .with_header("redrive-last-failed-at", "2026-01-02T03:04:05Z")
        .with_header("raw", Value::RawString(Bytes::from_static(&[0xff])))
        .with_header("float", f64::MIN_POSITIVE)
        .with_header("table", nested);
    message.properties_mut().expiration = Some(Duration::from_nanos(1_000_000_001));
    message.properties_mut().timestamp = Some(Timestamp::from_unix_seconds(u64::MAX));
    let mut whole = Shelved::new(handle("a/b-1"), message);
    whole.shelved_at = Some(UNIX_EPOCH + Duration::from_nanos(1_700_000_000_123_456_789));
    whole.broker_reason = Some("delivery_limit".into());
    whole.broker_description = Some("\"\n".into());
    // The time that its history tells is not that of the shelf.
    let mut bare = Shelved::new(handle("2"), whole.message.clone().with_body("text"));
    bare.shelved_at = None;
    vec![whole, bare]
}

#[async_trait]
impl Shelves for Everything {
    async fn count(&self, shelf: Shelf) -> Result<u64, TransportError> {
        if shelf == Shelf::Parking { Err(failed(TransportErrorKind::Unauthorized)) } else { Ok(u64::MAX) }
    }

    async fn holder(&self, shelf: Shelf) -> Result<Option<Holder>, TransportError> {
        if shelf == Shelf::Parking { Err(failed(TransportErrorKind::Busy)) } else { Ok(Some(Holder::Look)) }
    }

    async fn count_with_holder(&self, _: Shelf) -> Result<(u64, Option<Holder>), TransportError> {
        Ok((7, Some(Holder::Consumers(3))))
    }

    async fn oldest(&self, shelf: Shelf) -> Result<Option<SystemTime>, TransportError> {
        Ok((shelf == Shelf::Parking).then(|| UNIX_EPOCH + Duration::from_nanos(1_700_000_000_000_000_001)))
    }

    async fn browse(
        &self,
        shelf: Shelf,
        after: Option<&ShelfCursor>,
        _: usize,
    ) -> Result<ShelfPage, TransportError> {
        let next = ShelfCursor::new(shelf, "17/4");
        match after {
            None => Ok(ShelfPage::new(entries(), Some(next))),
            Some(after) if *after == next => Ok(ShelfPage::default()),
            Some(_) => Err(failed(TransportErrorKind::Unsupported)),
        }
    }

    async fn redrive(&self, _: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        let mut report = ShelfReport::default();
        match which {
            Selection::All => report.note(handle("1"), Some("id"), EntryOutcome::Done),
            Selection::Handles(handles) => {
                let mut handles: Vec<_> = handles.iter().cloned().collect();
                handles.sort();
                handles.into_iter().for_each(|handle| report.note(handle, None, EntryOutcome::NotFound));
                report.note(handle("x"), None, EntryOutcome::NotTried);
                for kind in KINDS {
                    report.note(handle("x"), Some(""), EntryOutcome::Failed(failed(kind)));
                }
                report.stopped = Some(failed(TransportErrorKind::Unreachable));
            }
            other => return Err(TransportError::new(TransportErrorKind::Other, format!("{other:?}"))),
        }
        Ok(report)
    }

    async fn park(&self, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.redrive(Shelf::Parking, which).await
    }

    async fn discard(&self, _: Shelf, which: &Selection) -> Result<ShelfReport, TransportError> {
        self.redrive(Shelf::DeadLetter, which).await
    }

    async fn replace(
        &self,
        entry: &EntryHandle,
        message: Message,
    ) -> Result<Option<EntryHandle>, TransportError> {
        let is_whole = message == entries()[0].message;
        Ok(is_whole.then(|| entry.clone()))
    }

    async fn redrive_as(&self, entry: &EntryHandle, message: Message) -> Result<(), TransportError> {
        Err(TransportError::new(TransportErrorKind::Other, format!("{entry} {message:?}")))
    }

    async fn restore(&self, shelf: Shelf, message: Message) -> Result<(), TransportError> {
        Err(TransportError::new(TransportErrorKind::Other, format!("{shelf} {message:?}")))
    }

    async fn work_queue(&self) -> Result<WorkQueue, TransportError> {
        Ok(WorkQueue::new(Some(u64::MAX), None))
    }
}

/// Everything that the shelves answer, as text.
async fn answers(shelves: &dyn Shelves) -> Vec<String> {
    let message = entries()[0].message.clone();
    let named = Selection::handles([handle("b"), handle("a/1")]);
    let next = ShelfCursor::new(Shelf::DeadLetter, "17/4");
    let other = ShelfCursor::start(Shelf::Parking);
    let mut all = Vec::new();
    for shelf in [Shelf::DeadLetter, Shelf::Parking] {
        all.push(format!("{:?}", shelves.count(shelf).await));
        all.push(format!("{:?}", shelves.holder(shelf).await));
        all.push(format!("{:?}", shelves.count_with_holder(shelf).await));
        all.push(format!("{:?}", shelves.oldest(shelf).await));
        for after in [None, Some(&next), Some(&other)] {
            all.push(format!("{:?}", shelves.browse(shelf, after, 2).await));
        }
        for which in [&Selection::All, &named, &Selection::Reason("OutOfStock".into())] {
            all.push(format!("{:?}", shelves.redrive(shelf, which).await));
            all.push(format!("{:?}", shelves.park(which).await));
            all.push(format!("{:?}", shelves.discard(shelf, which).await));
        }
        all.push(format!("{:?}", shelves.restore(shelf, message.clone()).await));
    }
    all.push(format!("{:?}", shelves.replace(&handle("a/1"), message.clone()).await));
    all.push(format!("{:?}", shelves.redrive_as(&handle("a/1"), message).await));
    all.push(format!("{:?}", shelves.work_queue().await));
    all.push(format!("{:?}", shelves.reported().await.map(|reported| reported.is_some())));
    all
}

#[tokio::test]
async fn nothing_is_lost_on_the_way() {
    let (_folder, path) = place();
    let socket = OperatorSocket::builder().queue("orders", Everything).bind(&path).await.expect("it opens");
    let operator = SocketShelves::connect(&path, "orders").await.expect("connected");
    let (direct, by_socket) = (answers(&Everything).await, answers(&operator).await);
    for (direct, by_socket) in direct.iter().zip(&by_socket) {
        assert_eq!(direct, by_socket);
    }
    assert_eq!(direct.len(), by_socket.len());
    socket.close().await;
}

#[tokio::test]
async fn a_large_shelf_passes_page_by_page() {
    let service = Service::with(2600).await;
    let operator = service.operator().await;
    let page = operator.browse(Shelf::DeadLetter, None, 1100).await.expect("a page");
    assert_eq!(page.entries.len(), 1100);
    let rest = operator.browse(Shelf::DeadLetter, page.next.as_ref(), usize::MAX).await.expect("a page");
    assert!(rest.next.is_none());
    let mut scanned = Vec::new();
    let mut each = |entry: Shelved| {
        scanned.push(entry.message.id().expect("an id").to_owned());
        ControlFlow::Continue(())
    };
    operator.scan(Shelf::DeadLetter, &mut each).await.expect("scanned");
    let paged = page.entries.iter().chain(&rest.entries).map(|entry| entry.message.id().expect("an id"));
    assert!(paged.eq((0..2600).map(|number| number.to_string())));
    assert!(scanned.into_iter().eq((0..2600).map(|number| number.to_string())));
    let report = operator.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!((report.done(), report.entries.len()), (2600, 2600));
    assert_eq!((service.shelved(), service.broker.depth("orders")), (0, 2600));
}
