//! amqprs.

use amqprs::channel::{
    BasicAckArguments, BasicConsumeArguments, BasicGetArguments, BasicNackArguments, BasicPublishArguments,
    BasicQosArguments, BasicRejectArguments, Channel, ExchangeDeclareArguments, QueueBindArguments,
    QueueDeclareArguments, QueuePurgeArguments,
};
use amqprs::connection::{Connection, OpenConnectionArguments};
use amqprs::{BasicProperties, FieldTable, FieldValue, GetOk};
use anyhow::{Context as _, Result};
use redrive_clients::everywhere;
use redrive_clients::rabbitmq::Scene;
use std::time::{Duration, Instant};

everywhere!(
    amqprs_publishes_and_gets,
    amqprs_consumes_with_a_prefetch,
    amqprs_rejects_into_a_dead_letter_queue,
    amqprs_expires_into_a_dead_letter_queue,
    amqprs_returns_what_it_nacks,
    amqprs_routes_by_direct_keys,
    amqprs_purges_a_queue,
    amqprs_commits_a_transaction,
    amqprs_dies_by_the_delivery_limit,
);

/// How long something that must happen may take on a slow machine.
const LONGEST: Duration = Duration::from_secs(60);

/// A connection must outlive its channels.
async fn connect(scene: &Scene) -> Result<(Connection, Channel)> {
    let rest = scene.url().split_once('@').context("no user in the URL")?.1;
    let (host, port) =
        rest.split('/').next().and_then(|host| host.split_once(':')).context("no port in the URL")?;
    let arguments = OpenConnectionArguments::new(host, port.parse()?, "guest", "guest");
    let connection = Connection::open(&arguments).await?;
    let channel = connection.open_channel(None).await?;
    Ok((connection, channel))
}

async fn declare<const N: usize>(
    channel: &Channel,
    queue: &str,
    arguments: [(&str, FieldValue); N],
) -> Result<()> {
    let mut table = FieldTable::new();
    for (name, value) in arguments {
        table.insert(name.try_into().map_err(|_| anyhow::anyhow!("{name} is too long"))?, value);
    }
    channel
        .queue_declare(QueueDeclareArguments::durable_client_named(queue).arguments(table).finish())
        .await?;
    Ok(())
}

fn text(value: &str) -> FieldValue {
    FieldValue::S(value.try_into().expect("short"))
}

async fn publish(channel: &Channel, exchange: &str, key: &str, body: &[u8]) -> Result<()> {
    let arguments = BasicPublishArguments::new(exchange, key);
    Ok(channel.basic_publish(BasicProperties::default(), body.to_vec(), arguments).await?)
}

/// The next message, which must come.
async fn got(channel: &Channel, queue: &str) -> Result<(GetOk, BasicProperties, Vec<u8>)> {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        if let Some(message) = channel.basic_get(BasicGetArguments::new(queue)).await? {
            return Ok(message);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("no message in {queue} within {LONGEST:?}")
}

fn reason(properties: &BasicProperties) -> Option<String> {
    let headers = properties.headers()?;
    match headers.get(&"x-first-death-reason".try_into().ok()?)? {
        FieldValue::S(reason) => Some(reason.to_string()),
        _ => None,
    }
}

async fn amqprs_publishes_and_gets(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    let mut headers = FieldTable::new();
    headers.insert("own".try_into().expect("short"), FieldValue::I(7));
    let properties = BasicProperties::default()
        .with_message_id("id")
        .with_headers(headers)
        .with_persistence(true)
        .finish();
    channel.basic_publish(properties, b"body".to_vec(), BasicPublishArguments::new("", &work)).await?;
    let (get, properties, body) = got(&channel, &work).await?;
    assert_eq!((body.as_slice(), get.redelivered(), get.message_count()), (b"body".as_slice(), false, 0));
    assert_eq!(properties.message_id().map(String::as_str), Some("id"));
    assert_eq!(
        properties.headers().and_then(|headers| headers.get(&"own".try_into().ok()?)),
        Some(&FieldValue::I(7))
    );
    channel.basic_ack(BasicAckArguments::new(get.delivery_tag(), false)).await?;
    connection.close().await?;
    Ok(vec![work])
}

async fn amqprs_consumes_with_a_prefetch(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    channel.basic_qos(BasicQosArguments::new(0, 2, false)).await?;
    let (_, mut messages) = channel.basic_consume_rx(BasicConsumeArguments::new(&work, "c")).await?;
    for body in [b"1", b"2", b"3"] {
        publish(&channel, "", &work, body).await?;
    }
    for expected in [b"1", b"2", b"3"] {
        let message = tokio::time::timeout(LONGEST, messages.recv()).await?.context("the consumer ended")?;
        assert_eq!(message.content.as_deref(), Some(expected.as_slice()));
        let tag = message.deliver.context("no delivery")?.delivery_tag();
        channel.basic_ack(BasicAckArguments::new(tag, false)).await?;
    }
    connection.close().await?;
    Ok(vec![work])
}

async fn amqprs_rejects_into_a_dead_letter_queue(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let (work, dead) = (scene.name("work"), scene.name("dead"));
    declare(&channel, &dead, []).await?;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead))];
    declare(&channel, &work, to_dead).await?;
    publish(&channel, "", &work, b"bad").await?;
    let (get, ..) = got(&channel, &work).await?;
    channel.basic_reject(BasicRejectArguments::new(get.delivery_tag(), false)).await?;
    let (_, properties, body) = got(&channel, &dead).await?;
    assert_eq!((body.as_slice(), reason(&properties).as_deref()), (b"bad".as_slice(), Some("rejected")));
    connection.close().await?;
    Ok(vec![work, dead])
}

