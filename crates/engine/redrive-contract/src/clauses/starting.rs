//! Opening a transport.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use redrive_core::transport::{Needs, OpenError, Settlement, Severity, Signals};
use redrive_core::{Transport, TransportErrorKind};

use crate::case::Case;
use crate::harness::{Bench, Harness};
use crate::planning::{LONG, SHORT, needs};

/// A transport can be opened on a queue where messages already wait: they arrive.
pub async fn start_takes_what_is_there<H: Harness>(case: &Case<H>) {
    // The first transport only makes sure that the queue exists.
    case.started().await.close().await;
    case.publish_ids(&["a", "b"]).await;
    let transport = case.started().await;
    assert_eq!(case.complete_ids(&transport, 2).await, ["a", "b"]);
    case.nothing_is_left(&transport).await;
}

/// A transport has one receiver: opening it a second time is refused with an error that says what to do, and the first receiver
/// goes on.
pub async fn opening_twice_is_refused<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    match transport.open(&needs(), Signals::ignored()).await {
        Ok(_) => panic!("the transport has two receivers"),
        Err(error) => {
            assert!(error.to_string().len() > 20, "the refusal does not say what is wrong: {error}");
        }
    }
    case.publish_ids(&["a", "b"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    case.nothing_comes(&transport).await;
    case.settle(&transport, a.receipt, Settlement::Complete).await;
    case.settle(&transport, b.receipt, Settlement::Complete).await;
    case.nothing_is_left(&transport).await;
}

/// A transport refuses needs that the facts rule out ([`OpenError::Refused`]), with an error that says what to do; it can be
/// opened with other needs afterwards.
pub async fn open_refuses_needs_that_it_cannot_meet<H: Harness>(case: &Case<H>) {
    let first = case.opened_with(needs()).await;
    let facts = first.facts();
    first.close().await;
    // Two policies around one handler: no broker makes sense of that.
    let mut nested = Needs::none();
    nested.policies.extend([SHORT, LONG].map(|wait| BTreeSet::from([wait])));
    let mut impossible = vec![nested];
    if let Some(longest) = facts.delays.longest {
        let mut needs = Needs::none();
        needs.waits.insert(longest.saturating_add(Duration::from_secs(1)));
        impossible.push(needs);
    }
    if let Some(limit) = facts.limits.deliveries {
        let mut needs = Needs::none();
        needs.deliveries = Some(limit);
        impossible.push(needs);
    }
    let transport = case.unopened().await;
    for needs in impossible {
        match transport.open(&needs, Signals::ignored()).await {
            Ok(_) => panic!("opened with {needs:?}, which {facts:?} rules out"),
            Err(error) => {
                assert!(matches!(error, OpenError::Refused(_)), "{needs:?} are not refused: {error}");
                assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
                assert!(error.to_string().len() > 20, "the refusal does not say what is wrong: {error}");
            }
        }
    }
    let opened = transport.open(&needs(), Signals::ignored()).await;
    assert!(opened.is_ok(), "after a refusal it cannot be opened");
}

/// A closed transport cannot be opened: opening fails with [`Closed`](TransportErrorKind::Closed).
pub async fn opening_after_close_is_refused<H: Harness>(case: &Case<H>) {
    let transport = case.unopened().await;
    transport.close().await;
    let opened = transport.open(&needs(), Signals::ignored()).await;
    assert_eq!(opened.err().map(|error| error.kind()), Some(TransportErrorKind::Closed));
}

/// The facts name the broker's system, and the transport names the queue that deliveries come from.
pub async fn system_and_queue_have_names<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    assert!(!transport.facts().system.is_empty() && !transport.queue().is_empty());
    case.publish_ids(&["a"]).await;
    assert_eq!(case.complete_next(&transport).await.queue(), transport.queue());
}

/// A preflight changes nothing, however often it is asked: what waits in the queue is still delivered for the first time. It refuses nothing
/// that opening accepts, and a transport that compares itself with the broker finds the facts that opening returns.
pub async fn a_preflight_changes_nothing<H: Harness>(case: &Case<H>) {
    // The first transport only makes sure that the queue exists.
    case.started_with(needs()).await.close().await;
    case.publish_ids(&["a"]).await;
    let unopened = case.unopened().await;
    let mut found = Vec::new();
    for _ in 0..2 {
        let outline = unopened.preflight(&needs()).await;
        let outline = outline.unwrap_or_else(|error| panic!("`preflight` fails: {error}"));
        let refused = outline.findings.iter().find(|finding| finding.severity == Severity::Refused);
        assert!(refused.is_none(), "`preflight` refuses what `open` accepts: {refused:?}");
        found.push(outline.facts);
    }
    let transport = case.started_with(needs()).await;
    let received = case.next_is(&transport, "a").await;
    assert_eq!(received.delivery.broker_delivery_count(), 1, "the preflight took the message");
    case.settle(&transport, received.receipt, Settlement::Complete).await;
    case.nothing_is_left(&transport).await;
    assert_eq!(
        found[0].system,
        unopened.outline(&needs()).facts.system,
        "left: `preflight`, right: `outline`"
    );
    if found[0].system == transport.facts().system {
        assert_eq!(found, [transport.facts(), transport.facts()], "left: `preflight`, right: `open`");
    }
}

/// A preflight declares nothing: before the first transport is opened, it leaves the broker as it is.
pub async fn a_preflight_declares_nothing<H: Harness>(case: &Case<H>) {
    let declared = async || {
        let declared = case.bench.declared().await;
        declared.unwrap_or_else(|error| panic!("the harness does not tell what is declared: {error}"))
    };
    let unopened = case.unopened().await;
    let Some(before) = declared().await else {
        return case.does_not_apply("the harness cannot tell what is declared");
    };
    // It may refuse to go on without a queue, but not make one.
    let _ = unopened.preflight(&needs()).await;
    assert_eq!(declared().await, Some(before), "the preflight declared something");
}

/// Before the first limit is set nothing is received: `receive` returns at once that there is none to come. From the first limit
/// on, waiting messages arrive.
pub async fn nothing_comes_before_the_first_limit<H: Harness>(case: &Case<H>) {
    let transport = case.opened_with(needs()).await;
    case.publish_ids(&["a"]).await;
    assert!(case.drain(&transport).await.is_empty(), "a message came, and no limit was set");
    // Stopping a transport that takes nothing is harmless.
    case.pause(&transport).await;
    case.resume(&transport).await;
    case.complete_is(&transport, "a").await;
    case.nothing_is_left(&transport).await;
}

/// Every wait that was requested when the transport was opened can be used: the longest hop is not shorter than the longest of
/// them, up to the longest wait of the broker.
pub async fn the_longest_hop_covers_the_waits_asked_for<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let facts = transport.facts();
    let Some(hops) = facts.delays.hop_durations else { return };
    assert!(hops.is_sorted(), "{hops:?}");
    let hop = hops.last().copied().unwrap_or_default();
    let asked = needs().waits.last().copied().unwrap_or_default();
    let expected = asked.min(facts.delays.longest.unwrap_or(asked));
    assert!(hop >= expected, "the longest hop is {hop:?}, and a wait of {expected:?} was asked for");
}

/// The transport's clock goes forward, and it stamps every delivery.
pub async fn the_clock_goes_forward<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let before = transport.now();
    case.publish_ids(&["a"]).await;
    let received_at = case.complete_next(&transport).await.received_at();
    let after = transport.now();
    assert!(before <= received_at && received_at <= after, "{before:?}, {received_at:?}, {after:?}");
    assert!(
        before > SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000),
        "the clock shows {before:?}"
    );
}
