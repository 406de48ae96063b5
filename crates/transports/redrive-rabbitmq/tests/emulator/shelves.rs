//! What operators do with the shelves, and what one message on them does to the others.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::common::{
    Scene, address, message, needs, next, publish, settle, started, text, tidy_up, with_short_wait,
};
use futures::FutureExt as _;
use lapin::BasicProperties;
use lapin::options::{
    BasicCancelOptions, BasicConsumeOptions, BasicGetOptions, BasicNackOptions, BasicQosOptions,
    BasicRecoverOptions, BasicRejectOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use redrive_brokers::Proxy;
use redrive_contract::{Started, eventually};
use redrive_core::shelves::{EntryOutcome, Holder, Selection, ShelfReport};
use redrive_core::transport::Settlement;
use redrive_core::{Shelf, Shelves, Transport, TransportError, TransportErrorKind, header_names};
use redrive_rabbitmq::{DeathHistory, QueueType, RabbitMq, Topology};
use tokio::sync::Notify;

crate::tests!(
    emulator:
    a_message_that_outgrows_a_frame_on_its_shelf_leaves_the_others_readable,
    what_cannot_be_copied_stays_and_the_others_are_moved,
    no_header_names_the_queue_of_a_redrive,
    an_empty_page_is_no_end_and_passes_nothing_over,
    a_lease_keeps_other_connections_out,
    the_lease_of_a_dead_process_is_waited_for,
    what_another_client_held_is_found_by_a_later_step,
    looks_take_turns,
    a_scan_tells_who_holds_entries_from_it,
    a_count_and_its_holder_are_of_one_moment,
    without_its_turn_nothing_is_read,
    a_shelf_with_a_low_delivery_limit_is_not_read,
    a_large_shelf_keeps_its_order,
    a_look_that_is_dropped_gives_back_before_its_process_ends,
    a_broker_that_answers_slowly_is_read_to_its_end,
);

/// A content header takes this many bytes beside the text: the message fills what a client library reads to the last byte.
const FILLS_A_FRAME: usize = 130_900;
const TOO_LARGE_TO_BE_COPIED: usize = 120_000;

fn with_header(id: &str, bytes: usize) -> BasicProperties {
    let mut headers = FieldTable::default();
    headers.insert("large".into(), AMQPValue::LongString("h".repeat(bytes).into()));
    BasicProperties::default().with_headers(headers).with_message_id(id.into()).with_delivery_mode(2)
}

async fn shelf_with(transport: &Started<RabbitMq>, scene: &Scene, large: usize) {
    for id in ["a", "large", "b"] {
        match id {
            "large" => scene.publish_raw(&scene.queue, b"body", with_header(id, large)).await,
            _ => publish(transport, message(id)).await,
        }
        let received = next(transport).await;
        // The broker adds its `x-death`.
        settle(transport, received.receipt, Settlement::NativeDeadLetter).await;
    }
    let shelves = transport.shelves();
    eventually("all are on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 3
    })
    .await;
}

async fn ids(transport: &RabbitMq, shelf: Shelf) -> Vec<String> {
    let shelved = transport.shelves().browse(shelf, None, 10).await.expect("browsed").entries;
    shelved.iter().filter_map(|shelved| shelved.message.id().map(str::to_owned)).collect()
}

