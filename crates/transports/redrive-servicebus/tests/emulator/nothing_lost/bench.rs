//! The test bench: an emulator, a started transport, and the settlements of a consumer.

use std::time::Duration;

use redrive_contract::Started;
use redrive_core::transport::Needs;
use redrive_core::{BoxError, Delivery, Disposition, Failure};
use redrive_servicebus::{Options, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings};

pub(crate) const QUEUE: &str = "orders";
pub(crate) const DEAD_LETTERS: &str = "orders/$DeadLetterQueue";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn emulator(settings: Settings) -> Result<Emulator, BoxError> {
    Ok(Emulator::builder().queue(QUEUE, settings).start().await?)
}

pub(crate) fn detecting_duplicates() -> Settings {
    let mut settings = Settings::default();
    settings.duplicate_detection = Some(Duration::from_secs(600));
    settings
}

pub(crate) async fn started(
    connection_string: &str,
    options: Options,
) -> Result<Started<ServiceBus>, BoxError> {
    let transport = options.connect(connection_string).await?;
    let mut needs = Needs::none();
    needs.prefetch = 10;
    Ok(Started::open(transport, &needs).await?)
}

pub(crate) fn broken() -> Failure {
    Failure::custom("Broken", "it does not work")
}

/// Receives the next delivery, and settles it with this disposition.
pub(crate) async fn settle_next(
    transport: &Started<ServiceBus>,
    disposition: Disposition,
) -> Result<Delivery, BoxError> {
    let received = transport.next_within(TIMEOUT).await;
    let settlement = transport.plan(&received.delivery, disposition);
    transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error)?;
    Ok(received.delivery)
}

pub(crate) async fn retry_next(transport: &Started<ServiceBus>) -> Result<Delivery, BoxError> {
    settle_next(transport, Disposition::Retry(Duration::ZERO, broken())).await
}
