//! What the broker refuses: copies for a while, or one message among others.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{
    Scene, message, needs, next, publish, retry, settle, show_logs, started, tidy_up, with_short_wait,
};
use futures::future::join_all;
use redrive_brokers::{Node, Version, node_in_turn};
use redrive_contract::{Started, eventually};
use redrive_core::transport::Settlement;
use redrive_core::{Message, Transport, TransportErrorKind};
use redrive_rabbitmq::{QueueType, RabbitMq};

/// On 3.10 a channel that was refused once is refused for ever, where the limit was a policy's that is gone.
async fn what_was_refused_is_stored_once_the_policy_is_gone(version: Version) {
    let node = node_in_turn(version).await;
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let scene = Scene::new(&node.url(), "refusing", queue_type).await;
        let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
        // Several channels.
        let refused = async || join_all((0..300).map(|_| stores(&transport, &scene))).await;
        assert!(refused().await.contains(&true));
        let name = scene.dead_letters();
        let pattern = format!("^{name}$");
        let limit = r#"{"max-length":1,"overflow":"reject-publish"}"#;
        let set = node.aside(move |node| {
            node.ctl(&["set_policy", "limit", &pattern, limit, "--apply-to", "queues"]).map(drop)
        });
        set.await.expect("the policy is set");
        eventually("the queue refuses", async || !refused().await.contains(&true)).await;
        let clear = node.aside(|node| node.ctl(&["clear_policy", "limit"]).map(drop));
        clear.await.expect("the policy is gone");
        let soon = eventually("the queue takes messages again", async || stores(&transport, &scene).await);
        tokio::time::timeout(Duration::from_secs(30), soon).await.expect("without another start");
        transport.close().await;
        tidy_up(&scene, &[scene.rung(100)], &[]).await;
    }
    node.pass_on();
}

async fn stores(transport: &Started<RabbitMq>, scene: &Scene) -> bool {
    match transport.publisher().to(scene.dead_letters()).publish(message("m")).await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), TransportErrorKind::Full, "{error}");
            false
        }
    }
}

/// RabbitMQ closes the channel over a message that is too large, and all that are on their way on it have no answer. They
/// get one, and the culprit is told from them. On a node of its own, where a message that goes with others is too large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v4_3_one_that_closes_the_channel_takes_nobody_with_it() {
    const MESSAGES: usize = 50;
    const CULPRIT: usize = 20;
    show_logs();
    let node = Node::start_async(Version::V4_3, &["max_message_size = 10000"]).await.expect("a node");
    let transport = RabbitMq::connect(&node.url(), "orders").await.expect("connected");
    let transport = Started::open(transport, &needs(&[100], 200)).await.expect("started");
    let published = join_all((0..MESSAGES).map(|n| {
        let body = if n == CULPRIT { vec![b'x'; 20_000] } else { b"small".to_vec() };
        transport.publish(Message::new(body).with_id(format!("m{n}")))
    }));
    for (n, outcome) in published.await.into_iter().enumerate() {
        match outcome {
            Ok(()) => assert_ne!(n, CULPRIT),
            Err(error) => {
                assert_eq!(n, CULPRIT, "{error}");
                assert_eq!(error.kind(), TransportErrorKind::TooLarge, "{error}");
            }
        }
    }
    let mut arrived = BTreeSet::new();
    while arrived.len() < MESSAGES - 1 {
        let hand = next(&transport).await;
        arrived.insert(hand.delivery.id().to_owned());
        settle(&transport, hand.receipt, Settlement::Complete).await;
    }
    assert!(!arrived.contains(&format!("m{CULPRIT}")));
    transport.close().await;
}

/// A spare delay queue cannot be declared: the wait is put together from those that are there.
async fn at_the_queue_limit_waits_use_the_queues_that_are_there(version: Version) {
    let node = node_in_turn(version).await;
    let vhost = format!("limited-{:08x}", fastrand::u32(..));
    let named = vhost.clone();
    let made = node.aside(move |node| {
        node.ctl(&["add_vhost", &named])?;
        node.ctl(&["set_permissions", "-p", &named, "guest", ".*", ".*", ".*"])?;
        // The work queue, two shelves, and one delay queue.
        node.ctl(&["set_vhost_limits", "-p", &named, r#"{"max-queues":4}"#])
    });
    made.await.expect("the virtual host is there");
    let scene = Scene::new(&node.url().replace("%2f", &vhost), "limited", QueueType::Quorum).await;
    let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
    for id in ["patient", "other"] {
        publish(&transport, message(id)).await;
    }
    let (patient, other) = (next(&transport).await, next(&transport).await);
    // 200 ms and 50 ms.
    let settlement = retry(&transport, &patient.delivery, Duration::from_millis(250));
    let Settlement::Reschedule { wait, .. } = settlement else { panic!("{settlement:?}") };
    assert_eq!(wait, Duration::from_millis(200), "as if its queue could be declared");
    settle(&transport, patient.receipt, settlement).await;
    settle(&transport, other.receipt, Settlement::Complete).await;
    let hops = transport.facts().delays.hop_durations.expect("known");
    assert!(!hops.contains(&wait) && hops.contains(&Duration::from_millis(100)), "{hops:?}");
    let early = next(&transport).await;
    assert_eq!(early.delivery.id(), "patient");
    assert!(early.delivery.history().not_before.is_some(), "it waits on");
    settle(&transport, early.receipt, Settlement::Complete).await;
    transport.close().await;
    let deleted = node.aside(move |node| node.ctl(&["delete_vhost", &vhost]).map(drop));
    deleted.await.expect("deleted");
    node.pass_on();
}

mod v3_10 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn at_the_queue_limit_waits_use_the_queues_that_are_there() {
        super::at_the_queue_limit_waits_use_the_queues_that_are_there(super::Version::V3_10).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_refused_is_stored_once_the_policy_is_gone() {
        super::what_was_refused_is_stored_once_the_policy_is_gone(super::Version::V3_10).await;
    }
}

mod v4_3 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn at_the_queue_limit_waits_use_the_queues_that_are_there() {
        super::at_the_queue_limit_waits_use_the_queues_that_are_there(super::Version::V4_3).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_refused_is_stored_once_the_policy_is_gone() {
        super::what_was_refused_is_stored_once_the_policy_is_gone(super::Version::V4_3).await;
    }
}
