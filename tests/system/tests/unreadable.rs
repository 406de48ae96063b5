//! Messages that the client library cannot read, or dies of. RabbitMQ takes them all the same, from clients in other
//! languages. What happens then is a limit of redrive, and stands here so that it cannot get worse unnoticed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use redrive::Message;
use redrive_brokers::{broker, report};
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::forger::Forger;
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Combination, fate, on_both_versions};

on_both_versions!(
    120;
    a_message_id_that_is_not_utf_8_holds_the_queue_up_and_loses_nothing,
    headers_nested_deeper_than_anybody_needs_are_handled,
);

const ID: &str = "m-0";
/// Latin-1 for "Grüße".
const LATIN_1: [u8; 5] = [0x47, 0x72, 0xfc, 0xdf, 0x65];
/// Deeper than this, and nobody says that it is handled.
const DEEP_ENOUGH: usize = 64;

async fn a_message_id_that_is_not_utf_8_holds_the_queue_up_and_loses_nothing(on: Combination) {
    let scene = Scene::set(on, "latin-1").await;
    let properties = BasicProperties::default().with_message_id("GRUSS".into()).with_delivery_mode(2);
    scene.publish(properties, b"GRUSS".to_vec(), LATIN_1.to_vec()).await;
    let operator = on.options(&scene.queue).connect(&scene.url).await.unwrap();
    operator.publish(Message::new("an order").with_id(ID)).await.unwrap();
    let mut fleet = scene.fleet();
    fleet.start();
    let deadline = Instant::now() + Duration::from_secs(60);
    let told = |fleet: &Fleet| fleet.last_words().contains("intake interrupted");
    while !told(&fleet) {
        assert!(Instant::now() < deadline, "the worker says nothing: {}", fleet.state());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    fleet.stop().await;
    assert!(fleet.log.records.is_empty(), "better than expected: this test can go; {:?}", fleet.log.records);
    assert_eq!(Rabbit::connect(&scene.url).await.ready(&scene.queue).await, Some(2), "nothing is lost");
    report(&format!(
        "LIMIT on {on}: a message id (or header name) that is not UTF-8 ends the connection each time it is handed out, \
         and holds up its queue, until the broker takes it away at the delivery limit"
    ));
    scene.end().await;
}

async fn headers_nested_deeper_than_anybody_needs_are_handled(on: Combination) {
    let scene = Scene::set(on, "nested").await;
    assert!(fate::end(ID).is_none());
    let (mut handled, mut killed_by) = (0, None);
    // The deepest that fits a frame is 26 000.
    for depth in std::iter::successors(Some(DEEP_ENOUGH), |depth| Some(depth * 5 / 4))
        .take_while(|depth| *depth < 26_000)
    {
        let (text, nested) = (flat(depth), nested(depth));
        let mut headers = FieldTable::default();
        headers.insert("nested".into(), AMQPValue::LongString(text[5..].to_vec().into()));
        let properties =
            BasicProperties::default().with_headers(headers).with_message_id(ID.into()).with_delivery_mode(2);
        scene.publish(properties, text, nested).await;
        let mut fleet = scene.fleet();
        fleet.start();
        let deadline = Instant::now() + Duration::from_secs(20);
        if fleet
            .lives_until(deadline, "handled", |log| log.records.get(ID).is_some_and(|it| it.acked > 0))
            .await
        {
            fleet.stop().await;
            handled = depth;
        } else {
            killed_by = Some((depth, fleet.ended().await));
            break;
        }
    }
    assert!(handled >= DEEP_ENOUGH, "only {handled} deep; {killed_by:?}");
    let limit = match killed_by {
        Some((depth, status)) => format!("{depth} deep kill the process ({status})"),
        None => "so are all that fit a frame".to_owned(),
    };
    report(&format!("LIMIT on {on}: headers nested {handled} deep are handled, {limit}; {}", build()));
    scene.end().await;
}

fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug build" } else { "release build" }
}

/// As many arrays, one in the other, as an AMQP field value.
fn nested(depth: usize) -> Vec<u8> {
    let one = |level: usize| {
        let inside = u32::try_from((depth - 1 - level) * 5).unwrap().to_be_bytes();
        std::iter::once(b'A').chain(inside)
    };
    (0..depth).flat_map(one).collect()
}

/// A text of the same length, as an AMQP field value.
fn flat(depth: usize) -> Vec<u8> {
    let length = depth * 5 - 5;
    let prefix = u32::try_from(length).unwrap().to_be_bytes();
    let text = (0..length).map(|at| b"forge this, "[at % 12]);
    std::iter::once(b'S').chain(prefix).chain(text).collect()
}

struct Scene {
    on: Combination,
    url: String,
    queue: String,
}

impl Scene {
    async fn set(on: Combination, what: &str) -> Self {
        let scene = Self { on, url: broker(on.version).url, queue: on.unique(what) };
        // The first worker declares the queues.
        let mut fleet = scene.fleet();
        fleet.start();
        fleet.until(Instant::now() + Duration::from_secs(30), "a worker starts", |log| log.started > 0).await;
        fleet.stop().await;
        scene
    }

    fn fleet(&self) -> Fleet {
        Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, self.on, &self.url, &self.queue)
    }

    /// Publishes a message with these bytes changed on the way.
    async fn publish(&self, properties: BasicProperties, old: Vec<u8>, new: Vec<u8>) {
        let (_, rest) = self.url.split_once('@').expect("the URL has credentials");
        let address = rest.split('/').next().unwrap();
        let forger = Forger::start(address.parse::<SocketAddr>().unwrap(), old, new).await;
        let url = self.url.replacen(address, &forger.addr().to_string(), 1);
        Rabbit::connect(&url).await.publish(&self.queue, properties, b"an order").await.unwrap();
    }

    async fn end(&self) {
        let rungs = fate::WAITS.map(|wait| format!("{}--retry-{}ms", self.queue, wait.as_millis()));
        let shelves = ["", "--dead-letters", "--parking-lot"].map(|end| format!("{}{end}", self.queue));
        Rabbit::connect(&self.url).await.delete(rungs.into_iter().chain(shelves)).await;
    }
}
