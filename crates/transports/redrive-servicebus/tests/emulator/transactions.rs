//! Tests of refused transactions: only a namespace without transactions is used without them.

use std::time::Duration;

use redrive_contract::Started;
use redrive_core::transport::{Needs, Received, Settlement};
use redrive_core::{BoxError, Disposition, Failure, Message, TransportErrorKind};
use redrive_servicebus::{Receipt, ServiceBus};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step};
use tokio::time::timeout;

const QUEUE: &str = "orders";
const TIMEOUT: Duration = Duration::from_secs(60);

fn failure() -> Failure {
    Failure::custom("Broken", "it does not work")
}

fn at_once() -> Disposition {
    Disposition::Retry(Duration::ZERO, failure())
}

struct Bench {
    emulator: Emulator,
    transport: Started<ServiceBus>,
}

impl Bench {
    async fn start() -> Result<Self, BoxError> {
        let builder = Emulator::builder().queue(QUEUE, Settings::default());
        let emulator = builder.queue("parked", Settings::default()).start().await?;
        let options = ServiceBus::options(QUEUE).parking_queue("parked");
        let transport = options.connect(&emulator.connection_string()).await?;
        let transport = Started::open(transport, &Needs::none()).await?;
        transport.publish(Message::new("").with_id("a")).await?;
        Ok(Self { emulator, transport })
    }

    fn refuse(&self, step: Step, condition: &str) {
        self.emulator.inject(Fault::new(step, Effect::refuse(condition)));
    }

    /// Receives the message, and returns its receipt and a settlement.
    async fn next(&self, disposition: Disposition) -> Result<(Receipt, Settlement), BoxError> {
        let received = timeout(TIMEOUT, self.transport.receive()).await??;
        let Received { delivery, receipt } = received.ok_or("receiving ended")?;
        let settlement = self.transport.plan(&delivery, disposition);
        Ok((receipt, settlement))
    }

    async fn retry(&self) -> Result<(), BoxError> {
        let (receipt, retry) = self.next(at_once()).await?;
        Ok(self.transport.settle(receipt, retry).await.map_err(|refused| refused.error)?)
    }

    /// Retries the message, and returns the error: it is still in flight. Then retries it successfully.
    async fn retry_is_refused_once(&self) -> Result<redrive_core::TransportError, BoxError> {
        let (receipt, retry) = self.next(at_once()).await?;
        let refused = self.transport.settle(receipt, retry.clone()).await.expect_err("it is refused");
        let receipt = refused.receipt.ok_or("it is no longer in flight")?;
        self.transport.settle(receipt, retry).await.map_err(|refused| refused.error)?;
        Ok(refused.error)
    }

    /// Returns true if the next retry is a transaction.
    async fn has_transactions(&self) -> Result<bool, BoxError> {
        self.refuse(Step::Commit, "amqp:transaction:rollback");
        let (receipt, retry) = self.next(at_once()).await?;
        match self.transport.settle(receipt, retry.clone()).await {
            Ok(()) => Ok(false),
            Err(refused) => {
                let receipt = refused.receipt.ok_or("it is no longer in flight")?;
                self.transport.settle(receipt, retry).await.map_err(|refused| refused.error)?;
                Ok(true)
            }
        }
    }
}

#[tokio::test]
async fn a_transaction_that_is_refused_for_once_is_tried_again() -> Result<(), BoxError> {
    for condition in
        ["com.microsoft:entity-disabled", "amqp:not-found", "com.microsoft:operation-cancelled", "unknown"]
    {
        let bench = Bench::start().await?;
        bench.refuse(Step::Declare, condition);
        let error = bench.retry_is_refused_once().await?;
        assert!(error.to_string().contains(condition), "{error}");
        assert!(bench.has_transactions().await?, "{condition}: it does without from now on");
        assert_eq!(bench.emulator.entity(QUEUE)?.messages().len(), 1, "{condition}");
    }
    Ok(())
}

#[tokio::test]
async fn a_namespace_without_transactions_is_used_without() -> Result<(), BoxError> {
    for (step, condition) in [
        (Step::Declare, "amqp:not-allowed"),
        (Step::Declare, "amqp:not-implemented"),
        (Step::Attach, "amqp:not-allowed"),
    ] {
        let bench = Bench::start().await?;
        bench.refuse(step, condition);
        bench.retry().await?;
        assert!(!bench.has_transactions().await?, "{condition}: the next retry is a transaction");
        assert_eq!(bench.emulator.entity(QUEUE)?.messages().len(), 1, "{condition}");
    }
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_committed_a_transaction_has_them() -> Result<(), BoxError> {
    for condition in ["amqp:not-allowed", "amqp:not-implemented"] {
        let bench = Bench::start().await?;
        bench.retry().await?;
        bench.refuse(Step::Declare, condition);
        let error = bench.retry_is_refused_once().await?;
        assert_eq!(error.kind(), TransportErrorKind::Unconfirmed, "{error}");
        assert!(bench.has_transactions().await?, "{condition}: it does without from now on");
    }
    Ok(())
}

/// The condition that says at the coordinator that there are no transactions says nothing of the kind elsewhere.
#[tokio::test]
async fn nothing_but_the_coordinator_says_that_there_are_no_transactions() -> Result<(), BoxError> {
    // The first copy to the parking queue needs a token for it.
    for step in [Step::Cbs, Step::Request, Step::Send] {
        for condition in ["amqp:not-allowed", "amqp:not-implemented"] {
            let bench = Bench::start().await?;
            let (receipt, park) = bench.next(Disposition::Park(failure())).await?;
            bench.refuse(step, condition);
            let refused = bench.transport.settle(receipt, park.clone()).await.expect_err("it is refused");
            let said = refused.error.to_string();
            assert!(said.contains("refused") || said.contains(condition), "{step:?}: {said}");
            assert!(!said.contains("the namespace has no transactions"), "{step:?} {condition}: {said}");
            let receipt = refused.receipt.ok_or("it is no longer in flight")?;
            bench.transport.settle(receipt, park).await.map_err(|refused| refused.error)?;
            bench.transport.publish(Message::new("").with_id("b")).await?;
            assert!(bench.has_transactions().await?, "{step:?} {condition}: it does without from now on");
        }
    }
    Ok(())
}
