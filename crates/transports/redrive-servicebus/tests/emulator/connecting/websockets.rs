//! Tests of AMQP in WebSockets, with and without TLS.

use redrive_contract::eventually;
use redrive_core::{BoxError, Transport as _, TransportErrorKind};
use redrive_servicebus::{ServiceBus, TransportType};
use redrive_servicebus_emulator::{Emulator, Settings};

use super::secured::{KEY, QUEUE, Secured, a_message_goes_round, opened};

#[tokio::test]
async fn messages_go_round_in_websockets_on_tls() -> Result<(), BoxError> {
    let secured = Secured::named("localhost").await?;
    let options = secured.options().transport(TransportType::AmqpWebSockets);
    let transport = opened(options.connect(&secured.connection_string()).await?).await?;
    // Larger than one AMQP frame, and than one read or write.
    a_message_goes_round(&transport, &"0123456789abcdef".repeat(64 * 1024)).await?;
    assert!(secured.emulator.entity(QUEUE)?.messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_connection_string_can_ask_for_them() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).websockets().start().await?;
    let asked = format!("{};TransportType=AmqpWebSockets", emulator.connection_string());
    let transport = opened(ServiceBus::connect(&asked, QUEUE).await?).await?;
    a_message_goes_round(&transport, "in a WebSocket").await?;
    // The connection is lost, and made again.
    emulator.drop_connections();
    eventually("the loss is noticed", async || transport.interruptions() > 0).await;
    a_message_goes_round(&transport, "in another WebSocket").await?;
    transport.close().await;
    Ok(())
}

#[tokio::test]
async fn who_speaks_no_websockets_is_told_apart() -> Result<(), BoxError> {
    // The server at this port speaks only AMQP.
    let emulator = Emulator::builder().key("app", KEY).queue(QUEUE, Settings::default()).start().await?;
    let options = ServiceBus::options(QUEUE).transport(TransportType::AmqpWebSockets);
    let error = options.connect(&emulator.connection_string()).await.expect_err("it speaks none");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    let said = error.to_string();
    assert!(said.contains("no WebSocket at /$servicebus/websocket"), "{said}");
    assert!(!said.contains(KEY), "{said}");
    Ok(())
}

#[tokio::test]
async fn an_option_goes_before_the_connection_string() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let asked = format!("{};TransportType=AmqpWebSockets", emulator.connection_string());
    let options = ServiceBus::options(QUEUE).transport(TransportType::AmqpTcp);
    a_message_goes_round(&opened(options.connect(&asked).await?).await?, "on plain TCP").await
}
