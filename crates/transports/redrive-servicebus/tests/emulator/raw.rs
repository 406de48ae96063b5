//! Another client than redrive.

use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::{Connection, Sendable, Sender, Session};
use fe2o3_amqp_types::messaging::Body;
use fe2o3_amqp_types::primitives::Value;
use redrive_core::BoxError;
use redrive_servicebus_emulator::Emulator;
use tokio::net::TcpStream;

/// Sends a message on a connection of its own.
pub(crate) async fn send(
    emulator: &Emulator,
    queue: &str,
    message: impl Into<Sendable<Body<Value>>>,
) -> Result<(), BoxError> {
    let stream = TcpStream::connect(emulator.address()).await?;
    let connection = Connection::builder().container_id("raw").hostname("localhost").scheme("amqp");
    let connection = connection.sasl_profile(SaslProfile::Anonymous);
    let mut connection = connection.open_with_stream(stream).await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut sender = Sender::attach(&mut session, "sender", queue).await?;
    sender.send(message.into()).await?.accepted_or_else(|outcome| format!("not stored: {outcome:?}"))?;
    connection.close().await?;
    Ok(())
}
