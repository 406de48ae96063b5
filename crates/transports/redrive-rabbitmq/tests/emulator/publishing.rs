//! What a publisher declares, and where what it delays waits.

use std::time::Duration;

use crate::common::{self, Scene, complete, message, next, published, with_short_wait};
use redrive_contract::{Started, eventually};
use redrive_core::{Shelf, Shelves, Transport, TransportErrorKind};
use redrive_rabbitmq::{Staged, Topology};

crate::tests!(
    emulator:
    a_publisher_declares_no_delay_queues,
    an_expired_message_is_on_its_shelf_before_any_consumer_has_started,
    before_the_start_a_delay_that_the_options_name_works,
    before_the_start_a_delay_queue_that_is_there_works,
    before_the_start_any_delay_works_where_queues_may_be_declared,
    a_delay_keeps_the_expiration_for_afterwards,
    a_delay_is_for_the_work_queue,
    a_publisher_that_may_not_declare_says_that_the_queue_is_missing,
    every_returned_message_is_told_from_the_others,
    a_publisher_keeps_nothing_from_the_next_consumer,
    an_expiration_that_rabbitmq_refuses_stores_no_other_message_twice,
);

/// Which of all queues that redrive could declare are there.
async fn found(scene: &Scene) -> Vec<String> {
    let own = [scene.queue.clone(), scene.dead_letters(), scene.parking()];
    let rungs = [50, 75, 100, 200, 500, 1000, 2000, 10_000, 30_000, 60_000, 600_000, 1_800_000, 3_600_000];
    let mut found = Vec::new();
    for queue in own.into_iter().chain(rungs.into_iter().map(|rung| scene.rung(rung))) {
        if scene.find(&queue).await.is_ok() {
            found.push(queue);
        }
    }
    found
}

/// Whatever the tests of this file declare.
async fn tidy_up(scene: &Scene) {
    for queue in found(scene).await {
        scene.delete(&queue).await;
    }
}

async fn a_publisher_declares_no_delay_queues(scene: Scene) {
    let transport = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    published(&transport.publisher(), message("a")).await;
    assert_eq!(found(&scene).await, [scene.queue.clone(), scene.dead_letters()]);
    let results = transport.publisher().publish_all((0..50).map(|n| message(format!("m{n}")))).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(found(&scene).await.len(), 2);

    // A consumer declares what its policy asks for, and no more.
    let transport = Started::open(transport, &common::needs(&[100], 100)).await.expect("opened");
    let names = [scene.queue.clone(), scene.dead_letters(), scene.parking(), scene.rung(100)];
    for name in &names {
        assert!(scene.find(name).await.is_ok(), "{name}");
    }
    assert_eq!(found(&scene).await.len(), names.len());
    transport.close().await;
    tidy_up(&scene).await;
    scene.delete(&scene.rung(100)).await;
}

async fn an_expired_message_is_on_its_shelf_before_any_consumer_has_started(scene: Scene) {
    let transport = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    let mut expiring = message("a");
    expiring.properties_mut().expiration = Some(Duration::from_millis(1));
    published(&transport.publisher(), expiring).await;
    let shelves = transport.shelves();
    eventually("the message rests on the shelf", async || {
        shelves.count(Shelf::DeadLetter).await.is_ok_and(|count| count > 0)
    })
    .await;
    transport.close().await;
    tidy_up(&scene).await;
}

async fn before_the_start_a_delay_that_the_options_name_works(scene: Scene) {
    let wait = Duration::from_millis(75);
    let producer = with_short_wait(&scene).wait(wait).connect(&scene.url).await.expect("connected");
    producer.publisher().publish_after(message("later"), wait).await.expect("stored");
    assert_eq!(found(&scene).await, [scene.queue.clone(), scene.dead_letters(), scene.rung(75)]);
    // A longer one takes several hops.
    producer.publisher().publish_after(message("much later"), wait * 3).await.expect("stored");
    let transport = common::started(with_short_wait(&scene), &scene, &common::needs(&[75], 10)).await;
    let received = next(&transport).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("later", 1));
    complete(&transport, received.receipt).await;
    let early = next(&transport).await;
    assert_eq!(early.delivery.id(), "much later");
    assert!(early.delivery.history().not_before.is_some(), "a consumer has it wait on");
    complete(&transport, early.receipt).await;
    transport.close().await;
    producer.close().await;
    tidy_up(&scene).await;
}

async fn before_the_start_a_delay_queue_that_is_there_works(scene: Scene) {
    let producer = with_short_wait(&scene).topology(Topology::Verify);
    let producer = producer.connect(&scene.url).await.expect("connected");
    let wait = Duration::from_millis(75);
    let refused = producer.publisher().publish_after(message("too early"), wait).await.unwrap_err();
    assert_eq!(refused.kind(), TransportErrorKind::Unsupported);
    assert!(refused.to_string().contains("Options::wait"), "{refused}");
    assert!(found(&scene).await.is_empty(), "nothing is declared for what is refused");
    // Somebody else's policy.
    let consumer = common::started(with_short_wait(&scene), &scene, &common::needs(&[75], 10)).await;
    producer.publisher().publish_after(message("a"), wait).await.expect("stored");
    let received = next(&consumer).await;
    assert_eq!((received.delivery.id(), received.delivery.attempt()), ("a", 1));
    complete(&consumer, received.receipt).await;
    consumer.close().await;
    producer.close().await;
    tidy_up(&scene).await;
}

