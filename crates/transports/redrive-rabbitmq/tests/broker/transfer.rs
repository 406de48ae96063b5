//! What waits in one topology is moved into another.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use crate::common::{self, Scene, message, needs, next, publish, retry, settle};
use futures::future::join_all;
use lapin::BasicProperties;
use lapin::types::FieldTable;
use redrive_brokers::Proxy;
use redrive_contract::{Started, eventually, found};
use redrive_core::transport::{Needs, Planning, Received, Settlement};
use redrive_core::{Transport, TransportErrorKind};
use redrive_rabbitmq::{Native, Options, QueueType, RabbitMq, Receipt, SingleQueue, Topology};

crate::tests!(
    a_transfer_cut_off_half_way_loses_nothing,
    one_queue_for_all_waits_becomes_a_ladder,
    what_is_too_large_stays_and_the_others_are_moved,
);

const MESSAGES: usize = 240;
const CUTS: usize = 4;
/// The most messages that a transfer moves together: a cut leaves so many in both places.
const TOGETHER: usize = 32;
/// So slowly are they moved while they are to be cut off half way.
const PER_SECOND: u32 = 40;
/// Longer than all transfers take; a machine that stands still for so long that it is over meanwhile has nothing to transfer.
const WAIT: Duration = Duration::from_secs(40);
const WAIT_MILLIS: u64 = 40_000;

/// From classic delay queues to quorum ones under another name, as if the operator's machine died again and again.
async fn a_transfer_cut_off_half_way_loses_nothing(scene: Scene) {
    let waits = needs(&[WAIT_MILLIS], 300);
    let old =
        || scene.options().retry_queue_type(QueueType::Classic).retry_prefix(format!("{}--old", scene.queue));
    let due = fail_all(&scene, old(), &waits).await;
    let old_queue = format!("{}--old-{WAIT_MILLIS}ms", scene.queue);
    // What is left of a wait is put together from these.
    let new_waits = [1000, 2000, 5000, 10_000, 30_000, WAIT_MILLIS];
    let new_queues = new_waits.map(|wait| scene.rung(wait));
    let old_places = [old_queue.clone(), scene.queue.clone()];
    let places = [&old_places, &new_queues[..]].concat();

    // The new queues are not there: nothing may leave the old ones.
    let operator = scene.options().topology(Topology::Nothing).connect(&scene.url).await.expect("connected");
    let refused =
        operator.transfer_from(old()).waits([WAIT]).run().await.expect_err("nothing takes the copies");
    assert_eq!(refused.kind(), TransportErrorKind::Unroutable, "{refused}");
    operator.close().await;
    until_left(&scene, &old_places).await;
    let declaring = scene.options().connect(&scene.url).await.expect("connected");
    Started::open(declaring, &needs(&new_waits, 300)).await.expect("declared").close().await;

    let address = scene.url.rsplit('@').next().unwrap().split('/').next().unwrap().to_owned();
    for cut in 1..=CUTS {
        let proxy = Proxy::start(address.parse().unwrap()).await.unwrap();
        let through = scene.url.replace(&address, &proxy.addr().to_string());
        // So long it tries to connect again, once it was cut off.
        let options = scene.options().confirm_timeout(Duration::from_secs(2));
        let operator = options.connect(&through).await.expect("connected");
        let cutting = async {
            let enough = cut * MESSAGES / (CUTS + 2);
            eventually("a part is moved", async || sum(&scene, &new_queues).await >= enough).await;
            proxy.refuse(true);
            proxy.cut();
        };
        let transferring = operator.transfer_from(old()).waits([WAIT]).per_second(PER_SECOND).run();
        tokio::pin!(transferring);
        let transferred = tokio::select! {
            () = cutting => transferring.await,
            // A confirm that was late, on a busy machine.
            transferred = &mut transferring => transferred,
        };
        until_left(&scene, &places).await;
        // What was all moved before the cut is done.
        let is_cut_too_late = ready(&scene, &old_queue).await == 0;
        let some_are_due = due.values().any(|due| *due <= SystemTime::now());
        assert!(
            transferred.is_err() || is_cut_too_late || some_are_due,
            "cut off half way, and said to be done: {transferred:?}"
        );
    }

    let operator = scene.options().connect(&scene.url).await.expect("connected");
    // What the one before had in flight, and came back behind this one, is for another.
    eventually("nothing is left to be moved", async || {
        let transferred = operator.transfer_from(old()).waits([WAIT]).run().await;
        let transferred = transferred.expect("nothing is in its way");
        assert_eq!(transferred.waiting_again, 0, "{transferred:?}");
        transferred.messages == 0
    })
    .await;
    assert_eq!(ready(&scene, &old_queue).await, 0);
    operator.close().await;

    let handled = handle_all(&scene, &waits, &due, &places).await;
    assert!(
        handled <= MESSAGES + CUTS * TOGETHER,
        "{handled} of {MESSAGES}: more twice than {CUTS} cuts leave"
    );
    scene.delete(&old_queue).await;
    scene.tidy_up(&waits).await;
}

