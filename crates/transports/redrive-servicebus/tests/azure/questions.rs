//! Tests of behaviour that the transport relies on and that the documentation of Service Bus does not describe.

use redrive_brokers::report;
use redrive_core::BoxError;

use crate::namespace::Place;
use crate::raw::{Raw, text};

const DONE: i32 = 200;
const LOST: i32 = 410;

/// The transport settles every message by request, while the link on which it arrived is open.
#[tokio::test]
async fn a_message_is_completed_by_request_while_its_link_is_open() -> Result<(), BoxError> {
    let place = Place::new("by-request").await?;
    let mut raw = Raw::connect(&place).await?;
    raw.send("a").await?;
    let held = raw.next().await?;
    assert_eq!(raw.complete(&held, None).await?, DONE);
    assert_eq!(raw.complete(&held, None).await?, LOST, "it was done already");
    assert!(raw.is_empty().await);
    raw.close().await;
    place.end().await;
    Ok(())
}

/// A retry sends a copy and completes the original by request, in one transaction.
#[tokio::test]
async fn a_message_is_completed_by_request_within_a_transaction() -> Result<(), BoxError> {
    let place = Place::new("in-a-transaction").await?;
    let mut raw = Raw::connect(&place).await?;
    raw.send("original").await?;
    let held = raw.next().await?;
    let (status, committed) = raw.replace(&held, "copy").await?;
    assert_eq!((status, committed), (DONE, Ok(())));
    let copy = raw.next().await?;
    assert_eq!(text(&copy), "copy");
    assert_eq!(raw.complete(&held, None).await?, LOST, "the original is done");
    assert_eq!(raw.complete(&copy, None).await?, DONE);
    raw.close().await;
    place.end().await;
    Ok(())
}

/// The transport never commits in this case. The closing report says what a commit would do.
#[tokio::test]
async fn a_completion_is_refused_within_a_transaction_too() -> Result<(), BoxError> {
    let place = Place::new("refused-in-a-transaction").await?;
    let mut raw = Raw::connect(&place).await?;
    raw.send("original").await?;
    let held = raw.next().await?;
    assert_eq!(raw.complete(&held, None).await?, DONE);
    let (status, committed) = raw.replace(&held, "copy").await?;
    assert_eq!(status, LOST, "it was done already");
    let copied = !raw.is_empty().await;
    if place.namespace.on_azure {
        report(&format!(
            "Azure Service Bus: the commit after a refused completion answered {committed:?}, and the copy is {}",
            if copied { "there" } else { "not there" }
        ));
    }
    raw.close().await;
    place.end().await;
    Ok(())
}

/// The client library hides the answer of the broker, so the test checks the delivery count.
#[tokio::test]
async fn what_is_released_comes_again_uncounted() -> Result<(), BoxError> {
    let place = Place::new("released").await?;
    let mut raw = Raw::connect(&place).await?;
    raw.send("a").await?;
    for _ in 0..3 {
        let held = raw.next().await?;
        assert_eq!(held.message().header.as_ref().map_or(0, |header| header.delivery_count), 0);
        raw.receiver.release(&held).await?;
    }
    let held = raw.next().await?;
    assert_eq!(raw.complete(&held, None).await?, DONE);
    raw.close().await;
    place.end().await;
    Ok(())
}
