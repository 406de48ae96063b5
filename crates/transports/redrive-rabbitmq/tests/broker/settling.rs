//! Copies and acknowledgements: what is stored before what is removed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::common::{self, Scene, message, needs, next, publish, published, retry, settle};
use futures::future::join_all;
use lapin::BasicProperties;
use lapin::ExchangeKind;
use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions};
use lapin::types::{AMQPValue, DecimalValue, FieldArray, FieldTable, LongString, ShortString};
use redrive_contract::{Started, eventually, found};
use redrive_core::transport::Settlement;
use redrive_core::{Disposition, Message, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{QueueType, Topology};

crate::tests!(
    a_returned_copy_is_never_taken_for_a_stored_one,
    what_comes_back_in_a_full_pipeline_is_never_taken_for_stored,
    a_delay_queue_that_was_deleted_is_declared_again,
    a_wait_that_nobody_named_takes_a_spare_queue,
    nothing_waits_behind_a_longer_wait,
    headers_that_fit_no_frame_leave_the_connection_alone,
    every_property_and_header_type_survives_the_hops,
    what_the_broker_wrote_and_a_foreign_user_do_not_come_along,
    a_receipt_dropped_outside_a_runtime_gives_back,
    looking_at_a_shelf_many_times_loses_nothing,
);

const GONE: u64 = 60_000;
const THERE: u64 = 100;

/// Hundreds of copies at once, every second one for a queue that was deleted behind the transport's back.
async fn a_returned_copy_is_never_taken_for_a_stored_one(scene: Scene) {
    const MESSAGES: usize = 400;
    let needs = needs(&[THERE, GONE], 500);
    scene.started(&needs).await.close().await;
    let options = scene.options().topology(Topology::Verify).delivery_limit(100);
    let transport = options.connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    join_all((0..MESSAGES).map(|n| publish(&transport, message(format!("m{n}"))))).await;
    let mut hands = Vec::new();
    while hands.len() < MESSAGES {
        hands.push(next(&transport).await);
    }
    scene.delete(&scene.rung(GONE)).await;
    let settled = join_all(hands.into_iter().enumerate().map(|(n, hand)| {
        let wait = Duration::from_millis(if n % 2 == 0 { GONE } else { THERE });
        let settlement = retry(&transport, &hand.delivery, wait);
        let (transport, id) = (&transport, hand.delivery.id().to_owned());
        async move { (n, id, transport.settle(hand.receipt, settlement).await) }
    }));
    let mut stored = BTreeSet::new();
    let mut held = Vec::new();
    for (n, id, outcome) in settled.await {
        match outcome {
            Ok(()) => {
                assert_eq!(n % 2, 1, "`{id}` was stored nowhere, and is said to be stored");
                stored.insert(id);
            }
            Err(refused) => {
                assert_eq!(n % 2, 0, "`{id}` was refused: {}", refused.error);
                assert_eq!(refused.error.kind(), TransportErrorKind::Unroutable, "{}", refused.error);
                held.push(refused.receipt.expect("the delivery is still in flight"));
            }
        }
    }
    assert_eq!((stored.len(), held.len()), (MESSAGES / 2, MESSAGES / 2));
    let mut back = BTreeSet::new();
    while back.len() < MESSAGES / 2 {
        let hand = next(&transport).await;
        assert_eq!(hand.delivery.attempt(), 2);
        back.insert(hand.delivery.id().to_owned());
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    assert_eq!(back, stored);
    for receipt in held {
        transport.settle(receipt, Settlement::Complete).await.expect("what was refused is still in flight");
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Thousands at once, all on the same route, so that they go together in batches: a headers exchange takes some and sends
/// others back. Each has an answer of its own, and what is said to be stored is there, once. `REDRIVE_TEST_RETURNS`: of how many.
async fn what_comes_back_in_a_full_pipeline_is_never_taken_for_stored(scene: Scene) {
    let messages =
        std::env::var("REDRIVE_TEST_RETURNS").map_or(3000, |number| number.parse().expect("a number"));
    let exchange = format!("{}-headers", scene.queue);
    let target = format!("{}-target", scene.queue);
    let queue_type = if scene.queue_type == QueueType::Quorum { "quorum" } else { "classic" };
    scene.declare_raw(&target, &[("x-queue-type", AMQPValue::LongString(queue_type.into()))]).await;
    scene
        .raw
        .exchange_declare(
            exchange.as_str().into(),
            ExchangeKind::Headers,
            ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() },
            FieldTable::default(),
        )
        .await
        .expect("declared");
    let mut taken = FieldTable::default();
    taken.insert("taken".into(), AMQPValue::Boolean(true));
    scene
        .raw
        .queue_bind(
            target.as_str().into(),
            exchange.as_str().into(),
            "".into(),
            QueueBindOptions::default(),
            taken,
        )
        .await
        .expect("bound");
    // The time for a confirm begins for all of them at once.
    let options = scene.options().confirm_timeout(Duration::from_secs(300));
    let transport = options.connect(&scene.url).await.expect("connected");
    // Some stretches with many that come back, some with few, and none with a pattern that batches could follow.
    let is_taken = |n: usize| n % 7 != 3 && !n.is_multiple_of(50) && !(n / 300 == 5 && n.is_multiple_of(2));
    let publisher = transport.publisher_to_exchange(&exchange, "");
    let published = publisher
        .publish_all((0..messages).map(|n| message(format!("m{n}")).with_header("taken", is_taken(n))));
    let mut stored = BTreeSet::new();
    for (n, outcome) in published.await.into_iter().enumerate() {
        match outcome {
            Ok(()) => {
                assert!(is_taken(n), "m{n} came back, and is said to be stored");
                stored.insert(format!("m{n}"));
            }
            Err(error) => {
                assert!(!is_taken(n), "m{n}: {error}");
                assert_eq!(error.kind(), TransportErrorKind::Unroutable, "{error}");
            }
        }
    }
    assert_eq!(stored.len(), (0..messages).filter(|n| is_taken(*n)).count());
    let mut there = BTreeSet::new();
    while there.len() < stored.len() {
        let got = found("the next stored message", async || {
            let got = scene.raw.basic_get(target.as_str().into(), BasicGetOptions { no_ack: true }).await;
            got.expect("the queue is there")
        })
        .await;
        let id = got.delivery.properties.message_id().clone().expect("an id").to_string();
        assert!(there.insert(id.clone()), "`{id}` is there twice");
    }
    assert_eq!(there, stored);
    transport.close().await;
    scene
        .raw
        .exchange_delete(exchange.as_str().into(), ExchangeDeleteOptions::default())
        .await
        .expect("deleted");
    scene.delete(&target).await;
}

async fn a_delay_queue_that_was_deleted_is_declared_again(scene: Scene) {
    let needs = needs(&[THERE], 50);
    let transport = scene.started(&needs).await;
    for n in 0..20 {
        publish(&transport, message(format!("m{n}"))).await;
    }
    let mut hands = Vec::new();
    while hands.len() < 20 {
        hands.push(next(&transport).await);
    }
    scene.delete(&scene.rung(THERE)).await;
    // While the queue is being deleted, or declared, the broker may refuse a copy; the consumer tries again then.
    let settled = hands.into_iter().map(async |hand| {
        let settlement = retry(&transport, &hand.delivery, Duration::from_millis(THERE));
        settle(&transport, hand.receipt, settlement).await;
    });
    join_all(settled).await;
    for _ in 0..20 {
        let hand = next(&transport).await;
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_wait_that_nobody_named_takes_a_spare_queue(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    publish(&transport, message("patient")).await;
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_secs(55));
    settle(&transport, hand.receipt, settlement).await;
    let spare = scene.raw.basic_get(scene.rung(60_000).into(), BasicGetOptions { no_ack: true }).await;
    let waiting = spare.expect("the queue is there").expect("the message waits in it");
    assert_eq!(waiting.delivery.properties.message_id().as_ref().map(ShortString::as_str), Some("patient"));
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn nothing_waits_behind_a_longer_wait(scene: Scene) {
    let needs = needs(&[1000, 600_000], 10);
    let transport = scene.started(&needs).await;
    for id in ["long", "short"] {
        publish(&transport, message(id)).await;
    }
    let (long, short) = (next(&transport).await, next(&transport).await);
    // From before it is stored: the answer may take its time.
    let since = Instant::now();
    for (hand, wait) in [(long, 600), (short, 1)] {
        let settlement = retry(&transport, &hand.delivery, Duration::from_secs(wait));
        settle(&transport, hand.receipt, settlement).await;
    }
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.id(), "short");
    assert!(since.elapsed() >= Duration::from_millis(900), "early: {:?}", since.elapsed());
    transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn headers_that_fit_no_frame_leave_the_connection_alone(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    for id in ["large", "small"] {
        publish(&transport, message(id)).await;
    }
    let (large, small) = (next(&transport).await, next(&transport).await);
    let copy = large.delivery.message().clone().with_header("large", "l".repeat(200_000));
    let settlement = Settlement::Reschedule { wait: Duration::from_millis(THERE), copy };
    let refused = transport.settle(large.receipt, settlement).await.expect_err("too large");
    assert_eq!(refused.error.kind(), TransportErrorKind::TooLarge, "{}", refused.error);
    let settlement = retry(&transport, &small.delivery, Duration::from_millis(THERE));
    settle(&transport, small.receipt, settlement).await;
    let receipt = refused.receipt.expect("still in flight");
    transport.settle(receipt, Settlement::NativeDeadLetter).await.expect("rejected");
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("small", 2));
    transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
    let shelves = transport.shelves();
    eventually("on the shelf", async || shelves.count(Shelf::DeadLetter).await.expect("counted") > 0).await;
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
    assert_eq!(shelved.iter().map(|shelved| shelved.message.id()).collect::<Vec<_>>(), [Some("large")]);
    let far_too_large = transport.publish(Message::new("x").with_header("large", "l".repeat(200_000))).await;
    assert_eq!(far_too_large.expect_err("too large").kind(), TransportErrorKind::TooLarge);
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Compared as the wire has them, not as redrive reads them.
async fn every_property_and_header_type_survives_the_hops(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    let headers = all_header_types();
    let sent = BasicProperties::default()
        .with_message_id("id".into())
        .with_correlation_id("conversation".into())
        .with_content_type("application/json".into())
        .with_content_encoding("gzip".into())
        .with_reply_to("answers".into())
        .with_type("Order".into())
        .with_user_id("guest".into())
        .with_app_id("shop".into())
        .with_cluster_id("cluster".into())
        .with_priority(7)
        .with_timestamp(1_700_000_000)
        .with_delivery_mode(1)
        .with_headers(headers.clone());
    let body = [0_u8, 159, 146, 150, 255];
    scene.publish_raw(&scene.queue, &body, sent.clone()).await;
    let hand = next(&transport).await;
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(THERE));
    settle(&transport, hand.receipt, settlement).await;
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.attempt(), 2);
    let settlement = common::dead_letter(&transport, &hand.delivery);
    settle(&transport, hand.receipt, settlement).await;
    let options = BasicGetOptions { no_ack: true };
    let found = scene
        .raw
        .basic_get(scene.dead_letters().into(), options)
        .await
        .expect("asked")
        .expect("on the shelf");
    assert_eq!(found.data, body);
    let arrived = &found.properties;
    let expected = sent.with_delivery_mode(2).with_headers(FieldTable::default());
    assert_eq!(arrived.clone().with_headers(FieldTable::default()), expected);
    let found_headers = arrived.headers().as_ref().expect("headers").inner();
    for (name, value) in &headers {
        assert_eq!(found_headers.get(name.as_str()), Some(value), "header `{name}`");
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

fn all_header_types() -> FieldTable {
    let mut nested = FieldTable::default();
    nested.insert("inner".into(), AMQPValue::ShortInt(-3));
    let list = FieldArray::from(vec![
        AMQPValue::Boolean(true),
        AMQPValue::FieldTable(nested.clone()),
        AMQPValue::Void,
    ]);
    let mut headers = FieldTable::default();
    for (name, value) in [
        ("bool", AMQPValue::Boolean(false)),
        ("i8", AMQPValue::ShortShortInt(i8::MIN)),
        ("u8", AMQPValue::ShortShortUInt(u8::MAX)),
        ("i16", AMQPValue::ShortInt(i16::MIN)),
        ("u16", AMQPValue::ShortUInt(u16::MAX)),
        ("i32", AMQPValue::LongInt(i32::MIN)),
        ("u32", AMQPValue::LongUInt(u32::MAX)),
        ("i64", AMQPValue::LongLongInt(i64::MIN)),
        ("f32", AMQPValue::Float(1.5)),
        ("f64", AMQPValue::Double(-0.1)),
        ("decimal", AMQPValue::DecimalValue(DecimalValue { scale: 2, value: 314 })),
        ("text", AMQPValue::LongString("Grüße".into())),
        ("not UTF-8", AMQPValue::LongString(LongString::from(vec![0xff, 0xfe]))),
        ("bytes", AMQPValue::ByteArray(vec![0, 1, 255].into())),
        ("timestamp", AMQPValue::Timestamp(1_700_000_000)),
        ("void", AMQPValue::Void),
        ("list", AMQPValue::FieldArray(list)),
        ("table", AMQPValue::FieldTable(nested)),
    ] {
        headers.insert(name.into(), value);
    }
    headers
}

async fn what_the_broker_wrote_and_a_foreign_user_do_not_come_along(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    let mut headers = FieldTable::default();
    headers
        .insert("CC".into(), AMQPValue::FieldArray(vec![AMQPValue::LongString("elsewhere".into())].into()));
    headers.insert("x-delivery-count".into(), AMQPValue::LongLongInt(25));
    headers.insert("mine".into(), AMQPValue::LongInt(1));
    let sent = BasicProperties::default().with_expiration("3600000".into()).with_headers(headers);
    scene.publish_raw(&scene.queue, b"x", sent).await;
    let hand = next(&transport).await;
    assert_eq!(hand.delivery.broker_delivery_count(), 1, "a count that a client wrote is not believed");
    let mut copy = transport.plan(&hand.delivery, Disposition::DeadLetter(common::failure()));
    if let Settlement::Shelve { copy, .. } = &mut copy {
        copy.properties_mut().user_id = Some("somebody-else".into());
    }
    settle(&transport, hand.receipt, copy).await;
    let options = BasicGetOptions { no_ack: true };
    let found = scene
        .raw
        .basic_get(scene.dead_letters().into(), options)
        .await
        .expect("asked")
        .expect("on the shelf");
    let headers = found.properties.headers().clone().expect("headers");
    assert!(!headers.contains_key("CC") && headers.contains_key("mine"));
    assert_ne!(headers.inner().get("x-delivery-count"), Some(&AMQPValue::LongLongInt(25)));
    assert_eq!(headers.inner().get("redrive-user-id"), Some(&AMQPValue::LongString("somebody-else".into())));
    assert_eq!(headers.inner().get("redrive-expiration"), Some(&AMQPValue::LongLongInt(3_600_000)));
    assert_eq!((found.properties.user_id(), found.properties.expiration()), (&None, &None));
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_receipt_dropped_outside_a_runtime_gives_back(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    publish(&transport, message("a")).await;
    let hand = next(&transport).await;
    std::thread::spawn(move || drop(hand.receipt)).join().expect("no panic");
    let again = next(&transport).await;
    assert!(again.delivery.redelivered());
    transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;
    scene.tidy_up(&needs).await;
}

/// Each look counts as a delivery somewhere; the shelves' limit is far away.
async fn looking_at_a_shelf_many_times_loses_nothing(scene: Scene) {
    let needs = needs(&[THERE], 10);
    let transport = scene.started(&needs).await;
    let ids: Vec<_> = (0..5).map(|n| format!("m{n}")).collect();
    for id in &ids {
        published(&transport.publisher().to(scene.dead_letters()), message(id)).await;
    }
    let shelves = transport.shelves();
    for _ in 0..30 {
        let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
        let found: Vec<_> = shelved.iter().filter_map(|shelved| shelved.message.id()).collect();
        assert_eq!(found, ids, "all are there, and in order");
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}