/// In a delay queue only somebody else stores such a message.
async fn what_is_too_large_stays_and_the_others_are_moved(scene: Scene) {
    const MINUTES: u64 = 600_000;
    let waits = needs(&[MINUTES], 10);
    let old = || scene.options().retry_prefix(format!("{}--old", scene.queue));
    let before = old().connect(&scene.url).await.expect("connected");
    let before = Started::open(before, &waits).await.expect("started");
    before.close().await;
    let old_queue = format!("{}--old-{MINUTES}ms", scene.queue);
    for id in ["a", "large", "b"] {
        let mut headers = FieldTable::default();
        let bytes = if id == "large" { 120_000 } else { 1 };
        headers.insert("fill".into(), lapin::types::AMQPValue::LongString("h".repeat(bytes).into()));
        let properties = BasicProperties::default().with_message_id(id.into()).with_headers(headers);
        scene.publish_raw(&old_queue, b"body", properties).await;
    }
    let operator = scene.options().connect(&scene.url).await.expect("connected");
    let wait = [Duration::from_millis(MINUTES)];
    let not_all = operator.transfer_from(old()).waits(wait).run().await.expect_err("one stays");
    assert_eq!(not_all.kind(), TransportErrorKind::TooLarge, "{not_all}");
    let said = not_all.to_string();
    assert!(said.contains("moved 2 messages;") && said.contains("`large`"), "{said}");
    eventually("the others are there", async || ready(&scene, &scene.rung(MINUTES)).await == 2).await;
    eventually("the large one is back", async || ready(&scene, &old_queue).await == 1).await;
    operator.close().await;
    scene.delete(&old_queue).await;
    scene.tidy_up(&waits).await;
}

/// With messages of somebody else among them, who wrote on them only how often they came back.
async fn one_queue_for_all_waits_becomes_a_ladder(scene: Scene) {
    const MINUTES: u64 = 600_000;
    let waits = needs(&[100, MINUTES], 10);
    let old = || scene.options().delay(SingleQueue::durable());
    let before = old().connect(&scene.url).await.expect("connected");
    let before = Started::open(before, &waits).await.expect("started");
    publish(&before, message("ours")).await;
    let hand = next(&before).await;
    let settlement = retry(&before, &hand.delivery, Duration::from_millis(MINUTES));
    settle(&before, hand.receipt, settlement).await;
    before.close().await;
    let waiting = format!("{}--dead-letters", scene.queue);
    let mut headers = FieldTable::default();
    headers.insert("x-kithara-retries".into(), lapin::types::AMQPValue::LongLongInt(2));
    let theirs = BasicProperties::default().with_message_id("theirs".into()).with_expiration("500000".into());
    scene.publish_raw(&waiting, b"body", theirs.with_headers(headers)).await;

    let shelf = format!("{}--failed", scene.queue);
    let new = || scene.options().dead_letter_queue(&shelf).topology(Topology::Verify);
    // The work queue stays as it is; its ladder is declared by whoever may.
    scene.declare_raw(&scene.rung(100), &ladder(&scene, 100)).await;
    scene.declare_raw(&scene.rung(MINUTES), &ladder(&scene, MINUTES)).await;
    let operator = new().connect(&scene.url).await.expect("connected");
    let waits_of_both = [100, MINUTES].map(Duration::from_millis);
    let transferred =
        operator.transfer_from(old()).waits(waits_of_both).per_second(100).run().await.expect("moved");
    assert_eq!((transferred.messages, transferred.waiting_again), (2, 1), "{transferred:?}");
    assert_eq!(transferred.queues.get(&waiting), Some(&2));
    assert_eq!(ready(&scene, &waiting).await, 0);
    eventually("both are there", async || ready(&scene, &scene.rung(MINUTES)).await == 2).await;
    let again = operator.transfer_from(old()).waits(waits_of_both).run().await.expect("nothing to do");
    assert_eq!(again.messages, 0);
    let native = scene.options().delay(Native::between(Duration::from_secs(1), Duration::from_secs(9)));
    if scene.queue_type == QueueType::Quorum {
        let refused = operator.transfer_from(native).run().await.expect_err("nobody can take them");
        assert_eq!(refused.kind(), TransportErrorKind::Unsupported, "{refused}");
    }
    operator.close().await;

    // They wait in the ladder: as dead letters of it they come back to the work queue.
    scene.tidy_up(&waits).await;
    scene.delete(&shelf).await;
}

