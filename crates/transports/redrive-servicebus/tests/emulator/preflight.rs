//! Tests of the preflight at a misconfigured namespace: it finds what the start would refuse, and changes nothing.

use std::time::Duration;

use redrive_consumer::{Consumer, Event, Runner};
use redrive_core::transport::Severity;
use redrive_core::{BoxError, DeadLetterBackoff, Message, RetryPlan, secs};
use redrive_servicebus::{Entity, Options, ServiceBus, Sessions};
use redrive_servicebus_emulator::{Emulator, Settings, Topic};
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_secs(120);

#[tokio::test]
async fn what_the_start_would_refuse_is_found() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let in_session = || ServiceBus::options("sessions").sessions(Sessions::concurrent(2));
    let subscription = || ServiceBus::options(Entity::subscription("topic", "billing"));
    for (options, part) in [
        (ServiceBus::options("nobody"), "`nobody`"),
        (subscription().retry_queue("gone"), "`gone`"),
        (subscription(), "name a separate queue with `Options::retry_queue`"),
        (ServiceBus::options("sessions"), "Sessions::concurrent("),
        (ServiceBus::options("orders").sessions(Sessions::concurrent(2)), "`orders`"),
        (ServiceBus::options("onward"), "forwards its messages (`ForwardTo`)"),
        (
            ServiceBus::options("orders").max_delivery_count(4),
            "or lower the layers' limit (`poison_after`) below 4",
        ),
        (in_session().max_delivery_count(2), "MaxDeliveryCount, which is 2"),
        (in_session().hold_lock_up_to(secs(30)), "lower the policy's cap or schedule"),
    ] {
        let plan = preflight(options.clone(), &emulator).await?;
        let refused = said(&plan, Severity::Refused);
        assert!(refused.contains(part), "`{part}` is not in {plan}");
        let error = starts(options, &emulator).await.expect_err("the start refuses it too");
        assert!(error.contains(part), "`{part}` is not in {error}");
    }
    for options in [ServiceBus::options("orders"), in_session(), subscription().retry_queue("back")] {
        let plan = preflight(options.clone(), &emulator).await?;
        assert!(plan.starts() && plan.asked, "{plan}");
        starts(options, &emulator).await?;
    }
    Ok(())
}

#[tokio::test]
async fn handlers_that_take_longer_than_locks_are_renewed_are_warned_of() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let options = ServiceBus::options("orders").max_lock_renewal(secs(60)).prefetch_count(2);
    let transport = options.connect(&emulator.connection_string()).await?;
    let slow = Consumer::new(transport).longest_handling(secs(61)).with_dead_letter_backoff([secs(1)]);
    let plan = slow.handler(handled).preflight().await?;
    assert!(said(&plan, Severity::Warning).contains("takes an unsettled delivery back after 1m"), "{plan}");
    Ok(())
}

#[tokio::test]
async fn a_preflight_changes_nothing_and_says_what_it_did_not_see() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let options = || ServiceBus::options("orders").parking_queue("parked");
    options().connect(&emulator.connection_string()).await?.publish(Message::new("").with_id("a")).await?;
    let before = emulator.entity("orders")?.counts();
    for _ in 0..3 {
        let plan = preflight(options(), &emulator).await?;
        let unchecked = said(&plan, Severity::Unchecked);
        for part in ["MaxDeliveryCount of `orders` is taken to be 10", "`parked`", "tier Basic"] {
            assert!(unchecked.contains(part), "`{part}` is not in {plan}");
        }
    }
    assert_eq!(format!("{:?}", emulator.entity("orders")?.counts()), format!("{before:?}"));
    let mut deliveries = Vec::new();
    let (seen, mut first) = tokio::sync::mpsc::unbounded_channel();
    let transport = options().connect(&emulator.connection_string()).await?;
    let runner = Consumer::new(transport).handler(move |delivery: redrive_core::Delivery| {
        let _ = seen.send(delivery.broker_delivery_count());
        std::future::ready(())
    });
    assert!(runner.preflight().await?.starts(), "and it can be run afterwards");
    let shutdown = async { deliveries.extend(timeout(TIMEOUT, first.recv()).await.expect("it comes")) };
    runner.run_until(shutdown).await?;
    assert_eq!(deliveries, [1], "no preflight took it");
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_gone_is_an_error() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let runner = consumer(ServiceBus::options("orders"), &emulator).await?;
    emulator.stop().await;
    let error = timeout(TIMEOUT, runner.preflight()).await.expect("an answer").expect_err("nobody is there");
    assert!(error.to_string().contains("did not start"), "{error}");
    Ok(())
}

async fn emulator() -> Result<Emulator, BoxError> {
    let mut in_sessions = Settings::default();
    in_sessions.requires_session = true;
    let mut onward = Settings::default();
    onward.forward_to = Some("back".to_owned());
    let topic = Topic::new("topic", Settings::default()).subscription("billing", Settings::default());
    let queues = ["orders", "back", "parked"];
    let builder = queues
        .into_iter()
        .fold(Emulator::builder(), |builder, queue| builder.queue(queue, Settings::default()));
    Ok(builder.queue("sessions", in_sessions).queue("onward", onward).topic(topic).start().await?)
}

async fn handled() {}

async fn consumer(options: Options, emulator: &Emulator) -> Result<Runner<ServiceBus>, BoxError> {
    let transport = options.connect(&emulator.connection_string()).await?;
    let preset = DeadLetterBackoff::new([secs(60), secs(60)]).poison_after(5);
    Ok(Consumer::new(transport).with_dead_letter_backoff(preset).handler(handled))
}

async fn preflight(options: Options, emulator: &Emulator) -> Result<RetryPlan, BoxError> {
    Ok(timeout(TIMEOUT, consumer(options, emulator).await?.preflight()).await.expect("an answer")?)
}

/// Runs the consumer until it has started.
async fn starts(options: Options, emulator: &Emulator) -> Result<(), String> {
    let runner = consumer(options, emulator).await.map_err(|error| error.to_string())?;
    let handle = runner.handle();
    let stop = move |event: &Event<'_>| {
        if let Event::Started { .. } = event {
            handle.stop();
        }
    };
    let ended = timeout(TIMEOUT, runner.observer(stop).run()).await.expect("an end");
    ended.map(drop).map_err(|error| error.to_string())
}

/// Returns the findings of this severity, of which there must be one.
fn said(plan: &RetryPlan, severity: Severity) -> String {
    let found = plan.findings.iter().filter(|finding| finding.severity == severity);
    let found: Vec<_> = found.map(|finding| finding.text.as_str()).collect();
    assert!(!found.is_empty(), "no finding is `{severity}`: {plan}");
    found.join("; ")
}
