//! Contents of messages.

use redrive_core::transport::Settlement;
use redrive_core::{Bytes, Headers, Message, Shelf, Value, header_names as names};
use tokio::time::Instant;

use crate::case::Case;
use crate::harness::{Bench, Harness};
use crate::planning::{CLOCK_ERROR, LONG, SHORT, copied, retry, shelve};
use crate::samples;

/// An empty body is carried unchanged through retries and onto shelves.
pub async fn an_empty_body_is_carried<H: Harness>(case: &Case<H>) {
    is_carried(case, Message::new("").with_id("a")).await;
}

/// A body of a megabyte is carried unchanged through retries and onto shelves.
pub async fn a_large_body_is_carried<H: Harness>(case: &Case<H>) {
    let body: Vec<u8> = (0..1_048_576_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    is_carried(case, Message::new(body).with_id("a")).await;
}

/// A binary body is carried unchanged through retries and onto shelves.
pub async fn a_binary_body_is_carried<H: Harness>(case: &Case<H>) {
    let body: Vec<u8> = (0..=255).collect();
    is_carried(case, Message::new(body).with_id("a")).await;
}

/// A message without an id gets one on arrival, and its copies keep it: from then on it can be told from others.
pub async fn a_message_without_an_id_gets_one<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    case.publish(Message::new("first")).await;
    case.publish(Message::new("second")).await;
    let first = case.next(&transport).await;
    let second = case.next(&transport).await;
    assert!(!first.delivery.id().is_empty() && first.delivery.history().id_assigned);
    assert_ne!(first.delivery.id(), second.delivery.id());
    case.settle(&transport, first.receipt, retry(&*transport, &first.delivery, SHORT)).await;
    let again = case.complete_next(&transport).await;
    assert_eq!((again.id(), &again.message().body()[..]), (first.delivery.id(), &b"first"[..]));
    assert!(!again.history().id_assigned);
}

/// A header whose text is not UTF-8 keeps its bytes and its type.
pub async fn a_header_that_is_not_utf8_is_carried<H: Harness>(case: &Case<H>) {
    header_is_carried(case, Value::RawString(Bytes::from_static(b"\xff\xfe caf\xe9"))).await;
}

/// Tables in arrays in tables are carried unchanged.
pub async fn nested_headers_are_carried<H: Harness>(case: &Case<H>) {
    let mut value = Value::Table(Headers::from_iter([("leaf", Value::I64(7))]));
    for depth in 0..6 {
        let items = Value::List(vec![value, Value::Bool(true), "beside".into()]);
        value = Value::Table(Headers::from_iter([(format!("level-{depth}"), items)]));
    }
    header_is_carried(case, value).await;
}

/// A hundred headers, some with long names and some with names in other scripts, are carried unchanged.
pub async fn many_headers_are_carried<H: Harness>(case: &Case<H>) {
    let mut message = Message::new("many headers").with_id("a").with_header("größe-📏", "L");
    for n in 0..100 {
        message.headers_mut().insert(format!("header-{n}-{}", "x".repeat(n)), "v".repeat(n));
    }
    is_carried(case, message).await;
}

/// A message without headers, and with no property but its id, is carried unchanged.
pub async fn a_bare_message_is_carried<H: Harness>(case: &Case<H>) {
    is_carried(case, Message::new("bare").with_id("a")).await;
}

/// Redrive's own headers with values of the wrong type, as a broken or hostile publisher writes them, break nothing:
/// the message arrives, can be retried and shelved, and its attempt is not taken for the first.
pub async fn hostile_headers_break_nothing<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let hostile = [
        Value::Table(Headers::from_iter([("x", Value::List(vec![Value::Bool(true)]))])),
        Value::I64(i64::MIN),
        "not a number".into(),
    ];
    for (n, value) in hostile.into_iter().enumerate() {
        let mut message = Message::new("hostile").with_id(format!("hostile-{n}")).with_header("ours", "kept");
        for &name in names::ALL {
            message.headers_mut().insert(name, value.clone());
        }
        case.publish(message).await;
        let received = case.next(&transport).await;
        assert_eq!(
            received.delivery.attempt(),
            u32::MAX,
            "an unreadable count of attempts was made readable"
        );
        case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, SHORT)).await;
        let again = case.next(&transport).await;
        assert_eq!(again.delivery.attempt(), u32::MAX, "an unreadable count of attempts was made readable");
        let settlement = shelve(&*transport, &again.delivery, Shelf::Parking);
        case.settle(&transport, again.receipt, settlement).await;
        let shelved = case.on_shelf(Shelf::Parking, n + 1).await;
        assert_eq!(shelved[n].headers().get("ours"), Some(&"kept".into()));
    }
    case.nothing_is_left(&transport).await;
}