/// Has every message fail once; answers until when each must wait.
async fn fail_all(scene: &Scene, options: Options, waits: &Needs) -> BTreeMap<String, SystemTime> {
    let transport = options.connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, waits).await.expect("started");
    join_all((0..MESSAGES).map(|n| publish(&transport, message(format!("m{n}"))))).await;
    let mut hands = BTreeMap::new();
    while hands.len() < MESSAGES {
        let hand = next(&transport).await;
        hands.insert(hand.delivery.id().to_owned(), hand);
    }
    // All at once: none may be due before the last has failed.
    let due: BTreeMap<_, _> = hands.keys().map(|id| (id.clone(), SystemTime::now() + WAIT)).collect();
    join_all(hands.into_values().map(async |Received { delivery, receipt }| {
        let settlement = retry(&transport, &delivery, WAIT);
        settle(&transport, receipt, settlement).await;
    }))
    .await;
    transport.close().await;
    due
}

/// Handles messages until each was handled and none is left in these places; returns how many it handled.
async fn handle_all(
    scene: &Scene,
    waits: &Needs,
    due: &BTreeMap<String, SystemTime>,
    places: &[String],
) -> usize {
    let transport: RabbitMq = scene.options().connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, waits).await.expect("started");
    let mut handled = BTreeMap::<String, usize>::new();
    while handled.len() < MESSAGES || sum(scene, places).await > 0 {
        let received = tokio::time::timeout(common::ARRIVAL + WAIT, transport.receive()).await;
        let Received { delivery, receipt }: Received<Receipt> = received
            .unwrap_or_else(|_| panic!("{} of {MESSAGES} came", handled.len()))
            .expect("works")
            .expect("one");
        assert_eq!(delivery.attempt(), 2);
        let facts = transport.facts();
        if let Some(wait_on) = Settlement::wait_on(&delivery, &Planning::new(transport.now(), &facts)) {
            // What was left of its wait takes several hops.
            settle(&transport, receipt, wait_on).await;
            continue;
        }
        // Clocks of broker and client are the same here; a millisecond is cut off in headers.
        let early = due[delivery.id()].duration_since(delivery.received_at()).unwrap_or_default();
        assert!(early < Duration::from_millis(20), "{} is {early:?} early", delivery.id());
        *handled.entry(delivery.id().to_owned()).or_default() += 1;
        transport.settle(receipt, Settlement::Complete).await.expect("completed");
    }
    transport.close().await;
    handled.into_values().sum()
}

fn ladder(scene: &Scene, millis: u64) -> [(&'static str, lapin::types::AMQPValue); 6] {
    use lapin::types::AMQPValue::{LongLongInt, LongString};
    [
        ("x-queue-type", LongString("quorum".into())),
        ("x-message-ttl", LongLongInt(i64::try_from(millis).unwrap())),
        ("x-dead-letter-exchange", LongString("".into())),
        ("x-dead-letter-routing-key", LongString(scene.queue.as_str().into())),
        ("x-dead-letter-strategy", LongString("at-least-once".into())),
        ("x-overflow", LongString("reject-publish".into())),
    ]
}

/// Waits until all messages are there: what was in flight goes back as soon as the broker sees that the hand is gone.
async fn until_left(scene: &Scene, places: &[String]) {
    eventually("all messages are left", async || sum(scene, places).await >= MESSAGES).await;
}

async fn sum(scene: &Scene, queues: &[String]) -> usize {
    let mut sum = 0;
    for queue in queues {
        sum += ready(scene, queue).await;
    }
    sum
}

/// RabbitMQ counts none in a quorum queue that does not answer within 250 ms: it is asked again.
async fn ready(scene: &Scene, queue: &str) -> usize {
    const TOLD_WITHIN: Duration = Duration::from_millis(200);
    found("the broker counts in time", async || {
        let asked = Instant::now();
        match scene.find(queue).await.map_or(0, |queue| queue.message_count() as usize) {
            0 if asked.elapsed() >= TOLD_WITHIN => None,
            count => Some(count),
        }
    })
    .await
}
