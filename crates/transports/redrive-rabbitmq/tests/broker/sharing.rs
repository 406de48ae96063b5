//! What transports that share connections cost the broker.

use crate::common::{self, complete, message, needs, next, publish};
use redrive_brokers::{Node, Version, node_in_turn};
use redrive_contract::{Started, eventually};
use redrive_core::Transport;
use redrive_rabbitmq::{Connections, QueueType, RabbitMq};

async fn consumers_that_share_have_two_connections(version: Version) {
    common::show_logs();
    let node = node_in_turn(version).await;
    let connections =
        Connections::options().name("one for all").connect(&node.url()).await.expect("connected");
    let mut transports = Vec::new();
    for number in 0..30 {
        let options = RabbitMq::options(&format!("shared-{number}")).queue_type(QueueType::Classic);
        let transport = options.retry_queue_type(QueueType::Classic).connect_over(&connections).await;
        let transport = transport.expect("connected");
        let transport = Started::open(transport, &needs(&[100], 10)).await.expect("started");
        transports.push(transport);
    }
    for transport in &transports {
        // It has its channel once it has a message.
        publish(transport, message("there")).await;
        complete(transport, next(transport).await.receipt).await;
    }
    let names = ctl(&node, &["list_connections", "client_properties"]).await;
    for role in ["consuming", "publishing", "control"] {
        assert_eq!(names.matches(&format!("one for all ({role})")).count(), 1, "{names}");
    }
    // Those on which queues were declared may be closed a moment later.
    eventually("30 channels", async || channels(&node).await == 30).await;
    // Also where somebody still holds what can no longer be settled.
    publish(&transports[29], message("held")).await;
    let held = next(&transports[29]).await;
    for transport in &transports[10..] {
        transport.close().await;
    }
    eventually("who is closed leaves no channel behind", async || channels(&node).await == 10).await;
    drop(held);
    connections.close().await;
    node.pass_on();
}

/// How many channels a consumer has, or had: those for copies are in confirm mode.
async fn channels(node: &Node) -> usize {
    let modes = ctl(node, &["list_channels", "confirm"]).await;
    modes.lines().filter(|line| line.trim() == "false").count()
}

async fn ctl(node: &Node, arguments: &'static [&'static str]) -> String {
    node.aside(move |node| node.ctl(arguments)).await.expect("rabbitmqctl works")
}

mod own {
    mod v3_10 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn consumers_that_share_have_two_connections() {
            super::super::consumers_that_share_have_two_connections(redrive_brokers::Version::V3_10).await;
        }
    }
    mod v4_3 {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn consumers_that_share_have_two_connections() {
            super::super::consumers_that_share_have_two_connections(redrive_brokers::Version::V4_3).await;
        }
    }
}
