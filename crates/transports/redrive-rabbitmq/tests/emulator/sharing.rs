//! Transports that share connections, and what each of them may cost the others.

use std::collections::HashSet;
use std::time::Duration;

use crate::common::{ARRIVAL, Scene, complete, message, needs, next, publish};
use redrive_contract::Started;
use redrive_core::{Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{Connections, QueueType, RabbitMq, Topology};

crate::tests!(
    emulator:
    one_that_is_closed_leaves_the_others_alone,
    what_a_channel_was_closed_for_is_not_told_of_the_next,
    closed_connections_end_those_who_use_them,
);

/// Another queue of the same scene.
fn beside(scene: &Scene) -> String {
    format!("{}-beside", scene.queue)
}

async fn tidy_up(scene: &Scene, queues: &[String]) {
    for queue in queues {
        for suffix in ["", "--dead-letters", "--parking-lot", "--retry-100ms"] {
            scene.delete(&format!("{queue}{suffix}")).await;
        }
    }
}

async fn one_that_is_closed_leaves_the_others_alone(scene: Scene) {
    let (needs, other) = (needs(&[100], 10), beside(&scene));
    let connections = Connections::connect(&scene.url).await.expect("connected");
    let [first, second] = [&scene.queue, &other].map(|queue| {
        RabbitMq::options(queue)
            .queue_type(scene.queue_type)
            .retry_queue_type(scene.queue_type)
            .new_queue_wait(Duration::from_millis(300))
    });
    let first = first.connect_over(&connections).await.expect("connected");
    let second = second.connect_over(&connections).await.expect("connected");
    let first = Started::open(first, &needs).await.expect("started");
    let second = Started::open(second, &needs).await.expect("started");
    for transport in [&first, &second] {
        for number in 0..4 {
            publish(transport, message(format!("m{number}"))).await;
        }
    }
    // Both have something in flight, on the same connection.
    let (mine, yours) = (next(&first).await, next(&second).await);
    first.close().await;
    assert!(tokio::time::timeout(ARRIVAL, first.receive()).await.unwrap().unwrap().is_none());
    let closed = first.publish(message("late")).await.expect_err("it is closed");
    assert_eq!(closed.kind(), TransportErrorKind::Closed);
    let closed = first.shelves().count(Shelf::DeadLetter).await.expect_err("it is closed");
    assert_eq!(closed.kind(), TransportErrorKind::Closed);
    drop(mine.receipt);

    // The other has lost nothing of what it held, and goes on.
    let mut seen = HashSet::from([yours.delivery.id().to_owned()]);
    complete(&second, yours.receipt).await;
    while seen.len() < 4 {
        let hand = next(&second).await;
        assert_eq!(hand.delivery.broker_delivery_count(), 1, "{:?}", hand.delivery.id());
        seen.insert(hand.delivery.id().to_owned());
        complete(&second, hand.receipt).await;
    }
    second.close().await;
    // All four are back, at once: nothing waits for the connection to end.
    let heir =
        RabbitMq::options(&scene.queue).queue_type(scene.queue_type).retry_queue_type(scene.queue_type);
    let heir = heir.connect_over(&connections).await.expect("the connections are there as before");
    let heir = Started::open(heir, &needs).await.expect("started");
    let mut back = HashSet::new();
    while back.len() < 4 {
        let hand = next(&heir).await;
        back.insert(hand.delivery.id().to_owned());
        complete(&heir, hand.receipt).await;
    }
    heir.close().await;
    connections.close().await;
    tidy_up(&scene, &[scene.queue.clone(), other]).await;
}

/// The broker closes a channel over each of these questions. With few numbers for channels each number comes up again, many
/// times over.
async fn what_a_channel_was_closed_for_is_not_told_of_the_next(scene: Scene) {
    let few = format!("{}?channel_max=12", scene.url.split('?').next().unwrap_or_default());
    let transport = scene.options().connect(&few).await.expect("connected");
    let needs = needs(&[100], 10);
    let transport = Started::open(transport, &needs).await.expect("started");
    // An intake would declare the shelf again on the next connection.
    transport.pause().await.expect("paused");
    let connections = Connections::connect(&few).await.expect("connected");
    let alone =
        |name: String| RabbitMq::options(&name).queue_type(QueueType::Classic).topology(Topology::Nothing);
    let (mut lost, mut asked) = (0, 0);
    while asked < 50 {
        let missing = format!("{}-missing-{asked}", scene.queue);
        let own = alone(missing.clone()).connect_over(&connections).await.expect("connected");
        let error = own.shelves().count(Shelf::DeadLetter).await.expect_err("it is not there");
        assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
        assert!(error.to_string().contains(&missing), "{error}");
        // On connections of its own there is no other to ask on: when no number is left a new one is made.
        scene.delete(&scene.dead_letters()).await;
        let error = transport.shelves().count(Shelf::DeadLetter).await.expect_err("it is not there");
        match error.kind() {
            TransportErrorKind::Topology => {
                assert!(error.to_string().contains(&scene.dead_letters()), "{error}");
                asked += 1;
            }
            kind => {
                assert_eq!(kind, TransportErrorKind::Unreachable, "{error}");
                lost += 1;
                assert!(lost < 20, "a new connection again and again");
            }
        }
    }
    assert!(lost > 0, "no number was used up");
    transport.resume().await.expect("resumed");
    publish(&transport, message("m")).await;
    let hand = next(&transport).await;
    complete(&transport, hand.receipt).await;
    transport.close().await;
    connections.close().await;
    scene.tidy_up(&needs).await;
}

async fn closed_connections_end_those_who_use_them(scene: Scene) {
    let connections = Connections::connect(&scene.url).await.expect("connected");
    let refused = scene.options().heartbeat(Duration::from_secs(3)).connect_over(&connections).await;
    let refused = refused.expect_err("the heartbeat is that of the connections");
    assert!(refused.to_string().contains("`heartbeat`"), "{refused}");
    let transport = scene.options().connect_over(&connections).await.expect("connected");
    let needs = needs(&[100], 10);
    let transport = Started::open(transport, &needs).await.expect("started");
    connections.close().await;
    let ended = tokio::time::timeout(ARRIVAL, transport.receive()).await.expect("an answer");
    assert_eq!(ended.expect_err("no end without a word").kind(), TransportErrorKind::Closed);
    transport.close().await;
    scene.tidy_up(&needs).await;
}
