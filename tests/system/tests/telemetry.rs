//! What a consumer tells of each delivery: one span, and one line per decision at the right level.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use redrive::prelude::*;
use redrive_system_tests::{Diary, memory_with};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

async fn fail() -> Result<(), BoxError> {
    Err("postgres://app:hunter2@db: no answer".into())
}

#[tokio::test(start_paused = true)]
async fn every_delivery_has_a_span_with_the_attributes_that_dashboards_know() {
    let recorded = Recorded::default();
    let _guard = tracing::subscriber::set_default(recorded.clone());
    let message = Message::new("body")
        .with_id("order-1")
        .with_correlation_id("basket-7")
        .with_header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let (_broker, transport) = memory_with([message]);
    let diary = Diary::new();
    let consumer =
        Consumer::new(transport).with_dead_letter_backoff([secs(1)]).observer(diary.observer()).handler(fail);
    consumer.run_until(diary.ended(1)).await.unwrap();

    let spans = recorded.spans.lock().unwrap();
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
        assert_eq!(attribute("delivery.count"), (index + 1).to_string());
        assert_eq!(attribute("traceparent"), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        assert_eq!(attribute("dlq.error_description"), "postgres://app:***@db: no answer");
    }
    assert_eq!(spans[0]["dlq.reason"], "RetryableError");
    assert_eq!(spans[1]["dlq.reason"], "MaxDeliveryCountExceeded");
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

    let lines = recorded.lines.lock().unwrap();
    let level_of = |text: &str| lines.iter().find(|(_, line)| line.contains(text)).map(|(level, _)| *level);
    assert_eq!(level_of("failed: tried again"), Some(Level::WARN));
    assert_eq!(level_of("failed: goes to the dead-letter shelf"), Some(Level::ERROR));
    assert_eq!(level_of("the consumer takes messages"), Some(Level::INFO));
    assert!(lines.iter().all(|(_, line)| !line.contains("hunter2")), "{lines:?}");
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
    let lines = recorded.lines.lock().unwrap();
    let (level, line) = lines.iter().find(|(_, line)| line.contains("the handler panicked")).unwrap();
    assert_eq!(*level, Level::ERROR);
    assert!(line.contains("dropped the vase") && line.contains("a_panic_is_logged"), "no backtrace: {line}");
}

/// Keeps the spans of deliveries and all lines.
#[derive(Clone, Default)]
struct Recorded {
    spans: Arc<Mutex<Vec<BTreeMap<String, String>>>>,
    lines: Arc<Mutex<Vec<(Level, String)>>>,
}

impl Subscriber for Recorded {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redrive")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut span = Fields::default();
        attributes.record(&mut span);
        let mut spans = self.spans.lock().unwrap();
        spans.push(span.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        let mut spans = self.spans.lock().unwrap();
        spans[usize::try_from(id.into_u64()).unwrap() - 1].extend(fields.0);
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.lines.lock().unwrap().push((*event.metadata().level(), format!("{:?}", fields.0)));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
