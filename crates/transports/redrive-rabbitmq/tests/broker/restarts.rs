//! On nodes of their own: killed in the middle and restarted, and a consumer that holds a message too long.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive_brokers::node_in_turn;
use redrive_contract::{Started, eventually};
use redrive_core::transport::Settlement;
use redrive_core::{Transport, TransportErrorKind};
use redrive_rabbitmq::{QueueType, RabbitMq};

use crate::common::{self, message, needs, next, publish, retry, settle, settles};

/// On a node that it has for itself: killed in the middle, restarted, and nothing is lost.
async fn survives_a_restart(version: redrive_brokers::Version, queue_type: QueueType) {
    const MESSAGES: usize = 60;
    // Not due before the broker is back.
    const WAIT: u64 = 15_000;
    common::show_logs();
    let node = node_in_turn(version).await;
    let needs = needs(&[200], 8);
    let options = RabbitMq::options(&format!("restarts-{queue_type:?}")).queue_type(queue_type);
    let transport = options.connect(&node.url()).await.expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    // Killed within a second of its first declaration, a quorum queue comes back empty, whatever was confirmed. A copy is
    // stored only once that time is over.
    publish(&transport, message("first")).await;
    let first = next(&transport).await;
    let settlement = retry(&transport, &first.delivery, Duration::from_millis(200));
    settle(&transport, first.receipt, settlement).await;
    let again = next(&transport).await;
    transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
    for n in 0..MESSAGES {
        publish(&transport, message(format!("m{n}"))).await;
    }
    let mut handled = BTreeSet::new();
    let mut hands = Vec::new();
    for n in 0..16 {
        let hand = next(&transport).await;
        if n % 2 == 0 {
            let settlement = retry(&transport, &hand.delivery, Duration::from_millis(WAIT));
            settle(&transport, hand.receipt, settlement).await;
        } else if n < 8 {
            let id = hand.delivery.id().to_owned();
            transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
            handled.insert(id);
        } else {
            hands.push(hand);
        }
    }
    node.aside(|node| node.kill().and_then(|()| node.restart())).await.expect("restarted");
    let noticed = async || transport.interruptions() > 0;
    eventually("that the old connection ended was noticed", noticed).await;
    for hand in hands {
        let lost =
            transport.settle(hand.receipt, Settlement::Complete).await.expect_err("of an earlier epoch");
        assert_eq!(lost.error.kind(), TransportErrorKind::Lost, "{}", lost.error);
    }
    while handled.len() < MESSAGES {
        let Ok(received) = tokio::time::timeout(common::ARRIVAL, transport.receive()).await else {
            let missing: Vec<_> =
                (0..MESSAGES).map(|n| format!("m{n}")).filter(|id| !handled.contains(id)).collect();
            panic!("{missing:?} was not redelivered");
        };
        let hand = received.expect("receiving works").expect("a delivery");
        let id = hand.delivery.id().to_owned();
        transport.settle(hand.receipt, Settlement::Complete).await.expect("completed");
        handled.insert(id);
    }
    transport.close().await;
    node.pass_on();
}

/// The broker takes back what is held too long. A quorum queue of 4.3 does it on time, by ending the subscription and
/// leaving the channel open; 3.10 closes the channel, and by default looks once a minute. On a machine that stands
/// still it may take back anything that is in flight then: it is redelivered, as often as it must.
async fn takes_up_a_subscription_that_timed_out(version: redrive_brokers::Version, queue_type: QueueType) {
    common::show_logs();
    let node =
        redrive_brokers::Node::start_async(version, &["consumer_timeout = 3000"]).await.expect("a node");
    let often = ["eval", "application:set_env(rabbit, channel_tick_interval, 500)."];
    node.aside(move |node| node.ctl(&often)).await.expect("rabbitmqctl works");
    let transport =
        RabbitMq::options("orders").queue_type(queue_type).connect(&node.url()).await.expect("connected");
    let transport = Started::open(transport, &needs(&[200], 8)).await.expect("started");
    publish(&transport, message("a")).await;
    let held = next(&transport).await;
    let again = next(&transport).await;
    assert_eq!((again.delivery.id(), again.delivery.attempt()), ("a", 1), "it costs no attempt");
    let settlement = retry(&transport, &held.delivery, Duration::from_millis(200));
    let lost = transport.settle(held.receipt, settlement).await.expect_err("taken back");
    assert_eq!(lost.error.kind(), TransportErrorKind::Lost, "{}", lost.error);
    settles(&transport, again.receipt, Settlement::Complete).await;
    // What goes through the same delay queue comes behind the copy of the lost delivery, if there is one.
    publish(&transport, message("b")).await;
    loop {
        let hand = next(&transport).await;
        match (hand.delivery.id(), hand.delivery.attempt()) {
            ("b", 1) => {
                let settlement = retry(&transport, &hand.delivery, Duration::from_millis(200));
                settles(&transport, hand.receipt, settlement).await;
            }
            ("b", 2) => break,
            other => {
                assert_eq!(other, ("a", 1), "the lost delivery was copied all the same");
                settles(&transport, hand.receipt, Settlement::Complete).await;
            }
        }
    }
    transport.close().await;
}

macro_rules! own_node_tests {
    ($module:ident, $version:ident, $($queue_type:ident $name:ident),*; $($timeout:ident $timeout_name:ident),*) => {
        mod $module {
            mod own_node {
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    let version = redrive_brokers::Version::$version;
                    super::super::survives_a_restart(version, redrive_rabbitmq::QueueType::$queue_type).await;
                })*
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $timeout_name() {
                    let version = redrive_brokers::Version::$version;
                    let queue_type = redrive_rabbitmq::QueueType::$timeout;
                    super::super::takes_up_a_subscription_that_timed_out(version, queue_type).await;
                })*
            }
        }
    };
}

own_node_tests!(v3_10, V3_10, Classic classic_survives_a_restart, Quorum quorum_survives_a_restart;
    Classic classic_consumer_timeout, Quorum quorum_consumer_timeout);
own_node_tests!(v4_3, V4_3, Classic classic_survives_a_restart, Quorum quorum_survives_a_restart;
    Quorum quorum_consumer_timeout);