async fn a_message_that_outgrows_a_frame_on_its_shelf_leaves_the_others_readable(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, FILLS_A_FRAME).await;
    let shelved = transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
    assert_eq!(
        shelved.iter().map(|shelved| shelved.message.id()).collect::<Vec<_>>(),
        [Some("a"), Some("large"), Some("b")]
    );
    let large = &shelved[1];
    assert_eq!(
        (&large.message.body()[..], DeathHistory::read(large.message.headers()).count_in(&scene.queue)),
        (&b"body"[..], 1)
    );
    let marked = format!("{:?}", large.message.headers());
    assert!(marked.contains("`large` (130911 bytes)"), "what is not shown is named: {marked}");
    the_others_are_moved(&transport).await;
    // Not even a message that is read in part is mistaken for another one.
    let again =
        transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    assert_eq!(again.handle, large.handle);
    let discarded = transport.shelves().discard(Shelf::DeadLetter, &again.handle.into()).await;
    assert_eq!(discarded.expect("an operator's word").into_result().expect("it can be removed"), 1);
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn what_cannot_be_copied_stays_and_the_others_are_moved(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, TOO_LARGE_TO_BE_COPIED).await;
    the_others_are_moved(&transport).await;
    let large =
        transport.shelves().browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    let text = large.message.headers().get("large").and_then(redrive_core::Value::as_str).map(str::len);
    assert_eq!(text, Some(TOO_LARGE_TO_BE_COPIED), "it is as it was");
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// Redriven, failed again, and parked: all but the one that is too large, which stays where it is.
async fn the_others_are_moved(transport: &Started<RabbitMq>) {
    let shelves = transport.shelves();
    let says_what_stays = |report: Result<ShelfReport, TransportError>| {
        let report = report.expect("the work begins");
        assert!(report.stopped.is_none(), "{:?}", report.stopped);
        let outcomes: Vec<_> =
            report.entries.iter().map(|entry| (entry.id.as_deref(), &entry.outcome)).collect();
        assert!(
            matches!(
                &outcomes[..],
                [
                    (Some("a"), EntryOutcome::Done),
                    (Some("large"), EntryOutcome::Failed(_)),
                    (Some("b"), EntryOutcome::Done)
                ] | [
                    (Some("large"), EntryOutcome::Failed(_)),
                    (Some("a"), EntryOutcome::Done),
                    (Some("b"), EntryOutcome::Done)
                ]
            ),
            "{outcomes:?}"
        );
        let error = report.into_result().expect_err("not all were moved");
        assert_eq!(error.kind(), TransportErrorKind::TooLarge, "{error}");
        let said = error.to_string();
        assert!(said.contains("2 messages") && said.contains("`large`"), "{said}");
    };
    says_what_stays(shelves.redrive(Shelf::DeadLetter, &Selection::All).await);
    assert_eq!(ids(transport, Shelf::DeadLetter).await, ["large"]);
    for id in ["a", "b"] {
        let received = next(transport).await;
        assert_eq!(received.delivery.id(), id);
        settle(transport, received.receipt, Settlement::NativeDeadLetter).await;
    }
    eventually("both are back on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 3
    })
    .await;
    says_what_stays(shelves.park(&Selection::All).await);
    assert_eq!(ids(transport, Shelf::DeadLetter).await, ["large"]);
    assert_eq!(ids(transport, Shelf::Parking).await, ["a", "b"]);
}

/// A publisher names the queue of somebody else. Only the operator's list makes it a destination.
async fn no_header_names_the_queue_of_a_redrive(scene: Scene) {
    let [victim, partner] = ["victim", "partner"].map(|name| format!("{}.{name}", scene.queue));
    let options = with_short_wait(&scene).shelves_shared_with([&partner]);
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    for queue in [&victim, &partner] {
        scene.declare_raw(queue, &[]).await;
        let mut headers = FieldTable::default();
        headers.insert(header_names::SOURCE_QUEUE.into(), text(queue));
        let named = BasicProperties::default().with_message_id(queue.as_str().into()).with_headers(headers);
        scene.publish_raw(&scene.dead_letters(), b"body", named).await;
    }
    let shelves = transport.shelves();
    eventually("both are on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 2
    })
    .await;
    let report = shelves.redrive(Shelf::DeadLetter, &Selection::All).await.expect("redriven");
    assert_eq!((report.done(), report.left_out), (1, 1));
    let get = BasicGetOptions { no_ack: true };
    let to_partner = scene.raw.basic_get(partner.as_str().into(), get).await.expect("there is the queue");
    assert!(to_partner.is_some(), "it shares the shelf");
    assert!(scene.raw.basic_get(victim.as_str().into(), get).await.expect("there is the queue").is_none());
    assert_eq!(ids(&transport, Shelf::DeadLetter).await, [&*victim]);
    assert_eq!(shelves.work_queue().await.expect("known").depth, Some(0));
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100), victim, partner], &[]).await;
}

