//! Deciding: a classifier of its own says which errors another attempt can mend, and a stage of its own has a say in what
//! becomes of some messages.
//!
//! ```console
//! $ cargo run --package services -- deciding
//! ```

use std::error::Error;
use std::ops::ControlFlow;

use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use redrive::{ByMarker, Outcome, chain};

/// What an HTTP client may tell.
#[derive(Debug, thiserror::Error)]
#[error("the carrier answered {status}")]
struct CarrierError {
    status: u16,
}

/// Goes by the status. What did not come from the carrier goes by the markers of `MarkError`, as it does by default.
struct ByStatus;

impl ErrorClassifier for ByStatus {
    fn classify(&self, error: &(dyn Error + 'static)) -> ErrorClass {
        match chain(error).find_map(|cause| cause.downcast_ref::<CarrierError>()) {
            Some(CarrierError { status: 429 }) => ErrorClass::Throttled(secs(3)),
            Some(CarrierError { status: 400..500 }) => ErrorClass::Permanent,
            Some(_) => ErrorClass::Transient,
            None => ByMarker.classify(error),
        }
    }
}

/// Turns away what is not for this service, and keeps no failed test messages. A stage knows what stands on the delivery, and
/// nothing else: no clock, no I/O.
struct OwnTenants;

fn tenant(delivery: &Delivery) -> Option<&str> {
    delivery.message().headers().get("tenant").and_then(|tenant| tenant.as_str())
}

impl Stage for OwnTenants {
    /// On the way in.
    fn admit(&self, delivery: &Delivery) -> ControlFlow<Disposition> {
        match tenant(delivery) {
            Some("blue" | "test") => ControlFlow::Continue(()),
            other => {
                let failure = Failure::custom("WrongTenant", format!("for {other:?}"));
                ControlFlow::Break(Disposition::DeadLetter(failure))
            }
        }
    }

    /// On the way out.
    fn resolve(&self, delivery: &Delivery, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(Disposition::DeadLetter(failure)) if tenant(delivery) == Some("test") => {
                Ok(Disposition::Discard(failure))
            }
            other => other,
        }
    }
}

/// The body is what the carrier answers at the first attempt.
async fn ship(status: String, Attempt(attempt): Attempt) -> Result<(), BoxError> {
    let status = status.parse().permanent()?;
    if status == 200 || attempt > 1 { Ok(()) } else { Err(CarrierError { status }.into()) }
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    let orders = broker.transport("orders");
    let messages = [
        ("succeeds", "200", "blue"),
        ("is retried after a second", "503", "blue"),
        ("is retried after three seconds", "429", "blue"),
        ("is refused by the carrier", "404", "blue"),
        ("has no status", "lamp", "blue"),
        ("fails in a test", "404", "test"),
        ("is not ours", "200", "green"),
    ];
    for (id, status, tenant) in messages {
        orders.publish(Message::new(status).with_id(id).with_header("tenant", tenant)).await?;
    }

    let report = Consumer::new(orders)
        // Outside of the preset: it sees what the preset has decided. What it turns away is never parked.
        .stage(OwnTenants)
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1), secs(10)]).classifier(ByStatus))
        .observer(|event: &Event<'_>| {
            if let Event::Settled { delivery, disposition, .. } = event {
                let why = disposition.failure().map(Failure::to_string).unwrap_or_default();
                println!("{}: {} {why}", delivery.id(), disposition.name());
            }
        })
        .handler(ship)
        .run_until(crate::empty(broker, &["orders"]))
        .await?;
    println!("{report:?}");
    Ok(())
}

#[cfg(test)]
#[tokio::test(start_paused = true)]
async fn every_message_ends_as_it_says() -> Result<(), BoxError> {
    let broker = MemoryBroker::new();
    let began = tokio::time::Instant::now();
    run(&broker).await?;
    assert_eq!(began.elapsed().as_secs(), 3, "the wait that the carrier asked for");
    let shelved = broker.shelf("orders", Shelf::DeadLetter);
    let mut ids: Vec<_> = shelved.iter().filter_map(Message::id).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["has no status", "is not ours", "is refused by the carrier"]);
    Ok(())
}
