use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt as _;
use redrive_core::{Message, TransportErrorKind};

use super::*;

/// A numbered delivery that may be lost.
#[derive(Clone, Debug)]
struct Arrived(u32, Arc<AtomicBool>);

impl Arrival for Arrived {
    fn is_lost(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }

    fn unreceived(&self) -> Option<Delivery> {
        Some(Delivery::new(Message::new(self.0.to_string()), "orders", std::time::SystemTime::UNIX_EPOCH))
    }
}

fn arrived(number: u32) -> Arrived {
    Arrived(number, Arc::default())
}

fn inbox() -> Inbox<Arrived> {
    Inbox::new("orders")
}

/// Returns what `receive` returns at once; `None` if it waits.
fn receive(inbox: &Inbox<Arrived>) -> Option<Result<Option<u32>, TransportErrorKind>> {
    let received = inbox.receive().now_or_never()?;
    Some(received.map(|arrived| arrived.map(|arrived| arrived.0)).map_err(|error| error.kind()))
}

fn set_limit(inbox: &Inbox<Arrived>, limit: u32) -> Option<Result<(), TransportErrorKind>> {
    inbox.set_limit(limit).now_or_never().map(|set| set.map_err(|error| error.kind()))
}

#[test]
fn no_delivery_comes_before_the_first_limit_or_after_limit_zero() {
    let inbox = inbox();
    let mut source = inbox.source();
    assert_eq!(receive(&inbox), Some(Ok(None)));
    assert_eq!(set_limit(&inbox, 5), Some(Ok(())));
    assert_eq!(receive(&inbox), None, "a delivery may come");
    assert_eq!(source.wanted().now_or_never(), Some(Some(5)));
    source.push((0..3).map(arrived));
    assert_eq!(receive(&inbox), Some(Ok(Some(0))));
    assert_eq!(receive(&inbox), Some(Ok(Some(1))));
    assert_eq!(set_limit(&inbox, 0), None, "a delivery may still come");
    source.push([arrived(3)]);
    assert_eq!(source.wanted().now_or_never(), None);
    assert_eq!(set_limit(&inbox, 0), Some(Ok(())));
    assert_eq!(receive(&inbox), Some(Ok(Some(2))));
    assert_eq!(receive(&inbox), Some(Ok(Some(3))));
    assert_eq!(receive(&inbox), Some(Ok(None)));
}

#[test]
fn limit_zero_waits_for_every_source() {
    let inbox = inbox();
    let mut sources = [inbox.source(), inbox.source()];
    set_limit(&inbox, 1).unwrap().unwrap();
    assert_eq!(set_limit(&inbox, 0), None);
    assert_eq!(sources[0].wanted().now_or_never(), None);
    assert_eq!(set_limit(&inbox, 0), None);
    drop(sources);
    assert_eq!(set_limit(&inbox, 0), Some(Ok(())), "a dropped source delivers nothing");
}

#[tokio::test(start_paused = true)]
async fn limit_zero_ends_when_another_caller_sets_a_higher_limit() {
    let inbox = inbox();
    let _source = inbox.source();
    set_limit(&inbox, 1).unwrap().unwrap();
    let stopping = tokio::spawn({
        let inbox = inbox.clone();
        async move { inbox.set_limit(0).await }
    });
    while *inbox.shared.wish.borrow() != Wish::Nothing {
        tokio::task::yield_now().await;
    }
    inbox.set_limit(2).await.unwrap();
    let stopped = tokio::time::timeout(std::time::Duration::from_secs(1), stopping).await;
    stopped.expect("limit zero resolves").unwrap().unwrap();
}

