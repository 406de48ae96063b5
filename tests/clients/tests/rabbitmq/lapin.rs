//! lapin.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use lapin::message::Delivery;
use lapin::options::*;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ExchangeKind};
use redrive_clients::everywhere;
use redrive_clients::rabbitmq::Scene;
use std::time::{Duration, Instant};

everywhere!(
    publishes_consumes_and_acks,
    hears_returns_before_confirms,
    is_nacked_by_a_full_queue,
    sees_every_death_in_a_retry_cycle,
    counts_deliveries_of_a_quorum_queue,
    is_refused_with_code_and_text,
    commits_and_rolls_back,
    ends_its_consumer_when_the_queue_is_deleted,
    finds_what_it_held_after_a_cut,
    waits_for_the_delayed_retry_of_4_3,
    routes_dead_letters_by_their_key,
);

/// How long something that must happen may take on a slow machine.
const LONGEST: Duration = Duration::from_secs(60);

async fn connect(scene: &Scene) -> Result<Connection> {
    Ok(Connection::connect(scene.url(), ConnectionProperties::default()).await?)
}

fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}

fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

async fn declare<const N: usize>(
    channel: &Channel,
    queue: &str,
    arguments: [(&str, AMQPValue); N],
) -> lapin::Result<()> {
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), options, table(arguments)).await.map(drop)
}

/// Publishes with a confirm, if the channel has them.
async fn publish(channel: &Channel, queue: &str, body: &[u8]) -> Result<Confirmation> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    Ok(channel
        .basic_publish("".into(), queue.into(), options, body, BasicProperties::default())
        .await?
        .await?)
}

/// The next message, which must come.
async fn got(channel: &Channel, queue: &str) -> Result<Delivery> {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        if let Some(message) = channel.basic_get(queue.into(), BasicGetOptions::default()).await? {
            return Ok(message.delivery);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("no message in {queue} within {LONGEST:?}")
}

async fn count(channel: &Channel, queue: &str) -> Result<u32> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    Ok(channel.queue_declare(queue.into(), options, FieldTable::default()).await?.message_count())
}

/// Queue, reason and count of each entry of `x-death`.
fn deaths(delivery: &Delivery) -> Vec<(String, String, i64)> {
    let headers = delivery.properties.headers().as_ref();
    let Some(AMQPValue::FieldArray(entries)) = headers.and_then(|headers| headers.inner().get("x-death"))
    else {
        return Vec::new();
    };
    let entry = |value: &AMQPValue| {
        let AMQPValue::FieldTable(entry) = value else { panic!("not a table: {value:?}") };
        let word = |name| match &entry.inner()[name] {
            AMQPValue::LongString(word) => word.to_string(),
            other => panic!("{name} is {other:?}"),
        };
        let AMQPValue::LongLongInt(count) = entry.inner()["count"] else { panic!("count is no `l`") };
        (word("queue"), word("reason"), count)
    };
    entries.as_slice().iter().map(entry).collect()
}

async fn publishes_consumes_and_acks(scene: &Scene) -> Result<Vec<String>> {
    let connection = connect(scene).await?;
    let channel = connection.create_channel().await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    for body in [b"1", b"2", b"3"] {
        assert!(matches!(publish(&channel, &work, body).await?, Confirmation::Ack(None)));
    }
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(work.as_str().into(), "c".into(), options, FieldTable::default()).await?;
    for expected in [b"1", b"2", b"3"] {
        let delivery = consumer.next().await.context("the consumer ended")??;
        assert_eq!((delivery.data.as_slice(), delivery.redelivered), (expected.as_slice(), false));
        delivery.ack(BasicAckOptions::default()).await?;
    }
    channel.basic_cancel("c".into(), BasicCancelOptions::default()).await?;
    assert_eq!(count(&channel, &work).await?, 0);
    Ok(vec![work])
}

async fn hears_returns_before_confirms(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let Confirmation::Ack(Some(returned)) = publish(&channel, &scene.name("nowhere"), b"lost").await? else {
        panic!("nothing was returned")
    };
    assert_eq!((returned.reply_code, returned.reply_text.as_str()), (312, "NO_ROUTE"));
    assert_eq!(returned.data, b"lost");
    Ok(Vec::new())
}

