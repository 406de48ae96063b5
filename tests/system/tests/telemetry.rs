//! What a consumer tells of each delivery: one span, and one line per decision at the right level.

use redrive::prelude::*;
use redrive::transport::Signal;
use redrive::{ConsumerError, Event, TransportError, TransportErrorKind};
use redrive_system_tests::recorded::{Recorded, Shown};
use redrive_system_tests::shared::Shared;
use redrive_system_tests::{Diary, memory_with, numbered};
use tracing::Level;

async fn fail() -> Result<(), BoxError> {
    Err("postgres://app:hunter2@db: no answer".into())
}

#[tokio::test(start_paused = true)]
async fn every_delivery_has_a_span_with_the_attributes_that_dashboards_know() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let message = Message::new("body").with_id("order-1").with_correlation_id("basket-7");
    let (_broker, transport) = memory_with([message]);
    let diary = Diary::new();
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff([secs(1)]).observer(diary.observer()).handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();

    let spans = recorded.spans();
    let named = |name: &str| spans.iter().filter(|span| span["name"] == name).collect::<Vec<_>>();
    assert_eq!((named("start").len(), named("settle").len()), (1, 2));
    let spans = named("process");
    assert_eq!(spans.len(), 2, "one for each attempt");
    for (index, span) in spans.iter().enumerate() {
        let attribute = |name: &str| span.get(name).map_or("", String::as_str);
        assert_eq!(attribute("messaging.system"), "memory");
        assert_eq!(attribute("messaging.operation.type"), "process");
        assert_eq!(attribute("messaging.destination.name"), "orders");
        assert_eq!(attribute("messaging.message.id"), "order-1");
        assert_eq!(attribute("messaging.message.conversation_id"), "basket-7");
        assert_eq!(attribute("messaging.message.body.size"), "4");
        assert_eq!(attribute("queue.name"), "orders");
        assert_eq!(attribute("message.id"), "order-1");
        assert_eq!(attribute("delivery.count"), "1", "each attempt is another copy");
        assert_eq!(attribute("redrive.attempt"), (index + 1).to_string());
        assert_eq!(attribute("otel.status_code"), "ERROR");
        assert_eq!(attribute("error.type"), ["RetryableError", "MaxDeliveryCountExceeded"][index]);
    }
    let (retried, dead) = (spans[0], spans[1]);
    assert_eq!(
        (&*retried["redrive.retry.reason"], &*retried["redrive.retry.wait_ms"]),
        ("RetryableError", "1000")
    );
    assert!(!retried.keys().any(|name| name.starts_with("dlq.")), "a retry is no dead letter: {retried:?}");
    assert_eq!(dead["dlq.reason"], "MaxDeliveryCountExceeded");
    assert_eq!(dead["dlq.error_description"], "postgres://app:***@db: no answer");
    assert!(!dead.keys().any(|name| name.starts_with("redrive.retry.")), "{dead:?}");
}

#[tokio::test(start_paused = true)]
async fn decisions_are_as_loud_as_they_matter_and_tell_no_secret() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let (_broker, transport) = memory_with([Message::new("body").with_id("m")]);
    let diary = Diary::new();
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff([secs(1)]).observer(diary.observer()).handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();

    let lines = recorded.lines();
    let level_of = |text: &str| lines.iter().find(|(_, line)| line.contains(text)).map(|(level, _)| *level);
    assert_eq!(level_of("failed: tried again"), Some(Level::INFO));
    assert_eq!(level_of("failed: goes to the dead-letter shelf"), Some(Level::WARN));
    assert_eq!(level_of("the consumer started"), Some(Level::INFO));
    assert!(lines.iter().all(|(_, line)| !line.contains("hunter2")), "{lines:?}");
}