#[test]
fn a_wish_that_was_withdrawn_unseen_leaves_no_source_open() {
    let inbox = inbox();
    let mut source = inbox.source();
    assert_eq!(source.wanted().now_or_never(), None);
    set_limit(&inbox, 1).unwrap().unwrap();
    assert_eq!(set_limit(&inbox, 0), None);
    assert_eq!(source.wanted().now_or_never(), None);
    assert_eq!(set_limit(&inbox, 0), Some(Ok(())));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_zero_right_after_another_limit_resolves() {
    // Several times as many as needed to hit the race between a source that reads the wish and a consumer that changes it.
    const TIMES: usize = 5_000;
    let inbox = inbox();
    for mut source in [inbox.source(), inbox.source()] {
        tokio::spawn(async move {
            while let Some(limit) = source.wanted().await {
                source.wishes().other_than(limit).await;
            }
        });
    }
    let changing = async {
        for _ in 0..TIMES {
            inbox.set_limit(1).await.unwrap();
            inbox.set_limit(0).await.unwrap();
        }
    };
    let changed = tokio::time::timeout(std::time::Duration::from_secs(60), changing).await;
    assert!(changed.is_ok(), "a source never reports that it has stopped");
}

#[test]
fn an_unchanged_limit_notifies_only_a_failed_source() {
    let inbox = inbox();
    let mut source = inbox.source();
    set_limit(&inbox, 3).unwrap().unwrap();
    assert_eq!(source.wanted().now_or_never(), Some(Some(3)));
    set_limit(&inbox, 3).unwrap().unwrap();
    assert_eq!(source.changed().now_or_never(), None);
    source.fail(TransportError::new(TransportErrorKind::Topology, "the queue is gone"));
    assert_eq!(receive(&inbox), Some(Err(TransportErrorKind::Topology)));
    set_limit(&inbox, 3).unwrap().unwrap();
    assert_eq!(source.changed().now_or_never(), Some(Wish::Deliveries(3)));
    assert_eq!(receive(&inbox), None, "the source tries again");
}

#[test]
fn a_failure_for_an_outdated_wish_is_ignored() {
    let inbox = inbox();
    let mut source = inbox.source();
    set_limit(&inbox, 3).unwrap().unwrap();
    assert_eq!(source.wanted().now_or_never(), Some(Some(3)));
    set_limit(&inbox, 1).unwrap().unwrap();
    source.fail(TransportError::new(TransportErrorKind::Topology, "the queue was gone"));
    assert_eq!(receive(&inbox), None, "the source has not read the new limit yet, and tries again");
    assert_eq!(source.changed().now_or_never(), Some(Wish::Deliveries(1)));
}

#[test]
fn a_panicking_source_breaks_the_inbox_for_good() {
    let inbox = inbox();
    let source = inbox.source();
    set_limit(&inbox, 3).unwrap().unwrap();
    source.push([arrived(1)]);
    let panicking = std::thread::spawn(move || {
        let _source = source;
        panic!("the test asked for a panic");
    });
    panicking.join().unwrap_err();
    assert_eq!(receive(&inbox), Some(Ok(Some(1))));
    for _ in 0..2 {
        assert_eq!(receive(&inbox), Some(Err(TransportErrorKind::Closed)));
        assert_eq!(set_limit(&inbox, 3), Some(Err(TransportErrorKind::Closed)));
    }
    assert_eq!(set_limit(&inbox, 0), Some(Ok(())));
}

#[test]
fn a_panic_guard_reports_only_panics() {
    let inbox = inbox();
    let _source = inbox.source();
    set_limit(&inbox, 3).unwrap().unwrap();
    drop(inbox.panic_guard());
    assert_eq!(receive(&inbox), None);
    let guard = inbox.panic_guard();
    let panicking = std::thread::spawn(move || {
        let _guard = guard;
        panic!("the test asked for a panic");
    });
    panicking.join().unwrap_err();
    assert_eq!(receive(&inbox), Some(Err(TransportErrorKind::Closed)));
    assert_eq!(set_limit(&inbox, 3), Some(Err(TransportErrorKind::Closed)));
}

#[test]
fn lost_deliveries_are_not_received_and_are_reported_once() {
    let inbox = inbox();
    let source = inbox.source();
    set_limit(&inbox, 9).unwrap().unwrap();
    let all: Vec<_> = (0..4).map(arrived).collect();
    source.push(all.iter().cloned());
    all[0].1.store(true, Ordering::Relaxed);
    assert_eq!(receive(&inbox), Some(Ok(Some(1))));
    all[3].1.store(true, Ordering::Relaxed);
    let unreceived = source.take_unreceived();
    let bodies: Vec<_> = unreceived.iter().map(|delivery| delivery.message().body().clone()).collect();
    assert_eq!(bodies, ["0", "3"]);
    assert!(source.take_unreceived().is_empty());
    assert_eq!(receive(&inbox), Some(Ok(Some(2))));
}

#[test]
fn after_the_end_the_wish_stays() {
    let inbox = inbox();
    let mut source = inbox.source();
    set_limit(&inbox, 3).unwrap().unwrap();
    source.push([arrived(1)]);
    inbox.end();
    assert_eq!(source.wanted().now_or_never(), Some(None));
    assert_eq!(set_limit(&inbox, 3), Some(Err(TransportErrorKind::Closed)));
    assert_eq!(set_limit(&inbox, 0), Some(Ok(())));
    assert_eq!(source.wish(), Wish::End);
    assert_eq!(inbox.close().len(), 1);
    assert_eq!(receive(&inbox), Some(Ok(None)));
}

#[test]
fn dropping_the_last_clone_ends_the_sources() {
    let inbox = inbox();
    let mut source = inbox.source();
    let other = inbox.clone();
    set_limit(&inbox, 3).unwrap().unwrap();
    drop(inbox);
    assert_eq!(source.wanted().now_or_never(), Some(Some(3)));
    drop(other);
    assert_eq!(source.wanted().now_or_never(), Some(None));
}

#[test]
fn an_inlet_adds_while_the_inbox_takes_and_gives_back_afterwards() {
    let is_dropped = |arrived: &Arrived| Arc::strong_count(&arrived.1) == 1;
    let inbox = inbox();
    let source = inbox.source();
    let inlet = source.inlet();
    set_limit(&inbox, 9).unwrap().unwrap();
    let [first, late, last] = [1, 2, 3].map(arrived);
    inlet.push([first.clone()]);
    assert_eq!(receive(&inbox), Some(Ok(Some(1))));
    assert!(inbox.close().is_empty());
    inlet.push([late.clone()]);
    assert!(is_dropped(&late), "after the inbox was closed");
    assert_eq!(receive(&inbox), Some(Ok(None)));
    drop((inbox, source));
    inlet.push([last.clone()]);
    assert!(is_dropped(&last), "without an inbox");
}

#[test]
fn an_inlet_keeps_no_delivery() {
    let inbox = inbox();
    let source = inbox.source();
    let inlet = source.inlet();
    let unreceived = arrived(1);
    inlet.push([unreceived.clone()]);
    drop((inbox, source));
    assert_eq!(Arc::strong_count(&unreceived.1), 1);
    drop(inlet);
}