async fn an_empty_page_is_no_end_and_passes_nothing_over(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let shelves = transport.shelves();
    let (mut shown, mut after) = (Vec::new(), None);
    for limit in [0, 1, 0, 1, 0, 1] {
        let page = shelves.browse(Shelf::DeadLetter, after.as_ref(), limit).await.expect("browsed");
        assert_eq!(page.entries.len(), limit);
        shown.extend(page.entries.into_iter().filter_map(|entry| entry.message.id().map(str::to_owned)));
        after = page.next;
        assert_eq!(after.is_some(), shown.len() < 3, "after {shown:?}");
    }
    assert_eq!(shown, ["a", "large", "b"]);
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn a_lease_keeps_other_connections_out(scene: Scene) {
    let (here, there) = (with_short_wait(&scene), with_short_wait(&scene));
    let here = started(here, &scene, &needs(&[100], 10)).await;
    let there = there.connect(&scene.url).await.expect("connected");
    let lease = async |transport: &RabbitMq| transport.shelves().lease(Shelf::DeadLetter).await;
    let leased = lease(&here).await.expect("leased").expect("RabbitMQ has leases");
    let refused = lease(&there).await.expect_err("another connection has it");
    assert_eq!(refused.kind(), TransportErrorKind::Locked, "{refused}");
    assert!(refused.to_string().contains("another run works on the dead-letter shelf"), "{refused}");
    leased.lease.end().await;
    let leased = lease(&there).await.expect("it has ended").expect("RabbitMQ has leases");
    // The process dies.
    there.close().await;
    drop(leased);
    let leased = lease(&here).await.expect("it ended with its connection").expect("RabbitMQ has leases");
    leased.lease.end().await;
    here.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// The broker takes a moment to see that a process was killed: who asks meanwhile is not sent away.
async fn the_lease_of_a_dead_process_is_waited_for(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    let lease = format!("redrive-lease.{}", scene.dead_letters());
    let exclusive = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let declaring = scene.raw.queue_declare(lease.clone().into(), exclusive, FieldTable::default());
    declaring.await.expect("declared");
    let shelves = transport.shelves();
    let dies = async {
        // It is refused meanwhile: these are answered behind its question, on the same connection.
        for _ in 0..15 {
            shelves.count(Shelf::DeadLetter).await.expect("counted");
        }
        scene.delete(&lease).await;
    };
    let (leased, ()) = tokio::join!(shelves.lease(Shelf::DeadLetter), dies);
    let leased = leased.expect("it was waited for").expect("RabbitMQ has leases");
    leased.lease.end().await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// Each sees all of the shelf: on one connection, and on two.
async fn looks_take_turns(scene: Scene) {
    let here = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    let there = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    const ENTRIES: usize = 300;
    for entry in 0..ENTRIES {
        let named = BasicProperties::default().with_message_id(entry.to_string().into());
        scene.publish_raw(&scene.dead_letters(), b"body", named.with_delivery_mode(2)).await;
    }
    let count = async || here.shelves().count(Shelf::DeadLetter).await.expect("counted");
    eventually("all are on the shelf", async || count().await == ENTRIES as u64).await;
    let look = async |transport: &RabbitMq| {
        let mut seen = 0;
        let mut each = |_| {
            seen += 1;
            ControlFlow::Continue(())
        };
        // A quorum queue may still count the consumers of the look before: who it was is not asked here.
        let _ = transport.shelves().scan(Shelf::DeadLetter, &mut each).await.expect("scanned");
        seen
    };
    let (one, two, three) = tokio::join!(look(&here), look(&here), look(&there));
    assert_eq!([one, two, three], [ENTRIES; 3]);
    // An action waits for its turn as well.
    let all = async {
        let report = there.shelves().discard(Shelf::DeadLetter, &Selection::All).await;
        report.expect("it begins").done()
    };
    let (one, removed) = tokio::join!(look(&here), all);
    assert!(one == ENTRIES || one == 0, "{one}");
    assert_eq!(removed, ENTRIES as u64);
    here.close().await;
    there.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn a_scan_tells_who_holds_entries_from_it(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let other = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    let (shelves, others) = (transport.shelves(), other.shelves());
    let holder = async |shelves: &dyn Shelves| {
        shelves.scan(Shelf::DeadLetter, &mut |_| ControlFlow::Continue(())).await.expect("scanned")
    };
    assert_eq!(holder(&shelves).await, None);

    let leased = shelves.lease(Shelf::DeadLetter).await.expect("leased").expect("RabbitMQ has leases");
    assert_eq!(holder(&*leased.shelves).await, None, "whoever has the lease knows what it holds");
    assert_eq!(holder(&shelves).await, Some(Holder::Lease), "on the same connection");
    assert_eq!(holder(&others).await, Some(Holder::Lease));
    let counted = others.count_with_holder(Shelf::DeadLetter).await.expect("counted");
    assert_eq!(counted, (3, Some(Holder::Lease)), "it may hold more");
    assert_eq!(others.oldest(Shelf::DeadLetter).await.expect("asked"), None, "the lease may hold the oldest");
    leased.lease.end().await;
    assert_eq!(holder(&others).await, None);
    assert!(others.oldest(Shelf::DeadLetter).await.expect("asked").is_some());

    let limited = BasicQosOptions { global: false };
    scene.raw.basic_qos(2, limited).await.expect("limited");
    let consuming = scene.raw.basic_consume(
        scene.dead_letters().into(),
        "theirs".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );
    let consumer = consuming.await.expect("consumes");
    eventually("it holds what it got", async || {
        shelves.count(Shelf::DeadLetter).await.expect("counted") == 1
    })
    .await;
    assert_eq!(holder(&shelves).await, Some(Holder::Consumers(1)));
    let counted = shelves.count_with_holder(Shelf::DeadLetter).await.expect("counted");
    assert_eq!(counted, (1, Some(Holder::Consumers(1))));
    drop(consumer);
    scene.raw.basic_cancel("theirs".into(), BasicCancelOptions::default()).await.expect("cancelled");
    scene.raw.basic_recover(BasicRecoverOptions { requeue: true }).await.expect("given back");
    eventually("nobody holds anything", async || holder(&shelves).await.is_none()).await;
    assert_eq!(ids(&transport, Shelf::DeadLetter).await.len(), 3);
    assert_eq!(shelves.count_with_holder(Shelf::DeadLetter).await.expect("counted"), (3, None));
    transport.close().await;
    other.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// A client that holds messages ends in the middle of the count: what it held is counted, or it is named.
async fn a_count_and_its_holder_are_of_one_moment(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let shelves = transport.shelves();
    let channel = scene.channel().await;
    let (options, none) = (BasicConsumeOptions::default(), FieldTable::default());
    let consuming = channel.basic_consume(scene.dead_letters().into(), "theirs".into(), options, none);
    let _consumer = consuming.await.expect("consumes");
    let count = async || shelves.count(Shelf::DeadLetter).await.expect("counted");
    eventually("it holds all", async || count().await == 0).await;
    let ends = async {
        // The count has begun: these are answered behind its first question.
        for _ in 0..15 {
            count().await;
        }
        channel.close(200, "OK".into()).await.expect("closed");
    };
    let (counted, ()) = tokio::join!(shelves.count_with_holder(Shelf::DeadLetter), ends);
    assert_eq!(counted.expect("counted"), (3, None));
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// Somebody reads, and does not end. Nothing is read beside it: nobody else could know of what that look holds.
async fn without_its_turn_nothing_is_read(scene: Scene) {
    let options = with_short_wait(&scene).shelf_turn_within(Duration::from_millis(300));
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let shelves = transport.shelves();
    let leased = shelves.lease(Shelf::DeadLetter).await.expect("leased").expect("RabbitMQ has leases");
    let turn = format!("redrive-look.{}", scene.dead_letters());
    let exclusive = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let declaring = scene.raw.queue_declare(turn.clone().into(), exclusive, FieldTable::default());
    declaring.await.expect("declared");
    let mut seen = 0;
    let mut each = |_| {
        seen += 1;
        ControlFlow::Continue(())
    };
    let refused = shelves.scan(Shelf::DeadLetter, &mut each).await.expect_err("it is not its turn");
    assert_eq!((refused.kind(), seen), (TransportErrorKind::Busy, 0), "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("another look or action")
            && said.contains("waited 300ms")
            && said.contains("Try again")
            && said.contains(&turn),
        "{said}"
    );
    assert_eq!(shelves.oldest(Shelf::DeadLetter).await.expect("asked"), None, "it does not wait");
    let counted = shelves.count_with_holder(Shelf::DeadLetter).await.expect("counted");
    assert_eq!(counted, (3, Some(Holder::Look)));
    for (shelves, who) in [(&shelves as &dyn Shelves, "an action"), (&*leased.shelves, "a run")] {
        let refused = shelves.discard(Shelf::DeadLetter, &Selection::All).await.expect_err(who);
        assert_eq!(refused.kind(), TransportErrorKind::Busy, "{refused}");
    }
    scene.delete(&turn).await;
    let worked = leased.shelves.discard(Shelf::DeadLetter, &Selection::All).await;
    assert_eq!(worked.expect("it is its turn").done(), 3);
    leased.lease.end().await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn what_another_client_held_is_found_by_a_later_step(scene: Scene) {
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    shelf_with(&transport, &scene, 10).await;
    let shelves = transport.shelves();
    let entries = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries;
    let handles: Vec<_> = entries.iter().map(|entry| entry.handle.clone()).collect();
    let leased = shelves.lease(Shelf::DeadLetter).await.expect("leased").expect("RabbitMQ has leases");
    let held = scene.raw.basic_get(scene.dead_letters().into(), BasicGetOptions::default()).await;
    let held = held.expect("an answer").expect("the first one");
    let discard = async |handle: &redrive_core::shelves::EntryHandle| {
        let report =
            leased.shelves.discard(Shelf::DeadLetter, &handle.clone().into()).await.expect("it begins");
        report.done()
    };
    assert_eq!(discard(&handles[1]).await, 1, "the scan begins behind what is held");
    let back = BasicNackOptions { requeue: true, multiple: false };
    scene.raw.basic_nack(held.delivery.delivery_tag, back).await.expect("given back");
    eventually("the first one is found", async || discard(&handles[0]).await == 1).await;
    assert_eq!(discard(&handles[2]).await, 1);
    leased.lease.end().await;
    assert_eq!(shelves.count(Shelf::DeadLetter).await.expect("counted"), 0);
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

async fn a_shelf_with_a_low_delivery_limit_is_not_read(scene: Scene) {
    const LIMIT: i64 = 5;
    let foreign = format!("{}-failed", scene.queue);
    // The broker names one argument after the other.
    let mut arguments =
        vec![("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("it's gone"))];
    arguments.push(("x-max-length", AMQPValue::LongInt(10)));
    if scene.queue_type == QueueType::Quorum {
        arguments.push(("x-queue-type", text("quorum")));
        arguments.push(("x-delivery-limit", AMQPValue::LongLongInt(LIMIT)));
    }
    scene.declare_raw(&foreign, &arguments).await;
    scene.publish_raw(&foreign, b"body", BasicProperties::default().with_delivery_mode(2)).await;
    let shelves = async |accept| {
        let options = scene.options().topology(Topology::Nothing).dead_letter_queue(&foreign);
        options.accept_low_delivery_limit(accept).connect(&scene.url).await.expect("connected").shelves()
    };
    let count = async || shelves(false).await.count(Shelf::DeadLetter).await.expect("counted");
    eventually("the message is there", async || count().await == 1).await;
    let browse = async |accept| shelves(accept).await.browse(Shelf::DeadLetter, None, 10).await;
    let looked = scene.raw.basic_get(foreign.clone().into(), BasicGetOptions::default()).await;
    let looked = looked.expect("an answer").expect("it is there").delivery;
    // 3.10 counts from the first delivery on, and each look.
    let headers = looked.properties.headers().clone().unwrap_or_default();
    let counts_looks = headers.inner().contains_key("x-delivery-count");
    let back = BasicNackOptions { requeue: true, multiple: false };
    scene.raw.basic_nack(looked.delivery_tag, back).await.expect("given back");
    eventually("it is back", async || count().await == 1).await;
    if counts_looks {
        let refused = browse(false).await.expect_err("each look counts");
        assert!(refused.to_string().contains("after 5 of them"), "{refused}");
        assert_eq!(refused.kind(), TransportErrorKind::Unsupported);
        assert_eq!(count().await, 1);
        assert_eq!(browse(true).await.expect("accepted").entries.len(), 1);
    } else {
        for _ in 0..3 * LIMIT {
            assert_eq!(browse(false).await.expect("looks do not count").entries.len(), 1);
            eventually("it is back", async || count().await == 1).await;
        }
    }
    if scene.queue_type == QueueType::Quorum && !counts_looks {
        for _ in 0..LIMIT - 1 {
            let got = scene.raw.basic_get(foreign.clone().into(), BasicGetOptions::default()).await;
            let tag = got.expect("an answer").expect("it is there").delivery.delivery_tag;
            scene.raw.basic_reject(tag, BasicRejectOptions { requeue: true }).await.expect("rejected");
            eventually("it is back", async || count().await == 1).await;
        }
        let refused = browse(false).await.expect_err("two more and it is gone");
        assert!(
            refused.to_string().contains("given back 4 times") && refused.to_string().contains("after 5"),
            "{refused}"
        );
        eventually("it is back", async || count().await == 1).await;
        assert_eq!(browse(true).await.expect("accepted").entries.len(), 1);
    }
    scene.delete(&foreign).await;
}

/// As when Ctrl-C ends a command in the middle of a look: what is given back in time is not counted, and stays in its place.
async fn a_look_that_is_dropped_gives_back_before_its_process_ends(scene: Scene) {
    let foreign = format!("{}-failed", scene.queue);
    let mut arguments = Vec::new();
    if scene.queue_type == QueueType::Quorum {
        arguments.push(("x-queue-type", text("quorum")));
    }
    scene.declare_raw(&foreign, &arguments).await;
    const ENTRIES: usize = 40;
    for entry in 0..ENTRIES {
        let named = BasicProperties::default().with_message_id(entry.to_string().into());
        scene.publish_raw(&foreign, b"body", named).await;
    }
    let options = || scene.options().dead_letter_queue(&foreign).topology(Topology::Nothing);
    let looking = options().connect(&scene.url).await.expect("connected");
    let shelves = looking.shelves();
    eventually("all are there", async || shelves.count(Shelf::DeadLetter).await.expect("counted") == 40)
        .await;
    let seen = Notify::new();
    let mut each = |_| {
        seen.notify_one();
        ControlFlow::Continue(())
    };
    tokio::select! {
        biased;
        () = seen.notified() => {}
        _ = shelves.scan(Shelf::DeadLetter, &mut each) => panic!("it takes several windows"),
    }
    shelves.given_back().await;
    // The process ends: the broker takes back what its connections hold, and counts that.
    drop(shelves);
    looking.close().await;
    let again = options().connect(&scene.url).await.expect("connected");
    let page = again.shelves().browse(Shelf::DeadLetter, None, ENTRIES).await.expect("browsed");
    let ids: Vec<_> = page.entries.iter().filter_map(|entry| entry.message.id()).collect();
    assert_eq!(ids, (0..ENTRIES).map(|entry| entry.to_string()).collect::<Vec<_>>());
    again.close().await;
    let head = scene.raw.basic_get(foreign.as_str().into(), BasicGetOptions { no_ack: true }).await;
    let head = head.expect("an answer").expect("it is there").delivery;
    let headers = head.properties.headers().clone().unwrap_or_default();
    // 3.10 counts every look.
    if !headers.inner().contains_key("x-delivery-count") || headers.inner().contains_key("x-acquired-count") {
        let counted = headers.inner().get("x-delivery-count").cloned();
        assert!(matches!(counted, None | Some(AMQPValue::LongLongInt(0))), "{counted:?}");
    }
    scene.delete(&foreign).await;
}

/// With and without a delivery limit: a quorum queue of 3.10 puts what comes back to its front, or to its end.
async fn a_large_shelf_keeps_its_order(scene: Scene) {
    for (limit, entries) in [(Some(2_000_000_000), 2500), (None, 300)] {
        let foreign = format!("{}-failed-{entries}", scene.queue);
        let mut arguments = Vec::new();
        if scene.queue_type == QueueType::Quorum {
            arguments.push(("x-queue-type", text("quorum")));
            arguments.extend(limit.map(|limit| ("x-delivery-limit", AMQPValue::LongLongInt(limit))));
        }
        scene.declare_raw(&foreign, &arguments).await;
        for entry in 0..entries {
            let properties = BasicProperties::default().with_message_id(entry.to_string().into());
            scene.publish_raw(&foreign, b"body", properties.with_delivery_mode(2)).await;
        }
        let options = scene.options().topology(Topology::Nothing).dead_letter_queue(&foreign);
        let shelves = options.connect(&scene.url).await.expect("connected").shelves();
        let count = async || shelves.count(Shelf::DeadLetter).await.expect("counted");
        eventually("all are there", async || count().await == entries).await;
        let look = async |limit| {
            let page = shelves.browse(Shelf::DeadLetter, None, limit).await.expect("browsed");
            page.entries.iter().filter_map(|entry| entry.message.id()?.parse().ok()).collect::<Vec<u64>>()
        };
        for (looked_at, dropped_after) in
            [(3, 2), (1, 0), (200, 17), (1, 5), (2500, 300), (2500, 60), (100, 1), (2500, 30)]
        {
            // From its first entry on it holds something, until all is back.
            let began = Notify::new();
            let mut each = |_| {
                began.notify_one();
                ControlFlow::Continue(())
            };
            tokio::select! {
                scanned = shelves.scan(Shelf::DeadLetter, &mut each) => drop(scanned.expect("scanned")),
                () = began.notified().then(|()| tokio::time::sleep(Duration::from_millis(dropped_after))) => {}
            }
            eventually("what a dropped scan held is back", async || count().await == entries).await;
            let most = entries.min(looked_at as u64);
            assert_eq!(look(looked_at).await, (0..most).collect::<Vec<_>>(), "of {entries}");
        }
        scene.delete(&foreign).await;
    }
}

/// Longer than a scan waits for the next message before it asks whether one is left: then the rest is still on its way.
async fn a_broker_that_answers_slowly_is_read_to_its_end(scene: Scene) {
    const SLOW: Duration = Duration::from_millis(600);
    let foreign = format!("{}-failed", scene.queue);
    let quorum = (scene.queue_type == QueueType::Quorum).then(|| ("x-queue-type", text("quorum")));
    scene.declare_raw(&foreign, quorum.as_slice()).await;
    let expected: Vec<_> = (0..4).map(|entry| entry.to_string()).collect();
    for id in &expected {
        let properties = BasicProperties::default().with_message_id(id.as_str().into());
        scene.publish_raw(&foreign, b"body", properties.with_delivery_mode(2)).await;
    }
    let address = address(&scene.url);
    let proxy = Proxy::start(address).await.expect("a proxy");
    let through = scene.url.replace(&address.to_string(), &proxy.addr().to_string());
    let options = scene.options().topology(Topology::Nothing).dead_letter_queue(&foreign);
    let transport = options.connect(&through).await.expect("connected");
    let shelves = transport.shelves();
    let all_are_there = async || shelves.count(Shelf::DeadLetter).await.expect("counted") == 4;
    eventually("all are there", all_are_there).await;
    proxy.delay(SLOW);
    assert_eq!(ids(&transport, Shelf::DeadLetter).await, expected);
    proxy.delay(Duration::ZERO);
    eventually("all are back", all_are_there).await;
    assert_eq!(ids(&transport, Shelf::DeadLetter).await, expected, "in their order");
    scene.delete(&foreign).await;
}
