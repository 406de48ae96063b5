//! What the subscription asks of the broker, and what of a message survives a hop.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{ARRIVAL, Scene, message, needs, next, publish, retry, settle};
use lapin::BasicProperties;
use lapin::options::BasicGetOptions;
use lapin::types::{AMQPValue, FieldArray, FieldTable};
use redrive_contract::{Started, found};
use redrive_core::transport::Settlement;
use redrive_core::{Timestamp, Transport, header_names};
use redrive_rabbitmq::{QueueType, RabbitMq, Topology};

crate::tests!(
    emulator:
    one_consumer_is_active_and_the_next_takes_over,
    the_consumer_with_priority_is_served_first,
    a_hop_keeps_what_it_can,
    more_is_held_where_much_is_worked_off,
    a_classic_queue_taken_for_a_quorum_queue_is_noticed,
);

/// The consumer asks for this many in flight, and may get many more.
const LEAST: u32 = 2;

async fn one_consumer_is_active_and_the_next_takes_over(scene: Scene) {
    let needs = needs(&[100], 1);
    let start = async || {
        let transport =
            scene.options().single_active_consumer().connect(&scene.url).await.expect("connected");
        Started::open(transport, &needs).await.expect("started")
    };
    let first = start().await;
    publish(&first, message("before")).await;
    complete(&first, "before").await;
    let second = start().await;
    for n in 0..10 {
        let id = format!("m{n}");
        publish(&first, message(&id)).await;
        complete(&first, &id).await;
    }
    // Handed out more often than the prefetch allows: nothing of it to the second.
    first.close().await;
    publish(&second, message("after")).await;
    complete(&second, "after").await;
    second.close().await;
    scene.tidy_up(&needs).await;
}

async fn the_consumer_with_priority_is_served_first(scene: Scene) {
    let needs = needs(&[100], 3);
    let start = async |priority| {
        let transport =
            scene.options().consumer_priority(priority).connect(&scene.url).await.expect("connected");
        Started::open(transport, &needs).await.expect("started")
    };
    let low = start(1).await;
    publish(&low, message("first")).await;
    complete(&low, "first").await;
    let high = start(7).await;
    // Subscribed, once something is handed out to it; the other has what came before that. The first stays in flight: were it
    // acknowledged, the broker could hand out the last of those that come before it knows that.
    let first = found("the one with priority is served", async || {
        publish(&low, message("is it there?")).await;
        tokio::select! {
            hand = next(&low) => {
                settle(&low, hand.receipt, Settlement::Complete).await;
                None
            }
            hand = next(&high) => Some(hand),
        }
    })
    .await;
    let mut hands = vec![first];
    for n in 0..2 {
        publish(&low, message(format!("m{n}"))).await;
        hands.push(next(&high).await);
    }
    publish(&low, message("one too many")).await;
    complete(&low, "one too many").await;
    for hand in hands {
        high.settle(hand.receipt, Settlement::Complete).await.expect("completed");
    }
    high.close().await;
    low.close().await;
    scene.tidy_up(&needs).await;
}

