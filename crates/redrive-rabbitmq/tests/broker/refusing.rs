//! A queue that refuses copies for a while.

use std::time::Duration;

use crate::common::{Scene, message, needs, started, tidy_up, with_short_wait};
use redrive_brokers::{Version, node_in_turn};
use redrive_core::{Transport, TransportErrorKind};
use redrive_rabbitmq::{QueueType, RabbitMq};
use redrive_testkit::contract::{Started, eventually};

/// On 3.10 a channel that was refused once is refused for ever, where the limit was a policy's that is gone.
async fn what_was_refused_is_stored_once_the_policy_is_gone(version: Version) {
    let node = node_in_turn(version).await;
    for queue_type in [QueueType::Classic, QueueType::Quorum] {
        let scene = Scene::new(&node.url(), "refusing", queue_type).await;
        let transport = started(with_short_wait(&scene), &scene, &needs(&[100], 10)).await;
        // Several channels.
        let refused = async || futures::future::join_all((0..300).map(|_| stores(&transport, &scene))).await;
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

mod v3_10 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_refused_is_stored_once_the_policy_is_gone() {
        super::what_was_refused_is_stored_once_the_policy_is_gone(super::Version::V3_10).await;
    }
}

mod v4_3 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_refused_is_stored_once_the_policy_is_gone() {
        super::what_was_refused_is_stored_once_the_policy_is_gone(super::Version::V4_3).await;
    }
}