async fn is_nacked_by_a_full_queue(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let work = scene.name("work");
    declare(
        &channel,
        &work,
        [("x-max-length", AMQPValue::LongInt(1)), ("x-overflow", text("reject-publish"))],
    )
    .await?;
    assert!(matches!(publish(&channel, &work, b"fits").await?, Confirmation::Ack(None)));
    assert!(matches!(publish(&channel, &work, b"too much").await?, Confirmation::Nack(_)));
    assert_eq!(count(&channel, &work).await?, 1);
    Ok(vec![work])
}

async fn sees_every_death_in_a_retry_cycle(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (work, delay) = (scene.name("work"), scene.name("delay"));
    let to = |queue: &str| [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(queue))];
    let [exchange, key] = to(&work);
    declare(&channel, &delay, [("x-message-ttl", AMQPValue::LongInt(250)), exchange, key]).await?;
    declare(&channel, &work, to(&delay)).await?;
    publish(&channel, &work, b"again").await?;
    for round in 0..4 {
        let delivery = got(&channel, &work).await?;
        let expected =
            [(delay.clone(), "expired".to_owned(), round), (work.clone(), "rejected".to_owned(), round)];
        assert_eq!(deaths(&delivery), if round == 0 { &[] } else { expected.as_slice() });
        delivery.nack(BasicNackOptions::default()).await?;
        // A round trip: it was rejected before time passes.
        count(&channel, &delay).await?;
        scene.pass(Duration::from_millis(250)).await;
    }
    Ok(vec![work, delay])
}

async fn counts_deliveries_of_a_quorum_queue(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let work = scene.name("work");
    declare(&channel, &work, [("x-queue-type", text("quorum"))]).await?;
    publish(&channel, &work, b"x").await?;
    let mut counts = Vec::new();
    for requeue_by_nack in [true, false, true] {
        let delivery = got(&channel, &work).await?;
        let headers = delivery.properties.headers().clone().unwrap_or_default();
        counts.push(match headers.inner().get("x-delivery-count") {
            Some(AMQPValue::LongLongInt(count)) => Some(*count),
            None => None,
            other => panic!("x-delivery-count is {other:?}"),
        });
        if requeue_by_nack {
            delivery.nack(BasicNackOptions { requeue: true, ..BasicNackOptions::default() }).await?;
        } else {
            delivery.reject(BasicRejectOptions { requeue: true }).await?;
        }
    }
    // 4.3 does not count `basic.nack`, and shows no zero.
    let expected = if scene.is_new() { [None, None, Some(1)] } else { [Some(0), Some(1), Some(2)] };
    assert_eq!(counts, expected);
    Ok(vec![work])
}

async fn is_refused_with_code_and_text(scene: &Scene) -> Result<Vec<String>> {
    let connection = connect(scene).await?;
    let work = scene.name("work");
    declare(&connection.create_channel().await?, &work, []).await?;
    let channel = connection.create_channel().await?;
    let error =
        declare(&channel, &work, [("x-message-ttl", AMQPValue::LongInt(1))]).await.unwrap_err().to_string();
    assert!(error.contains("PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue"), "{error}");
    let channel = connection.create_channel().await?;
    let quorum = [("x-queue-type", text("quorum")), ("x-max-priority", AMQPValue::LongInt(3))];
    let refused = declare(&channel, &scene.name("quorum"), quorum).await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue")
    );
    let channel = connection.create_channel().await?;
    let error =
        channel.basic_get(scene.name("missing").into(), BasicGetOptions::default()).await.unwrap_err();
    assert!(error.to_string().contains("NOT_FOUND - no queue"), "{error}");
    // Other channels live on.
    assert_eq!(count(&connection.create_channel().await?, &work).await?, 0);
    Ok(vec![work, scene.name("quorum")])
}

