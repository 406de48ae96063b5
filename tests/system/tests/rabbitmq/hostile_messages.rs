//! Messages that nobody would publish on purpose: nothing crashes, nothing loops, each ends handled or on a shelf, and
//! the ordinary ones among them are all handled.

use std::collections::{BTreeMap, BTreeSet};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use redrive::rabbitmq::{DeadLetters, QueueType, RabbitMq, Topology};
use redrive::{
    BoxError, Consumer, Json, Message, Reason, Shelf, Shelves as _, TransportError, TransportErrorKind,
    millis, secs,
};
use redrive_brokers::{broker, report};
use redrive_contract::{Started, eventually, found};
use redrive_system_tests::hostile::{self, GOOD_BODY, Hostile};
use redrive_system_tests::rabbit::{Rabbit, publish};
use redrive_system_tests::{Combination, Diary, Version, on_four_combinations};
use serde::Deserialize;
use tokio::sync::oneshot;

on_four_combinations!(
    900;
    every_hostile_message_ends_and_ordinary_ones_are_handled,
    what_cannot_be_carried_is_refused_without_harm_to_its_neighbours,
    headers_that_fill_a_frame_stop_nobody,
    headers_that_fill_a_frame_stay_in_hand_where_the_broker_cannot_shelve_them,
);

#[derive(Deserialize)]
struct Order {
    order: u32,
}

async fn ship(Json(order): Json<Order>) -> Result<(), BoxError> {
    assert_eq!(order.order, 1);
    Ok(())
}

async fn every_hostile_message_ends_and_ordinary_ones_are_handled(on: Combination) {
    let url = broker(on.version).url;
    let queue = on.unique("hostile");
    let operator = on.options(&queue).connect(&url).await.unwrap();
    let rabbit = Rabbit::connect(&url).await;
    let hostile: Vec<Hostile> =
        [hostile::bodies(largest(on)), hostile::large_headers(), hostile::wrong_types(), hostile::oddities()]
            .concat();
    let mut ordinary = 0;
    for (number, message) in hostile.iter().enumerate() {
        if number % 10 == 0 {
            let message = Message::new(GOOD_BODY).with_id(format!("ordinary-{ordinary}"));
            publish(&operator.publisher(), message).await;
            ordinary += 1;
        }
        let sent = rabbit.publish(&queue, message.properties.clone(), &message.body).await;
        sent.unwrap_or_else(|error| panic!("RabbitMQ does not take {}: {error}", message.id));
    }

    let diary = Diary::new();
    let runner = Consumer::new(on.options(&queue).connect(&url).await.unwrap())
        .observer(diary.observer())
        .with_dead_letter_backoff([millis(50)])
        .handler(ship);
    let (leash, end) = oneshot::channel::<()>();
    let running = tokio::spawn(runner.run_until(async { end.await.unwrap_or_default() }));
    if tokio::time::timeout(secs(600), diary.ended(hostile.len() + ordinary)).await.is_err() {
        let ended: BTreeSet<_> = diary.entries().iter().map(|entry| entry.delivery.id().to_owned()).collect();
        let left: Vec<_> =
            hostile.iter().map(|message| &message.id).filter(|id| !ended.contains(*id)).collect();
        panic!("{} settlements, but these did not come to an end: {left:?}", diary.entries().len());
    }
    leash.send(()).unwrap();
    let said = running.await.unwrap().unwrap();

    // Once each: had one been redelivered, or looped, there would be more.
    let mut ends: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for entry in diary.entries() {
        let end = entry.disposition.as_ref().map_or("on sight", redrive::Disposition::name);
        // Some claim to have been handed out before, and are handled alone: what is in flight beside them is given back.
        if end != "release" {
            ends.entry(entry.delivery.id().to_owned()).or_default().push(end);
        }
    }
    for number in 0..ordinary {
        assert_eq!(ends[&format!("ordinary-{number}")], ["ack"], "ordinary-{number}");
    }
    let mut must_rest = BTreeSet::new();
    for Hostile { id, .. } in &hostile {
        let handled =
            id.starts_with("type-good-") && !hostile::is_unreadable(id) && !hostile::claims_to_be_poison(id);
        let rests = ends[id] == ["dead-letter"] || ends[id] == ["park"];
        assert!(if handled { ends[id] == ["ack"] } else { rests }, "{id}: {:?}", ends[id]);
        if !handled {
            must_rest.insert(id.as_str());
        }
    }

    // What the broker itself moves there is under way a while longer.
    let rests = found("all are on a shelf that must be", async || {
        let shelves = operator.shelves();
        let mut rests = shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap().entries;
        rests.extend(shelves.browse(Shelf::Parking, None, usize::MAX).await.unwrap().entries);
        (rests.len() >= must_rest.len()).then_some(rests)
    })
    .await;
    let ids: BTreeSet<&str> = rests.iter().filter_map(|found| found.message.id()).collect();
    assert_eq!((ids, rests.len()), (must_rest.clone(), must_rest.len()));
    let mut natively = 0;
    for found in &rests {
        let id = found.message.id().unwrap_or_default();
        let published = hostile.iter().find(|message| message.id == id).unwrap();
        assert!(found.message.body()[..] == published.body[..], "the body of {id} changed");
        if hostile::is_unreadable(id) {
            assert_eq!(found.history.reason, Some(Reason::MalformedHeaders), "{id}");
        } else if found.history.reason.is_none() {
            // Its headers left no room for the history.
            assert!(id.starts_with("large-"), "{id} has no history");
            natively += 1;
        }
    }
    until_ready(&rabbit, &queue, 0).await;
    report(&format!(
        "hostile messages on {on}: {} of them, {} on a shelf ({natively} without a history, for want of room), the others \
         and {ordinary} ordinary ones handled, each once; {} acknowledged",
        hostile.len(),
        must_rest.len(),
        said.acknowledged,
    ));
    clean_up(&rabbit, &queue).await;
}

