//! Messages that the client library cannot read, or dies of. RabbitMQ takes them all the same, from clients in other
//! languages; redrive makes them readable on their way to the library.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable};
use redrive::Message;
use redrive_brokers::broker;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::forger::Forger;
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::worker_log::Log;
use redrive_system_tests::{Combination, fate, on_both_versions};

on_both_versions!(
    900;
    text_that_is_not_utf_8_is_handled_like_any_other,
    headers_nested_deeper_than_anybody_needs_are_handled,
);

/// Only tells a hang from an answer.
const PATIENCE: Duration = Duration::from_secs(200);
const ID: &str = "m-0";
/// Latin-1 for "Grüße".
const LATIN_1: [u8; 5] = [0x47, 0x72, 0xfc, 0xdf, 0x65];
/// What redrive makes of it.
const READABLE: &str = "Gr??e";
/// The library alone reads 156 levels in a debug build, and 1151 in a release build; the last is what fits a frame.
const DEPTHS: [usize; 4] = [63, 65, 2000, 20_000];

async fn text_that_is_not_utf_8_is_handled_like_any_other(on: Combination) {
    let scene = Scene::set(on, "latin-1").await;
    // Of the same length as the forged ones, where an id is expected and where a header name is.
    let mut headers = FieldTable::default();
    headers.insert("GRUSS".into(), AMQPValue::LongString("from Latin-1".into()));
    let properties = BasicProperties::default()
        .with_headers(headers)
        .with_message_id("GRUSS".into())
        .with_delivery_mode(2);
    scene.publish(properties, b"GRUSS".to_vec(), LATIN_1.to_vec()).await;
    let operator = on.options(&scene.queue).connect(&scene.url).await.unwrap();
    operator.publish(Message::new("an order").with_id(ID)).await.unwrap();
    let mut fleet = scene.fleet();
    fleet.start();
    let ended = |log: &Log, id: &str| log.records.get(id).is_some_and(|it| it.acked + it.shelved > 0);
    let deadline = Instant::now() + PATIENCE;
    fleet.until(deadline, "both are handled", |log| ended(log, ID) && ended(log, READABLE)).await;
    fleet.stop().await;
    scene.end().await;
}

async fn headers_nested_deeper_than_anybody_needs_are_handled(on: Combination) {
    let scene = Scene::set(on, "nested").await;
    assert!(fate::end(ID).is_none());
    let mut fleet = scene.fleet();
    fleet.start();
    for (sent, depth) in DEPTHS.into_iter().enumerate() {
        let (text, nested) = (flat(depth), nested(depth));
        let mut headers = FieldTable::default();
        headers.insert("nested".into(), AMQPValue::LongString(text[5..].to_vec().into()));
        let properties =
            BasicProperties::default().with_headers(headers).with_message_id(ID.into()).with_delivery_mode(2);
        scene.publish(properties, text, nested).await;
        let deadline = Instant::now() + PATIENCE;
        let handled =
            |log: &Log| log.records.get(ID).is_some_and(|it| (it.acked + it.shelved) as usize > sent);
        fleet.until(deadline, "the nested message is handled", handled).await;
    }
    fleet.stop().await;
    scene.end().await;
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
        fleet.until(Instant::now() + PATIENCE, "a worker starts", |log| log.started > 0).await;
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