async fn amqprs_expires_into_a_dead_letter_queue(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let (work, dead) = (scene.name("work"), scene.name("dead"));
    declare(&channel, &dead, []).await?;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(&dead))];
    declare(&channel, &work, to_dead).await?;
    let properties = BasicProperties::default().with_expiration("300").finish();
    channel.basic_publish(properties, b"short".to_vec(), BasicPublishArguments::new("", &work)).await?;
    // It is there before time passes.
    channel.queue_declare(QueueDeclareArguments::new(&work).passive(true).finish()).await?;
    scene.pass(Duration::from_millis(300)).await;
    let (_, properties, _) = got(&channel, &dead).await?;
    assert_eq!((properties.expiration(), reason(&properties).as_deref()), (None, Some("expired")));
    connection.close().await?;
    Ok(vec![work, dead])
}

async fn amqprs_returns_what_it_nacks(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    for body in [b"1", b"2"] {
        publish(&channel, "", &work, body).await?;
    }
    got(&channel, &work).await?;
    let (second, ..) = got(&channel, &work).await?;
    channel.basic_nack(BasicNackArguments::new(second.delivery_tag(), true, true)).await?;
    for expected in [b"1", b"2"] {
        let (get, _, body) = got(&channel, &work).await?;
        assert_eq!((body.as_slice(), get.redelivered()), (expected.as_slice(), true));
    }
    channel.basic_recover(true).await?;
    assert!(got(&channel, &work).await?.0.redelivered());
    connection.close().await?;
    Ok(vec![work])
}

async fn amqprs_routes_by_direct_keys(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let (exchange, one, two) = (scene.name("exchange"), scene.name("one"), scene.name("two"));
    channel
        .exchange_declare(ExchangeDeclareArguments::new(&exchange, "direct").durable(true).finish())
        .await?;
    for (queue, key) in [(&one, "red"), (&two, "blue")] {
        declare(&channel, queue, []).await?;
        channel.queue_bind(QueueBindArguments::new(queue, &exchange, key)).await?;
    }
    publish(&channel, &exchange, "blue", b"b").await?;
    publish(&channel, &exchange, "red", b"r").await?;
    publish(&channel, &exchange, "green", b"g").await?;
    assert_eq!((got(&channel, &one).await?.2, got(&channel, &two).await?.2), (b"r".to_vec(), b"b".to_vec()));
    assert!(channel.basic_get(BasicGetArguments::new(&one)).await?.is_none());
    connection.close().await?;
    Ok(vec![exchange, one, two])
}

async fn amqprs_purges_a_queue(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    for _ in 0..3 {
        publish(&channel, "", &work, b"x").await?;
    }
    assert_eq!(channel.queue_purge(QueuePurgeArguments::new(&work)).await?, Some(3));
    connection.close().await?;
    Ok(vec![work])
}

async fn amqprs_commits_a_transaction(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let work = scene.name("work");
    declare(&channel, &work, []).await?;
    channel.tx_select().await?;
    publish(&channel, "", &work, b"never").await?;
    channel.tx_rollback().await?;
    publish(&channel, "", &work, b"kept").await?;
    channel.tx_commit().await?;
    assert_eq!(got(&channel, &work).await?.2, b"kept");
    connection.close().await?;
    Ok(vec![work])
}

async fn amqprs_dies_by_the_delivery_limit(scene: &Scene) -> Result<Vec<String>> {
    let (connection, channel) = connect(scene).await?;
    let (work, dead) = (scene.name("work"), scene.name("dead"));
    declare(&channel, &dead, []).await?;
    let arguments = [
        ("x-queue-type", text("quorum")),
        ("x-delivery-limit", FieldValue::I(1)),
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&dead)),
    ];
    declare(&channel, &work, arguments).await?;
    publish(&channel, "", &work, b"poison").await?;
    for _ in 0..2 {
        let (get, ..) = got(&channel, &work).await?;
        channel.basic_reject(BasicRejectArguments::new(get.delivery_tag(), true)).await?;
    }
    assert_eq!(reason(&got(&channel, &dead).await?.1).as_deref(), Some("delivery_limit"));
    connection.close().await?;
    Ok(vec![work, dead])
}