/// The largest body: 20 MB, or what RabbitMQ 4.3 takes at most.
fn largest(on: Combination) -> usize {
    match on.version {
        Version::V3_10 => 20_000_000,
        Version::V4_3 => 16 << 20,
    }
}

async fn what_cannot_be_carried_is_refused_without_harm_to_its_neighbours(on: Combination) {
    let url = broker(on.version).url;
    let queue = on.unique("not-carried");
    let transport = on.options(&queue).connect(&url).await.unwrap();
    let neighbour =
        |number| transport.publish(Message::new(GOOD_BODY).with_id(format!("neighbour-{number}")));
    let neighbours = || futures::future::join_all((0..20).map(neighbour));

    let headers = Message::new(GOOD_BODY).with_header("large", "h".repeat(200_000));
    let refused = refused_among(&transport, headers, neighbours()).await;
    assert_eq!(refused.kind(), TransportErrorKind::TooLarge);
    says_all(&refused, &["the headers take 200", "114688"]);
    // To RabbitMQ that is a reason to end the connection, and everything that is under way on it.
    for number in [f64::NAN, f64::INFINITY] {
        let headers = Message::new(GOOD_BODY).with_header("number", number);
        let refused = refused_among(&transport, headers, neighbours()).await;
        assert_eq!(refused.kind(), TransportErrorKind::Refused);
        says_all(&refused, &["cannot carry the header value F64"]);
    }
    let mut published = 60;
    if on.version == Version::V4_3 {
        let body = Message::new(vec![b'x'; (16 << 20) + 1]);
        let refused = refused_among(&transport, body, neighbours()).await;
        assert_eq!(refused.kind(), TransportErrorKind::TooLarge);
        says_all(&refused, &["16777217", "16777216"]);
        published += 20;
    }
    let rabbit = Rabbit::connect(&url).await;
    // Not fewer, and not more: no neighbour had to be published a second time.
    until_ready(&rabbit, &queue, published).await;
    clean_up(&rabbit, &queue).await;
}

/// The longest frame that RabbitMQ takes from a publisher: 8 bytes more than the client library reads.
const LONGEST_FRAME: usize = 131_080;
const LARGE: &str = "large";

/// The message whose content header fills that frame, among neighbours.
async fn publish_among_neighbours(rabbit: &Rabbit, operator: &RabbitMq, queue: &str) {
    // Frame, content header, table, header, delivery mode, id.
    const AROUND: usize = 8 + 14 + 4 + (1 + 4 + 1 + 4) + 1 + (1 + LARGE.len());
    let mut headers = FieldTable::default();
    headers.insert("fill".into(), AMQPValue::LongString("h".repeat(LONGEST_FRAME - AROUND).into()));
    let properties =
        BasicProperties::default().with_headers(headers).with_message_id(LARGE.into()).with_delivery_mode(2);
    for number in 0..NEIGHBOURS {
        if number == NEIGHBOURS / 2 {
            rabbit.publish(queue, properties.clone(), GOOD_BODY).await.unwrap();
        }
        let neighbour = Message::new(GOOD_BODY).with_id(format!("neighbour-{number}"));
        publish(&operator.publisher(), neighbour).await;
    }
}

const NEIGHBOURS: usize = 40;