async fn commits_and_rolls_back(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    channel.tx_select().await?;
    publish(&channel, &work, b"never").await?;
    channel.tx_rollback().await?;
    publish(&channel, &work, b"kept").await?;
    assert_eq!(count(&channel, &work).await?, 0);
    channel.tx_commit().await?;
    let delivery = got(&channel, &work).await?;
    assert_eq!(delivery.data, b"kept");
    delivery.ack(BasicAckOptions::default()).await?;
    channel.tx_rollback().await?;
    channel.close(200, "done".into()).await?;
    Ok(vec![work])
}

async fn ends_its_consumer_when_the_queue_is_deleted(scene: &Scene) -> Result<Vec<String>> {
    let connection = connect(scene).await?;
    let channel = connection.create_channel().await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(work.as_str().into(), "c".into(), options, FieldTable::default()).await?;
    connection
        .create_channel()
        .await?
        .queue_delete(work.as_str().into(), QueueDeleteOptions::default())
        .await?;
    assert!(tokio::time::timeout(LONGEST, consumer.next()).await?.is_none());
    assert!(channel.status().connected());
    Ok(vec![work])
}

async fn finds_what_it_held_after_a_cut(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    publish(&channel, &work, b"held").await?;
    got(&channel, &work).await?;
    scene.cut();
    let again = connect(scene).await?.create_channel().await?;
    let delivery = got(&again, &work).await?;
    assert_eq!((delivery.data.as_slice(), delivery.redelivered), (b"held".as_slice(), true));
    Ok(vec![work])
}

async fn waits_for_the_delayed_retry_of_4_3(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let work = scene.name("work");
    const WAIT: Duration = Duration::from_millis(400);
    let min = ("x-delayed-retry-min", AMQPValue::LongInt(400));
    declare(
        &channel,
        &work,
        [("x-queue-type", text("quorum")), ("x-delayed-retry-type", text("failed")), min],
    )
    .await?;
    publish(&channel, &work, b"x").await?;
    let delivery = got(&channel, &work).await?;
    let began = Instant::now();
    delivery.reject(BasicRejectOptions { requeue: true }).await?;
    if scene.is_new() {
        let early = count(&channel, &work).await?;
        assert!(early == 0 || began.elapsed() >= WAIT, "after {:?}", began.elapsed());
        let early = channel.basic_get(work.as_str().into(), BasicGetOptions::default()).await?;
        if early.is_some() {
            // On a busy machine the get may be that late.
            assert!(began.elapsed() >= WAIT, "after {:?}", began.elapsed());
            return Ok(vec![work]);
        }
        scene.pass(WAIT).await;
    }
    // 3.10 takes the arguments and knows nothing of them.
    assert!(got(&channel, &work).await?.redelivered);
    Ok(vec![work])
}

async fn routes_dead_letters_by_their_key(scene: &Scene) -> Result<Vec<String>> {
    let channel = connect(scene).await?.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (work, one, two, dlx) = (scene.name("work"), scene.name("one"), scene.name("two"), scene.name("dlx"));
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel
        .exchange_declare(dlx.as_str().into(), ExchangeKind::Topic, options, FieldTable::default())
        .await?;
    for (queue, pattern) in [(&one, "*.work"), (&two, "#")] {
        declare(&channel, queue, []).await?;
        let options = QueueBindOptions::default();
        let arguments = FieldTable::default();
        channel
            .queue_bind(queue.as_str().into(), dlx.as_str().into(), pattern.into(), options, arguments)
            .await?;
    }
    let key = ("x-dead-letter-routing-key", text("failed.work"));
    declare(&channel, &work, [("x-dead-letter-exchange", text(&dlx)), key]).await?;
    publish(&channel, &work, b"x").await?;
    got(&channel, &work).await?.reject(BasicRejectOptions::default()).await?;
    for queue in [&one, &two] {
        let delivery = got(&channel, queue).await?;
        assert_eq!(
            (delivery.routing_key.as_str(), delivery.exchange.as_str()),
            ("failed.work", dlx.as_str())
        );
        assert_eq!(deaths(&delivery), [(work.clone(), "rejected".to_owned(), 1)]);
    }
    Ok(vec![work, one, two, dlx])
}