async fn before_the_start_any_delay_works_where_queues_may_be_declared(scene: Scene) {
    let producer = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    for (id, minutes) in [("soon", 30), ("first", 90)] {
        let wait = Duration::from_secs(60 * minutes);
        producer.publisher().publish_after(message(id), wait).await.expect("stored");
    }
    let rungs = [scene.rung(1_800_000), scene.rung(3_600_000)];
    assert_eq!(found(&scene).await, [[scene.queue.clone(), scene.dead_letters()], rungs].concat());
    producer.close().await;
    tidy_up(&scene).await;
}

async fn a_delay_keeps_the_expiration_for_afterwards(scene: Scene) {
    let transport = common::started(with_short_wait(&scene), &scene, &common::needs(&[300], 10)).await;
    let mut expiring = message("a");
    expiring.properties_mut().expiration = Some(Duration::from_millis(100));
    transport.publisher().publish_after(expiring, Duration::from_millis(300)).await.expect("stored");
    let received = next(&transport).await;
    let deadline = received.delivery.deadline().expect("it expires");
    assert_eq!(deadline, received.delivery.received_at() + Duration::from_millis(100));
    complete(&transport, received.receipt).await;
    transport.close().await;
    tidy_up(&scene).await;
    scene.delete(&scene.rung(300)).await;
}

async fn a_delay_is_for_the_work_queue(scene: Scene) {
    let transport = common::started(with_short_wait(&scene), &scene, &common::needs(&[100], 10)).await;
    let elsewhere =
        [transport.publisher().to(scene.parking()), transport.publisher_to_exchange("amq.fanout", "any")];
    for publisher in elsewhere {
        let refused = publisher.publish_after(message("a"), Duration::from_millis(100)).await.unwrap_err();
        assert_eq!(refused.kind(), TransportErrorKind::Unsupported, "{refused}");
    }
    let eleven_years = Duration::from_secs(11 * 365 * 86_400);
    let refused = transport.publisher().publish_after(message("a"), eleven_years).await.unwrap_err();
    assert_eq!(refused.kind(), TransportErrorKind::Unsupported, "{refused}");
    transport.close().await;

    let staged = Staged::back_to("amq.fanout").stage("a-stage", Duration::from_millis(100));
    let by_stages = scene.options().delay(staged).connect(&scene.url).await.expect("connected");
    let refused = by_stages.publisher().publish_after(message("a"), Duration::from_millis(100)).await;
    assert_eq!(refused.unwrap_err().kind(), TransportErrorKind::Unsupported);
    by_stages.close().await;
    tidy_up(&scene).await;
    scene.delete(&scene.rung(100)).await;
}

async fn a_publisher_that_may_not_declare_says_that_the_queue_is_missing(scene: Scene) {
    let verifying = |topology| scene.options().topology(topology);
    for topology in [Topology::Verify, Topology::Nothing] {
        let transport = verifying(topology).connect(&scene.url).await.expect("connected");
        let refused = transport.publisher().publish(message("a")).await.unwrap_err();
        assert_eq!(refused.kind(), TransportErrorKind::Unroutable, "{refused}");
        assert!(refused.to_string().contains(&scene.queue), "{refused}");
        transport.close().await;
    }
    assert!(found(&scene).await.is_empty());
}

/// On their way together, to a queue that is not there and to one that is: by the same publisher, and by two.
async fn every_returned_message_is_told_from_the_others(scene: Scene) {
    let transport = common::started(with_short_wait(&scene), &scene, &common::needs(&[100], 200)).await;
    published(&transport.publisher(), message("first")).await;
    let (work, nowhere) = (transport.publisher(), transport.publisher().to("no-such-queue"));
    let messages = || (0..100).map(|n| message(format!("m{n}")));
    let (stored, returned) = tokio::join!(work.publish_all(messages()), nowhere.publish_all(messages()));
    assert!(stored.len() == 100 && stored.iter().all(Result::is_ok), "{stored:?}");
    assert_eq!(returned.len(), 100);
    for result in returned {
        assert_eq!(result.unwrap_err().kind(), TransportErrorKind::Unroutable);
    }
    transport.close().await;
    tidy_up(&scene).await;
    scene.delete(&scene.rung(100)).await;
}

async fn a_publisher_keeps_nothing_from_the_next_consumer(scene: Scene) {
    const MESSAGES: usize = 20;
    let needs = common::needs(&[100], 100);
    let dropped = scene.started(&needs).await;
    let publisher = dropped.publisher();
    for n in 0..MESSAGES {
        published(&publisher, message(format!("m{n}"))).await;
    }
    // The others are on their way, or here.
    drop(next(&dropped).await);
    drop(dropped);
    let consumer = scene.started(&needs).await;
    for _ in 0..MESSAGES {
        let received = next(&consumer).await;
        complete(&consumer, received.receipt).await;
    }
    consumer.close().await;
    assert_eq!(publisher.destination(), scene.queue);
    scene.tidy_up(&needs).await;
}

/// RabbitMQ closes the channel over it, and what was published beside it is published again.
async fn an_expiration_that_rabbitmq_refuses_stores_no_other_message_twice(scene: Scene) {
    let transport = with_short_wait(&scene).connect(&scene.url).await.expect("connected");
    published(&transport.publisher(), message("first")).await;
    let mut messages: Vec<_> = (0..50).map(|n| message(format!("m{n}"))).collect();
    messages[25].properties_mut().expiration = Some(Duration::from_millis(315_360_000_001));
    let publisher = transport.publisher();
    let answers =
        futures::future::join_all(messages.into_iter().map(|message| publisher.publish(message))).await;
    let refused: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert_eq!(refused[0].kind(), TransportErrorKind::Unsupported, "{}", refused[0]);
    let queue = scene.find(&scene.queue).await;
    assert_eq!(queue.expect("it is there").message_count(), 50);
    transport.close().await;
    tidy_up(&scene).await;
}