async fn headers_that_fill_a_frame_stop_nobody(on: Combination) {
    let url = broker(on.version).url;
    let queue = on.unique("fills-a-frame");
    let options = || match on.queue_type {
        // Unasked, it moves nothing, because it loses what finds no room.
        QueueType::Classic => on.options(&queue).dead_letters(DeadLetters::Broker),
        _ => on.options(&queue),
    };
    let operator = options().connect(&url).await.unwrap();
    let rabbit = Rabbit::connect(&url).await;
    publish(&operator.publisher(), Message::new(GOOD_BODY).with_id("first")).await;
    publish_among_neighbours(&rabbit, &operator, &queue).await;
    let diary = Diary::new();
    let runner = Consumer::new(options().connect(&url).await.unwrap())
        .observer(diary.observer())
        .with_dead_letter_backoff([millis(50)])
        .handler(ship);
    let (leash, end) = oneshot::channel::<()>();
    let running = tokio::spawn(runner.run_until(async { end.await.unwrap_or_default() }));
    diary.ended(NEIGHBOURS + 2).await;
    leash.send(()).unwrap();
    let said = running.await.unwrap().unwrap();
    assert_eq!((said.acknowledged, said.dead_lettered), (NEIGHBOURS as u64 + 1, 1));
    for entry in diary.entries() {
        let name = entry.disposition.as_ref().map_or("on sight", redrive::Disposition::name);
        if entry.delivery.id() == LARGE {
            assert_eq!(name, "dead-letter");
            let reason = entry.disposition.as_ref().and_then(|it| it.failure()).unwrap().reason().clone();
            assert_eq!(reason, Reason::MalformedHeaders);
        } else if name != "release" {
            // The start takes one at a time on a quorum queue: one that comes before it takes more is given back.
            assert_eq!(name, "ack");
        }
    }
    let shelved = found("it is on the shelf", async || {
        let shelved = operator.shelves().browse(Shelf::DeadLetter, None, 10).await.unwrap().entries;
        (!shelved.is_empty()).then_some(shelved)
    })
    .await;
    assert_eq!((shelved.len(), shelved[0].message.id()), (1, Some(LARGE)));
    assert_eq!(shelved[0].message.body()[..], *GOOD_BODY);
    // By the broker, hence whole: a copy would have the rest only.
    assert_eq!(shelved[0].history.reason, None);
    assert_eq!(redrive::rabbitmq::DeathHistory::read(shelved[0].message.headers()).count_in(&queue), 1);
    clean_up(&rabbit, &queue).await;
}

/// Nobody vouches for the dead-lettering of queues that others declared.
async fn headers_that_fill_a_frame_stay_in_hand_where_the_broker_cannot_shelve_them(on: Combination) {
    let url = broker(on.version).url;
    let queue = on.unique("stays-in-hand");
    let operator = on.options(&queue).connect(&url).await.unwrap();
    let mut needs = redrive::transport::Needs::none();
    needs.waits = [millis(50)].into();
    let operator = Started::open(operator, &needs).await.unwrap();
    operator.pause().await.unwrap();
    let rabbit = Rabbit::connect(&url).await;
    publish_among_neighbours(&rabbit, &operator, &queue).await;
    let diary = Diary::new();
    let verified = on.options(&queue).topology(Topology::Verify).delivery_limit(20);
    let runner = Consumer::new(verified.connect(&url).await.unwrap())
        .concurrency(4)
        .grace(millis(100))
        .observer(diary.observer())
        .with_dead_letter_backoff([millis(50)])
        .handler(ship);
    let (leash, end) = oneshot::channel::<()>();
    let running = tokio::spawn(runner.run_until(async { end.await.unwrap_or_default() }));
    diary.ended(NEIGHBOURS).await;
    leash.send(()).unwrap();
    let said = running.await.unwrap().unwrap();
    assert_eq!((said.acknowledged, said.dead_lettered), (NEIGHBOURS as u64, 0));
    until_ready(&rabbit, &queue, 1).await;
    clean_up(&rabbit, &queue).await;
}

/// Publishes a message that is refused among neighbours that are not; gives back what was said.
async fn refused_among(
    transport: &RabbitMq,
    message: Message,
    neighbours: impl Future<Output = Vec<Result<(), TransportError>>>,
) -> TransportError {
    let (refused, neighbours) = tokio::join!(transport.publish(message), neighbours);
    for neighbour in neighbours {
        neighbour.expect("a neighbour is stored");
    }
    refused.expect_err("it cannot be carried")
}

fn says_all(error: &TransportError, parts: &[&str]) {
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` is not in: {error}");
    }
}

/// Waits until this many messages are ready, and no more: what a broker says of its queues may be a moment old.
async fn until_ready(rabbit: &Rabbit, queue: &str, messages: u32) {
    let what = format!("{messages} messages are ready");
    eventually(&what, async || rabbit.ready(queue).await == Some(messages)).await;
}

async fn clean_up(rabbit: &Rabbit, queue: &str) {
    let ends = ["", "--dead-letters", "--parking-lot", "--retry-50ms"];
    rabbit.delete(ends.map(|end| format!("{queue}{end}"))).await;
}
