//! The emulator within a test.

use std::time::Duration;

use lapin::Confirmation;
use redrive_rabbitmq_emulator::{DropReason, Emulator, EventKind, Version};

use super::{channel, connect, declare, publish, take, text};

#[tokio::test]
async fn an_hour_long_ladder_takes_no_time() {
    for version in [Version::V3_10, Version::V4_3] {
        for kind in ["classic", "quorum"] {
            let emulator =
                Emulator::builder().version(version).virtual_clock().start().await.expect("an emulator");
            let connection = connect(&emulator.url()).await;
            let channel = channel(&connection).await;
            declare(&channel, "work", &[("x-queue-type", text(kind))]).await;
            let rung = |millis: i32| {
                [
                    ("x-queue-type", text(kind)),
                    ("x-message-ttl", lapin::types::AMQPValue::LongInt(millis)),
                    ("x-dead-letter-exchange", text("")),
                    ("x-dead-letter-routing-key", text("work")),
                ]
            };
            declare(&channel, "retry", &rung(3_600_000)).await;
            for number in 0..20 {
                publish(&channel, "retry", &number.to_string()).await.expect("confirmed");
            }
            emulator.advance(Duration::from_secs(3_599));
            let vhost = emulator.default_vhost().expect("a virtual host");
            assert_eq!((vhost.counts("retry").unwrap().ready, vhost.counts("work").unwrap().ready), (20, 0));
            emulator.advance(Duration::from_secs(1));
            let bodies = take(&channel, "work", 20).await;
            assert_eq!(bodies, (0..20).map(|number| number.to_string()).collect::<Vec<_>>());
            connection.close(200, "done".into()).await.expect("closed");
        }
    }
}

#[tokio::test]
async fn a_test_sees_what_no_client_is_told() {
    let emulator = Emulator::builder().start().await.expect("an emulator");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    declare(&channel, "work", &[("x-dead-letter-exchange", text("missing"))]).await;
    publish(&channel, "work", "x").await.expect("confirmed");
    let got =
        channel.basic_get("work".into(), Default::default()).await.expect("an answer").expect("a message");
    got.reject(Default::default()).await.expect("rejected");
    // lapin does not wait for it: a later answer on the channel does.
    channel.basic_qos(1, Default::default()).await.expect("an answer");
    let events = emulator.take_events();
    let dropped = events.iter().any(|event| {
        matches!(&event.kind, EventKind::Dropped { queue, reason: DropReason::NoDeadLetterExchange, message }
            if queue == "work" && &message.body[..] == b"x")
    });
    assert!(dropped, "{events:?}");
    assert_eq!(emulator.connections(), 1);
}

#[tokio::test]
async fn a_returned_message_is_returned_to_its_publisher() {
    let emulator = Emulator::builder().start().await.expect("an emulator");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    let Confirmation::Ack(Some(returned)) = publish(&channel, "nowhere", "x").await.expect("an answer")
    else {
        panic!("it has no route")
    };
    assert_eq!((returned.reply_code, returned.data.as_slice()), (312, &b"x"[..]));
}

#[tokio::test]
async fn large_messages_and_many_of_them_arrive() {
    let emulator = Emulator::builder().start().await.expect("an emulator");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    declare(&channel, "work", &[]).await;
    let large = "0123456789".repeat(300_000);
    for _ in 0..5 {
        publish(&channel, "work", &large).await.expect("confirmed");
    }
    assert!(take(&channel, "work", 5).await.iter().all(|body| *body == large));
}

#[tokio::test]
async fn what_is_stored_survives_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let emulator = Emulator::builder()
        .state_file(folder.path().join("state"))
        .virtual_clock()
        .start()
        .await
        .expect("an emulator");
    {
        let connection = connect(&emulator.url()).await;
        let channel = channel(&connection).await;
        declare(&channel, "work", &[("x-queue-type", text("quorum"))]).await;
        for body in ["a", "b", "c"] {
            publish(&channel, "work", body).await.expect("confirmed");
        }
        assert_eq!(take(&channel, "work", 1).await, ["a"]);
        connection.close(200, "done".into()).await.expect("closed");
        emulator.crash().await;
    }
    emulator.restart().await.expect("it starts again");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    assert_eq!(take(&channel, "work", 2).await, ["b", "c"]);
    emulator.stop().await;
    emulator.restart().await.expect("it starts again");
    assert_eq!(emulator.default_vhost().unwrap().counts("work").unwrap().ready, 0);
}

#[tokio::test]
async fn tls_is_on_the_same_port() {
    use lapin::tcp::OwnedTLSConfig;

    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let emulator = Emulator::builder().tls(certificate.clone(), key).start().await.expect("an emulator");
    let url = format!("amqps://guest:guest@localhost:{}/%2f", emulator.address().port());
    let config = OwnedTLSConfig { identity: None, cert_chain: Some(certificate) };
    let runtime = lapin::runtime::default_runtime().expect("a runtime");
    let connection = lapin::Connection::connect_with_config(&url, Default::default(), config, runtime)
        .await
        .expect("a connection");
    let channel = connection.create_channel().await.expect("a channel");
    declare(&channel, "work", &[]).await;
    connect(&emulator.url()).await.close(200, "done".into()).await.expect("plain TCP is open too");
}

#[tokio::test]
async fn with_dead_lettering_switched_off_a_rejected_message_is_gone() {
    let emulator = Emulator::builder().no_dead_lettering().start().await.expect("an emulator");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    declare(&channel, "dead", &[]).await;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text("dead"))];
    declare(&channel, "work", &to_dead).await;
    publish(&channel, "work", "x").await.expect("confirmed");
    let got = channel.basic_get("work".into(), Default::default()).await.expect("asked").expect("a message");
    let rejected = lapin::options::BasicRejectOptions { requeue: false };
    got.delivery.acker.reject(rejected).await.expect("rejected");
    // A round trip: the rejection has arrived.
    let none = channel.basic_get("work".into(), Default::default()).await.expect("asked");
    assert!(none.is_none());
    assert_eq!(emulator.default_vhost().unwrap().counts("dead").unwrap().ready, 0);
    let ignored = |event: &redrive_rabbitmq_emulator::Event| {
        matches!(event.kind, EventKind::DeadLetteringIgnored { .. })
    };
    assert!(emulator.take_events().iter().any(ignored));
}
