//! The beginning.

use std::time::{Duration, SystemTime};

use redrive_core::{Needs, Settlement, Transport, TransportErrorKind};

use crate::case::Case;
use crate::harness::Harness;
use crate::planning::needs;

/// A transport can be started on a queue where messages are waiting already: they arrive.
pub async fn start_takes_what_is_there<H: Harness>(case: &Case<H>) {
    // The first one only sees to it that the queue exists.
    case.started().await.close().await;
    case.publish_ids(&["a", "b"]).await;
    let transport = case.started().await;
    assert_eq!(case.complete_ids(&transport, 2).await, ["a", "b"]);
    case.nothing_is_left(&transport).await;
}

/// Starting twice is either harmless or refused with an error; in both cases the transport goes on, and no message
/// comes twice.
pub async fn starting_twice_does_no_harm<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    if let Err(error) = transport.start(&needs()).await {
        assert!(error.to_string().len() > 20, "the refusal does not say what is wrong: {error}");
    }
    case.publish_ids(&["a", "b"]).await;
    let a = case.next_is(&transport, "a").await;
    let b = case.next_is(&transport, "b").await;
    case.nothing_comes(&transport).await;
    case.settle(&transport, a.receipt, Settlement::Complete).await;
    case.settle(&transport, b.receipt, Settlement::Complete).await;
    case.nothing_is_left(&transport).await;
}

/// A start that asks for what the capabilities rule out is refused as
/// [`Unsupported`](TransportErrorKind::Unsupported), in words that say what to do.
pub async fn start_refuses_needs_that_it_cannot_meet<H: Harness>(case: &Case<H>) {
    let transport = case.unstarted().await;
    let capabilities = transport.capabilities();
    let mut impossible = Vec::new();
    if let Some(longest) = capabilities.longest_wait {
        let mut needs = Needs::none();
        needs.waits.insert(longest.saturating_add(Duration::from_secs(1)));
        impossible.push(needs);
    }
    if let Some(limit) = capabilities.hand_out_limit {
        let mut needs = Needs::none();
        needs.hand_outs = Some(limit);
        impossible.push(needs);
    }
    if impossible.is_empty() {
        return case.does_not_apply("the capabilities rule nothing out that can be asked for");
    }
    for needs in impossible {
        match transport.start(&needs).await {
            Ok(()) => panic!("started with {needs:?}, which {capabilities:?} rules out"),
            Err(error) => {
                assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
                assert!(error.to_string().len() > 20, "the refusal does not say what is wrong: {error}");
            }
        }
    }
}

/// The capabilities name the broker's system and the queue that deliveries come from; those known before the start
/// do not change by it.
pub async fn capabilities_name_system_and_queue<H: Harness>(case: &Case<H>) {
    let transport = case.unstarted().await;
    let before = transport.capabilities();
    transport.start(&needs()).await.unwrap_or_else(|error| panic!("the transport does not start: {error}"));
    let after = transport.capabilities();
    assert!(!after.system.is_empty() && !after.queue.is_empty());
    assert_eq!((before.system, before.queue), (after.system, after.queue.clone()));
    case.publish_ids(&["a"]).await;
    assert_eq!(case.complete_next(&transport).await.queue(), after.queue);
}

/// Every wait that was asked for at the start can be used: the longest hop is not shorter than the longest of them,
/// up to the longest wait that the broker knows.
pub async fn the_longest_hop_covers_the_waits_asked_for<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let capabilities = transport.capabilities();
    let Some(hops) = capabilities.hops else { return };
    assert!(hops.is_sorted(), "{hops:?}");
    let hop = hops.last().copied().unwrap_or_default();
    let asked = needs().waits.last().copied().unwrap_or_default();
    let expected = asked.min(capabilities.longest_wait.unwrap_or(asked));
    assert!(hop >= expected, "the longest hop is {hop:?}, and a wait of {expected:?} was asked for");
}

/// The transport's clock goes forward, and a delivery is stamped with it.
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