async fn a_hop_keeps_what_it_can(scene: Scene) {
    let needs = needs(&[100], 3);
    // With priorities, where they must be asked for; a quorum queue refuses the argument.
    let options = match scene.queue_type {
        QueueType::Classic => scene.options().argument("x-max-priority", 9_i64),
        _ => scene.options(),
    };
    let transport = options.connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    let bystanders = [format!("{}-cc", scene.queue), format!("{}-bcc", scene.queue)];
    let mut headers = FieldTable::default();
    for (name, queue) in ["CC", "BCC"].into_iter().zip(&bystanders) {
        scene.declare_raw(queue, &[]).await;
        let list = FieldArray::from(vec![AMQPValue::LongString(queue.as_str().into())]);
        headers.insert(name.into(), AMQPValue::FieldArray(list));
    }
    let made = 1_600_000_000;
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_user_id("guest".into())
        .with_priority(7)
        .with_timestamp(made)
        .with_expiration("3600000".into());
    scene.publish_raw(&scene.queue, b"body", properties).await;
    let hand = next(&transport).await;
    assert!(hand.delivery.message().headers().contains("CC"));
    let settlement = retry(&transport, &hand.delivery, Duration::from_millis(100));
    settle(&transport, hand.receipt, settlement).await;

    let again = next(&transport).await;
    let (headers, properties) = (again.delivery.message().headers(), again.delivery.message().properties());
    assert_eq!(properties.user_id.as_deref(), Some("guest"), "ours: the broker takes it");
    assert_eq!(properties.priority, Some(7));
    assert_eq!(properties.timestamp, Some(Timestamp::from_unix_seconds(made)));
    assert_eq!(properties.expiration, None);
    assert_eq!(
        headers.get(header_names::EXPIRATION).and_then(redrive_core::Value::as_integer),
        Some(3_600_000)
    );
    let deadline =
        again.delivery.deadline().and_then(|deadline| deadline.duration_since(std::time::UNIX_EPOCH).ok());
    assert_eq!(deadline, Some(Duration::from_secs(made + 1 + 3600)));
    assert!(!headers.contains("CC") && !headers.contains("BCC"));
    transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
    for queue in &bystanders {
        let get = || scene.raw.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true });
        assert!(get().await.expect("an answer").is_some(), "{queue} has the publisher's copy");
        assert!(get().await.expect("an answer").is_none(), "{queue} has a copy of redrive's too");
        scene.delete(queue).await;
    }
    transport.close().await;
    scene.tidy_up(&needs).await;
}

async fn complete(transport: &Started<RabbitMq>, id: &str) {
    let hand = next(transport).await;
    assert_eq!(hand.delivery.id(), id);
    transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
}

async fn more_is_held_where_much_is_worked_off(scene: Scene) {
    const ROUND: usize = 300;
    let needs = needs(&[100], LEAST);
    let sized = scene.options().prefetch_up_to(200).connect(&scene.url).await.expect("connected");
    let sized = Started::open(sized, &needs).await.expect("started");
    let producing = async {
        loop {
            futures::future::join_all((0..50).map(|n| publish(&sized, message(format!("m{n}"))))).await;
        }
    };
    let consuming = async {
        let (since, mut fast) = (Instant::now(), 0);
        loop {
            let began = Instant::now();
            for _ in 0..ROUND {
                let hand = next(&sized).await;
                settle(&sized, hand.receipt, Settlement::Complete).await;
            }
            // So fast that more must be held, wherever in it a second begins.
            fast += u32::from(began.elapsed() < Duration::from_millis(1500));
            // What comes while nothing is settled is what may be in flight.
            let mut hands = Vec::new();
            while let Ok(hand) = tokio::time::timeout(Duration::from_millis(200), next(&sized)).await {
                hands.push(hand);
            }
            let held = hands.len();
            for hand in hands {
                settle(&sized, hand.receipt, Settlement::Complete).await;
            }
            assert!(held <= 200 + LEAST as usize, "{held} in flight");
            if held > 3 * LEAST as usize {
                return;
            }
            assert!(fast < 20, "no more are held, however much is worked off");
            if since.elapsed() > ARRIVAL {
                redrive_brokers::report("prefetch_up_to: not shown, on a machine that works off so little");
                return;
            }
        }
    };
    tokio::select! {
        () = consuming => {}
        () = producing => {}
    }
    sized.close().await;
    scene.tidy_up(&needs).await;
}

/// What was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, written: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(written);
        Ok(written.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Passively declared they are alike. A quorum queue counts what it hands out again, on every version.
async fn a_classic_queue_taken_for_a_quorum_queue_is_noticed(scene: Scene) {
    let needs = needs(&[100], 1);
    scene.started(&needs).await.close().await;
    let options = scene.options().queue_type(QueueType::Quorum).topology(Topology::Verify);
    let transport = options.connect(&scene.url).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    publish(&transport, message("a")).await;
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || written.clone()).finish();
    let logging = tracing::subscriber::set_default(subscriber);
    for _ in 0..3 {
        settle(&transport, next(&transport).await.receipt, Settlement::Release).await;
    }
    settle(&transport, next(&transport).await.receipt, Settlement::Complete).await;
    drop(logging);
    let said = String::from_utf8(log.0.lock().unwrap().clone()).expect("text");
    let times = usize::from(scene.queue_type == QueueType::Classic);
    assert_eq!(said.matches("this is a classic queue").count(), times, "{said}");
    transport.close().await;
    scene.tidy_up(&needs).await;
}
