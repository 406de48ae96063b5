//! Tests of consumers: their handlers, layers and retry policies, in memory and on virtual time. A retry ladder of days takes
//! milliseconds.
//!
//! ```test_harness
//! use redrive_consumer::Consumer;
//! use redrive_core::{BoxError, Message, Reason, secs};
//! use redrive_testkit::TestConsumer;
//!
//! async fn ship(order: String) -> Result<(), BoxError> {
//!     Err(format!("no carrier takes {order}").into())
//! }
//!
//! #[tokio::test(start_paused = true)]
//! async fn an_order_is_retried_and_then_dead_lettered() {
//!     let run = TestConsumer::new(|orders| {
//!         Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10), secs(60)]).handler(ship)
//!     })
//!     .send(Message::new("a piano").with_id("order-1"))
//!     .run()
//!     .await;
//!
//!     run.assert("order-1")
//!         .attempts_at([secs(0), secs(1), secs(11), secs(71)])
//!         .failed_with("no carrier takes a piano")
//!         .dead_lettered(Reason::MaxDeliveryCountExceeded);
//! }
//! ```
//!
//! - [`TestConsumer`] runs a consumer until every message has ended; with the feature `rabbitmq` also on the emulator of RabbitMQ.
//! - [`TestRun`] tells what happened, and [asserts](TestRun::assert) it. A failed assertion prints the whole run.
//! - [`Script`] lets attempts fail, panic or hang before the handler is called.
//!
//! For authors of a transport: the crate `redrive-contract`.

mod assert;
mod in_process;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod record;
mod recorder;
mod script;
mod snapshot;
mod table;
mod test_broker;
mod test_consumer;

pub use assert::AssertMessage;
pub use in_process::InProcess;
#[cfg(feature = "rabbitmq")]
pub use rabbitmq::OnRabbitMqEmulator;
pub use record::{AttemptRecord, End, MessageRecord, PublishedMessage, TestRun};
pub use script::{Script, Scripted, ScriptedArgs};
pub use test_consumer::TestConsumer;
