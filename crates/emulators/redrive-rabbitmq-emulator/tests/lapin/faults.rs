//! Faults, as a client notices them.

use std::time::Duration;

use lapin::Confirmation;
use redrive_rabbitmq_emulator::Emulator;
use tokio::time::timeout;

use super::{channel, connect, declare, publish, take};

async fn ready() -> (Emulator, lapin::Connection, lapin::Channel) {
    let emulator = Emulator::builder().start().await.expect("an emulator");
    let connection = connect(&emulator.url()).await;
    let channel = channel(&connection).await;
    declare(&channel, "work", &[]).await;
    (emulator, connection, channel)
}

#[tokio::test]
async fn a_cut_connection_ends_and_a_new_one_goes_on() {
    let (emulator, connection, channel) = ready().await;
    publish(&channel, "work", "x").await.expect("confirmed");
    let _held =
        channel.basic_get("work".into(), Default::default()).await.expect("an answer").expect("a message");
    emulator.cut_connections();
    publish(&channel, "work", "y").await.expect_err("the connection is gone");
    drop(connection);
    let connection = connect(&emulator.url()).await;
    let channel = super::channel(&connection).await;
    assert_eq!(take(&channel, "work", 1).await, ["x"]);
}

#[tokio::test]
async fn held_confirms_arrive_when_they_are_released() {
    let (emulator, _connection, channel) = ready().await;
    emulator.hold_confirms();
    let publishing = tokio::spawn(async move { publish(&channel, "work", "x").await });
    let vhost = emulator.default_vhost().unwrap();
    let stored = async {
        while vhost.counts("work").unwrap().ready == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), stored).await.expect("stored");
    assert!(!publishing.is_finished());
    emulator.release_confirms();
    publishing.await.expect("no panic").expect("confirmed");
}

#[tokio::test]
async fn refused_publishes_are_not_stored() {
    let (emulator, _connection, channel) = ready().await;
    emulator.refuse_confirms(1);
    assert!(matches!(publish(&channel, "work", "x").await, Ok(Confirmation::Nack(_))));
    assert!(matches!(publish(&channel, "work", "y").await, Ok(Confirmation::Ack(_))));
    assert_eq!(take(&channel, "work", 1).await, ["y"]);
}

#[tokio::test]
async fn an_emulator_that_stands_still_goes_on_where_it_was() {
    let (emulator, _connection, channel) = ready().await;
    emulator.freeze();
    let mut publishing = tokio::spawn(async move {
        publish(&channel, "work", "x").await.expect("confirmed");
        channel
    });
    timeout(Duration::from_millis(50), &mut publishing).await.expect_err("nothing moves");
    emulator.resume();
    let channel = publishing.await.expect("no panic");
    assert_eq!(take(&channel, "work", 1).await, ["x"]);
}

#[tokio::test]
async fn an_alarm_makes_publishers_wait() {
    let (emulator, _connection, channel) = ready().await;
    publish(&channel, "work", "before").await.expect("confirmed");
    emulator.raise_alarm("low on memory");
    let mut publishing = tokio::spawn(async move {
        publish(&channel, "work", "during").await.expect("confirmed");
        channel
    });
    timeout(Duration::from_millis(50), &mut publishing).await.expect_err("it is blocked");
    emulator.clear_alarm();
    let channel = publishing.await.expect("no panic");
    assert_eq!(take(&channel, "work", 2).await, ["before", "during"]);
}
