//! Tests of what the start refuses, and of its errors.

use redrive_core::{BoxError, TransportErrorKind};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::Settings;

use super::steps::{QUEUE, complete_is, concurrent, emulator, publish, sessions, started};

#[tokio::test]
async fn sessions_that_are_required_must_be_asked_for() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let error = started(&emulator, ServiceBus::options(QUEUE)).await.expect_err("it requires sessions");
    let error = error.downcast::<redrive_core::transport::OpenError>()?;
    assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    let said = error.to_string();
    assert!(said.contains("`orders`") && said.contains("Sessions::concurrent("), "{said}");
    Ok(())
}

#[tokio::test]
async fn sessions_that_are_not_there_cannot_be_asked_for() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let error = started(&emulator, concurrent(2)).await.expect_err("it has no sessions");
    let error = error.downcast::<redrive_core::transport::OpenError>()?;
    assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("`orders`"), "{error}");
    Ok(())
}

#[tokio::test]
async fn an_entity_that_is_missing_is_named() -> Result<(), BoxError> {
    let emulator = emulator(sessions()).await?;
    let options = ServiceBus::options("nobody").sessions(redrive_servicebus::Sessions::concurrent(2));
    let error = started(&emulator, options).await.expect_err("there is none").to_string();
    assert!(error.contains("`nobody`"), "{error}");
    // The check did not disturb the other transport.
    let transport = started(&emulator, concurrent(2)).await?;
    publish(&transport, &["a1"]).await?;
    complete_is(&transport, "a1", 1).await
}