#[test]
fn the_page_explains_every_metric_with_its_labels() {
    let page = include_str!("../../../docs/observability.md");
    for metric in redrive::telemetry::catalog() {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{}` |", metric.name)));
        let row = row.unwrap_or_else(|| panic!("`{}` is not explained", metric.name));
        for label in metric.labels.iter().filter(|label| **label != "queue_name") {
            assert!(row.contains(&format!("`{label}`")), "`{label}` of `{}`", metric.name);
        }
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.contains("_total` |")).count();
    let counters = redrive::telemetry::catalog().iter().filter(|metric| metric.name.ends_with("_total"));
    assert_eq!(rows, counters.count(), "a row without a metric");
}

/// The table of `docs/observability.md`.
#[tokio::test(start_paused = true)]
async fn every_decision_is_one_event_with_stable_fields() {
    async fn decides(Attempt(attempt): Attempt, delivery: Delivery) -> Disposition {
        let failure = || Failure::custom("OutOfStock", "none left");
        match delivery.id() {
            _ if attempt > 1 => Disposition::Ack,
            "snooze" if delivery.history().snoozes == 0 => Disposition::snooze(secs(3)),
            "retry" => Disposition::Retry(secs(2), failure()),
            "dead-letter" => Disposition::DeadLetter(failure()),
            "park" => Disposition::Park(failure()),
            "discard" => Disposition::Discard(failure()),
            _ => Disposition::Ack,
        }
    }
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let ids = ["ack", "snooze", "retry", "dead-letter", "park", "discard"];
    let (_broker, transport) = memory_with(ids.map(|id| Message::new("").with_id(id)));
    let diary = Diary::new();
    let consumer = Consumer::new(transport).observer(diary.observer()).handler(decides);
    consumer.run_until(diary.ended(ids.len())).await.unwrap();

    let events = recorded.events();
    for (id, level, more) in [
        ("ack", Level::DEBUG, ""),
        ("snooze", Level::DEBUG, "wait_ms=3000"),
        ("retry", Level::INFO, "error=none left reason=OutOfStock wait_ms=2000"),
        ("dead-letter", Level::WARN, "error=none left reason=OutOfStock"),
        ("park", Level::WARN, "error=none left reason=OutOfStock"),
        ("discard", Level::WARN, "error=none left reason=OutOfStock"),
    ] {
        let of = |(_, fields): &&(Level, Shown)| {
            fields.get("disposition").is_some_and(|disposition| disposition == id)
                && fields.get("message_id").is_some_and(|message| message == id)
        };
        let [(found, fields)] = &*events.iter().filter(of).collect::<Vec<_>>() else {
            panic!("{id} is not one event: {events:#?}")
        };
        assert_eq!(*found, level, "{id}");
        let shown = fields.iter().filter(|(name, _)| *name != "message");
        let shown: Vec<_> = shown.map(|(name, value)| format!("{name}={value}")).collect();
        let mut expected = vec!["attempt=1".to_owned(), format!("disposition={id}")];
        expected.extend((!more.is_empty()).then(|| more.to_owned()));
        expected.extend([format!("message_id={id}"), "queue=orders".to_owned()]);
        assert_eq!(sorted(&shown.join(" ")), sorted(&expected.join(" ")), "{id}");
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut words: Vec<_> = text.split(' ').collect();
    words.sort_unstable();
    words
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_logged_with_its_message_and_backtrace() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let (_broker, transport) = memory_with([Message::new("body")]);
    let diary = Diary::new();
    let panics = || async {
        if true {
            panic!("dropped the vase");
        }
    };
    let consumer = Consumer::new(transport)
        .with_dead_letter_backoff(redrive::NoRetry)
        .observer(diary.observer())
        .handler(panics);
    consumer.run_until(diary.ended(1)).await.unwrap();
    let lines = recorded.lines();
    let (level, line) = lines.iter().find(|(_, line)| line.contains("the handler panicked")).unwrap();
    assert_eq!(*level, Level::ERROR);
    assert!(line.contains("dropped the vase") && line.contains("a_panic_is_logged"), "no backtrace: {line}");
}

/// An interruption that another one follows, one that is over, and one that the consumer does not outlive.
#[tokio::test(start_paused = true)]
async fn an_interruption_of_the_intake_is_a_span_an_error_and_its_end() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let (broker, memory) = memory_with([]);
    let transport = Shared::new(memory.into());
    // Like a publisher that outlives the consumer, it keeps the signals.
    let voice = transport.voice();
    let interruptions = || {
        let spans = recorded.spans();
        spans.into_iter().filter(|span| span["name"] == "interruption").collect::<Vec<_>>()
    };
    let cut = |what: &str| {
        voice.tell(Signal::Disconnected(TransportError::new(TransportErrorKind::Unreachable, what)));
    };
    let diary = Diary::new();
    let consumer = Consumer::new(transport).observer(diary.observer()).handler(async || ());
    let cutting = async {
        broker.publish("orders", Message::new("")).unwrap();
        diary.ended(1).await;
        cut("the broker is away");
        cut("still away");
        tokio::time::sleep(secs(7)).await;
        assert_eq!(interruptions().len(), 1, "one, however often it is told");
        assert!(!interruptions()[0].contains_key("closed"), "until it is over: {:?}", interruptions());
        voice.tell(Signal::Connected);
        assert!(interruptions()[0].contains_key("closed"), "{:?}", interruptions());
        voice.tell(Signal::Connected);
        cut("away again");
        tokio::time::sleep(secs(1)).await;
    };
    consumer.run_until(cutting).await.unwrap();
    // The transport goes on for a moment.
    cut("closed");

    let spans = interruptions();
    assert_eq!(spans.len(), 2, "{spans:#?}");
    for span in &spans {
        assert_eq!(
            (&*span["otel.name"], &*span["messaging.destination.name"]),
            ("interruption orders", "orders")
        );
        assert_eq!((&*span["otel.status_code"], &*span["error.type"]), ("ERROR", "Unreachable"));
        assert!(span.contains_key("closed"), "no interruption of a consumer that has ended: {span:?}");
    }
    let events = recorded.events();
    let lines = |text: &str| {
        let of = |(_, fields): &&(Level, Shown)| fields["message"].starts_with(text);
        events.iter().filter(of).collect::<Vec<_>>()
    };
    let [(Level::ERROR, lost), (Level::ERROR, _)] = &*lines("cannot receive") else { panic!("{events:#?}") };
    assert_eq!((&*lost["queue"], &*lost["error"]), ("orders", "the broker is away"));
    let [(Level::INFO, back)] = &*lines("can receive again") else { panic!("{events:#?}") };
    assert_eq!((&*back["queue"], &*back["after"]), ("orders", "7s"));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_is_a_span_that_says_why() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let (_broker, memory) = memory_with([]);
    let transport = Shared::saying(memory.into(), |facts| facts.delays.longest = Some(secs(1)));
    let runner = Consumer::new(transport).with_dead_letter_backoff([secs(60)]).handler(async || ());
    let ended = runner.run().await;
    assert!(matches!(ended, Err(ConsumerError::Refused { .. })), "{ended:?}");
    let spans = recorded.spans();
    let start = spans.iter().find(|span| span["name"] == "start").unwrap();
    assert_eq!((&*start["otel.status_code"], &*start["error.type"]), ("ERROR", "Refused"));
    assert!(start.contains_key("closed"));
}

/// As `tokio::select!` does with the branch that is not first.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_dropped_tells_its_end() {
    let (_broker, transport) = memory_with(numbered(1));
    let (ends, mut ended) = tokio::sync::watch::channel(0);
    let (begins, mut began) = tokio::sync::watch::channel(false);
    let runner = Consumer::new(transport)
        .observer(move |event: &Event<'_>| match event {
            Event::Received { .. } => drop(begins.send_replace(true)),
            Event::Stopped { error: None, .. } => ends.send_modify(|times| *times += 1),
            _ => {}
        })
        .handler(std::future::pending::<()>);
    tokio::select! {
        ended = runner.run() => panic!("{ended:?}"),
        began = began.wait_for(|began| *began) => drop(began.unwrap()),
    }
    ended.wait_for(|times| *times == 1).await.expect("it is told before the observer is gone");
}
