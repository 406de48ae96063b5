//! Dead letters that the broker moves, by an argument of the work queue or by a policy.

mod common;

use std::time::Duration;

use common::{
    Scene, complete, dead_letter, message, needs, next, publish, retry, settle, started, text, tidy_up,
    with_short_wait,
};
use lapin::types::AMQPValue;
use redrive_brokers::{Node, Version};
use redrive_core::{Count, Selection, Settlement, Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{DeadLetters, QueueType, RabbitMq, Topology};
use redrive_testkit::Started;

tests!(dead_letters_by_the_broker_tell_by_x_death_alone);

async fn dead_letters_by_the_broker_tell_by_x_death_alone(scene: Scene) {
    let options = with_short_wait(&scene).dead_letters(DeadLetters::Broker);
    let unknown =
        options.clone().topology(Topology::Verify).connect(&scene.url).await.expect_err("not known");
    assert_eq!(unknown.kind(), TransportErrorKind::Unsupported);
    assert!(unknown.to_string().contains("native_dead_letter"), "{unknown}");
    let transport = started(options, &scene, &needs(&[100], 10)).await;
    broker_dead_letters(&transport, &scene).await;
    transport.close().await;
    tidy_up(&scene, &[scene.rung(100)], &[]).await;
}

/// One message fails, is retried, and dead-lettered.
async fn broker_dead_letters(transport: &Started<RabbitMq>, scene: &Scene) {
    publish(transport, message("a")).await;
    let received = next(transport).await;
    let settlement = retry(transport, &received.delivery, Duration::from_millis(100));
    settle(transport, received.receipt, settlement).await;
    let received = next(transport).await;
    assert_eq!(received.delivery.deaths().deaths[0].reason, "expired", "of its wait");
    let settlement = dead_letter(transport, &received.delivery);
    assert_eq!(settlement, Settlement::NativeDeadLetter);
    settle(transport, received.receipt, settlement).await;
    let shelves = transport.shelves();
    while shelves.count(Shelf::DeadLetter).await.expect("counted") == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let shelved = shelves.browse(Shelf::DeadLetter, None, 10).await.expect("browsed").entries.remove(0);
    let deaths = shelved.deaths();
    assert_eq!(deaths.count_in(&scene.queue), 1);
    assert_eq!((&*deaths.deaths[0].queue, &*deaths.deaths[0].reason), (&*scene.queue, "rejected"));
    assert_eq!(shelved.broker_reason.as_deref(), Some("rejected"));
    assert_eq!(shelved.shelved_at, deaths.deaths[0].time);
    assert!(shelved.shelved_at.is_some());
    // Of the failure that led here nothing is written; of the one before what its copy carries.
    assert_eq!((shelved.message.id(), shelved.history.attempt), (Some("a"), Count::Known(1)));
    assert_eq!(
        shelves
            .redrive(Shelf::DeadLetter, &Selection::All)
            .await
            .expect("redriven")
            .into_result()
            .expect("redriven"),
        1
    );
    let again = next(transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 1));
    complete(transport, again.receipt).await;
}

/// The same where a policy says where dead letters go.
async fn dead_letters_by_policy(version: Version) {
    let node = Node::start_async(version, &[]).await.expect("a node");
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let scene = Scene::new(&node.url(), "policy", queue_type).await;
        let needs = needs(&[100], 10);
        let kind = if queue_type == QueueType::Classic { "classic" } else { "quorum" };
        for queue in [scene.queue.clone(), scene.dead_letters(), scene.parking()] {
            scene.declare_raw(&queue, &[("x-queue-type", text(kind))]).await;
        }
        let back = [
            ("x-message-ttl", AMQPValue::LongInt(100)),
            ("x-dead-letter-exchange", text("")),
            ("x-dead-letter-routing-key", text(&scene.queue)),
        ];
        scene.declare_raw(&scene.rung(100), &back).await;
        let (pattern, dead_letters) = (format!("^{}$", scene.queue), scene.dead_letters());
        let definition =
            format!(r#"{{"dead-letter-exchange":"","dead-letter-routing-key":"{dead_letters}"}}"#);
        let name = scene.queue.clone();
        let set = node.aside(move |node| {
            node.ctl(&["set_policy", &name, &pattern, &definition, "--apply-to", "queues"]).map(drop)
        });
        set.await.expect("the policy is set");
        let options = with_short_wait(&scene).topology(Topology::Verify).native_dead_letter(true);
        let transport = started(options.dead_letters(DeadLetters::Broker), &scene, &needs).await;
        broker_dead_letters(&transport, &scene).await;
        transport.close().await;
    }
}

mod policy {
    use super::*;

    mod v3_10 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn dead_letters_go_where_it_says() {
            super::dead_letters_by_policy(super::Version::V3_10).await;
        }
    }

    mod v4_3 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn dead_letters_go_where_it_says() {
            super::dead_letters_by_policy(super::Version::V4_3).await;
        }
    }
}