/// Headers on a published message that look like the broker's own (`x-death`, `x-delivery-count`, …) count neither as an attempt
/// nor as a delivery, and do not prevent retries.
pub async fn forged_broker_headers_count_for_nothing<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let message = Message::new("forged")
        .with_id("a")
        .with_header("x-death", "forged")
        .with_header("x-retry-count", 99_i64);
    case.publish(message).await;
    let received = case.next_is(&transport, "a").await;
    assert_eq!((received.delivery.attempt(), received.delivery.broker_delivery_count()), (1, 1));
    case.settle(&transport, received.receipt, retry(&*transport, &received.delivery, SHORT)).await;
    assert_eq!(case.complete_is(&transport, "a").await.attempt(), 2);
}

/// Headers that tell the broker what to do with a message do nothing on a message that redrive carries, whoever wrote them: it is
/// retried and shelved like any other, and reaches nobody else.
pub async fn the_headers_that_control_the_broker_do_nothing<H: Harness>(case: &Case<H>) {
    let control = case.harness.control_headers();
    if control.is_empty() {
        return case.does_not_apply("the harness names no headers that control the broker");
    }
    let transport = case.started().await;
    for (n, (name, value)) in control.into_iter().enumerate() {
        let id = format!("control-{n}");
        case.publish(Message::new(name).with_id(id.clone()).with_header(name, value)).await;
        let received = case.next_is(&transport, &id).await;
        let delivery = &received.delivery;
        assert_eq!((delivery.attempt(), delivery.broker_delivery_count()), (1, 1), "`{name}` was counted");
        assert!(!delivery.redelivered(), "`{name}` marks a new message as redelivered");
        let begun = Instant::now();
        let settlement = copied(&*transport, &received.delivery, LONG);
        let copy = samples::sent_on(&settlement, &received.delivery);
        // One hop of the wait.
        let Settlement::Reschedule { wait, .. } = settlement else { panic!("{settlement:?} is no copy") };
        case.settle(&transport, received.receipt, settlement).await;
        let again = case.next_is(&transport, &id).await;
        let waited = begun.elapsed();
        assert!(waited + CLOCK_ERROR >= wait, "`{name}` ended a wait of {wait:?} after {waited:?}");
        assert_eq!(again.delivery.attempt(), 2, "`{name}` hid an attempt");
        samples::assert_same(again.delivery.message(), &copy);
        let settlement = shelve(&*transport, &again.delivery, Shelf::DeadLetter);
        case.settle(&transport, again.receipt, settlement).await;
        let shelved = case.on_shelf(Shelf::DeadLetter, n + 1).await;
        assert_eq!(shelved[n].id(), Some(&*id));
    }
    case.nothing_is_left(&transport).await;
}

/// What foreign publishers send and redrive would never write stops nobody: it arrives, can be retried and shelved, and what is
/// published after it arrives too.
pub async fn foreign_messages_stop_nothing<H: Harness>(case: &Case<H>) {
    let transport = case.started().await;
    let foreign = case.bench.publish_foreign().await;
    let foreign = foreign.unwrap_or_else(|error| panic!("the harness publishes no foreign message: {error}"));
    if !case.applies_if(foreign > 0, || "the harness has no foreign messages".to_owned()) {
        return;
    }
    case.publish_ids(&["after"]).await;
    let mut held = Vec::new();
    for _ in 0..=foreign {
        held.push(case.next(&transport).await);
    }
    assert!(held.iter().any(|received| received.delivery.id() == "after"), "`after` did not arrive");
    for received in held {
        case.settle(&transport, received.receipt, copied(&*transport, &received.delivery, SHORT)).await;
    }
    for _ in 0..=foreign {
        let received = case.next(&transport).await;
        assert_eq!(received.delivery.attempt(), 2);
        let settlement = shelve(&*transport, &received.delivery, Shelf::DeadLetter);
        case.settle(&transport, received.receipt, settlement).await;
    }
    case.on_shelf(Shelf::DeadLetter, foreign + 1).await;
    case.nothing_is_left(&transport).await;
}

async fn header_is_carried<H: Harness>(case: &Case<H>, value: Value) {
    if !case.harness.carries(&value) {
        return case.does_not_apply("the harness says that the broker cannot carry such a header");
    }
    is_carried(case, Message::new("one header").with_id("a").with_header("header", value)).await;
}

/// Checks that a message is carried: published, retried, shelved, it is at each station what was sent there.
async fn is_carried<H: Harness>(case: &Case<H>, message: Message) {
    let transport = case.started().await;
    case.publish(message.clone()).await;
    let first = case.next(&transport).await;
    samples::assert_same(first.delivery.message(), &case.harness.as_published(message));
    let settlement = retry(&*transport, &first.delivery, SHORT);
    let copy = samples::sent_on(&settlement, &first.delivery);
    case.settle(&transport, first.receipt, settlement).await;
    let second = case.next(&transport).await;
    samples::assert_same(second.delivery.message(), &copy);
    let settlement = shelve(&*transport, &second.delivery, Shelf::DeadLetter);
    let copy = samples::sent_on(&settlement, &second.delivery);
    case.settle(&transport, second.receipt, settlement).await;
    samples::assert_same(&case.on_shelf(Shelf::DeadLetter, 1).await[0], &copy);
}
