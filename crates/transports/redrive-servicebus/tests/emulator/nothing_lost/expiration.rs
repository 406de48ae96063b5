//! Tests of the time to live: it starts when the message comes into its queue, as for Service Bus, not when it was created.

use std::time::Duration;

use redrive_consumer::Consumer;
use redrive_contract::eventually;
use redrive_core::{BoxError, Delivery, Disposition, Message, Timestamp};
use redrive_servicebus::{Options, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings};
use tokio::time::timeout;

use super::bench::{QUEUE, TIMEOUT, emulator};

/// Tests a message that was created years ago, has time to live left, and fails at the first attempt.
async fn retried(emulator: &Emulator, address: &str, options: Options) -> Result<(), BoxError> {
    let transport = options.connect(address).await?;
    let mut message = Message::new("").with_id("a");
    message.properties_mut().timestamp = Some(Timestamp::from_unix_millis(1_577_836_800_000));
    message.properties_mut().expiration = Some(Duration::from_secs(600));
    transport.publish(message).await?;
    let handler = |delivery: Delivery| async move {
        match delivery.attempt() {
            1 => Err(BoxError::from("it does not work yet")),
            _ => Ok(Disposition::Ack),
        }
    };
    let queue = emulator.entity(QUEUE)?;
    let emptied = async move { eventually("the queue is empty", async || queue.messages().is_empty()).await };
    let runner = Consumer::new(transport).with_dead_letter_backoff([Duration::ZERO]).handler(handler);
    let report = timeout(TIMEOUT, runner.run_until(emptied)).await??;
    assert_eq!((report.retried, report.acknowledged), (1, 1), "{report:?}");
    Ok(())
}

#[tokio::test]
async fn a_message_made_long_ago_is_retried_while_it_lives() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    retried(&emulator, &emulator.connection_string(), ServiceBus::options(QUEUE)).await
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn a_message_made_long_ago_is_retried_while_it_lives_by_rest() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).queue("dead", Settings::default());
    let emulator = builder.listen_http("127.0.0.1:0").start().await?;
    let options = ServiceBus::options(QUEUE)
        .backend(redrive_servicebus::Backend::Rest)
        .dead_letter_queue("dead")
        .poll_wait(Duration::from_secs(1));
    let address = emulator.http_connection_string().ok_or("no HTTP")?;
    retried(&emulator, &address, options).await
}
