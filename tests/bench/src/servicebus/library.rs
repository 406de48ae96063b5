//! An experiment: a consumer that is written by hand on the client library. It settles each delivery by itself, and hears no outcome.

use anyhow::Result;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::{Connection, Receiver, Session};
use fe2o3_amqp_types::messaging::Body;
use fe2o3_amqp_types::primitives::Value;
use tokio::net::TcpStream;

use crate::contestant::Tally;

pub(super) async fn consume(address: &str, queue: &str, prefetch: u32, tally: &Tally) -> Result<()> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::builder()
        .container_id("library")
        .hostname("localhost")
        .scheme("amqp")
        .sasl_profile(SaslProfile::Anonymous)
        .open_with_stream(stream)
        .await?;
    let mut session =
        Session::builder().incoming_window(5000).outgoing_window(5000).begin(&mut connection).await?;
    let mut receiver = Receiver::builder()
        .name("library")
        .source(queue)
        .credit_mode(CreditMode::Manual)
        .verify_incoming_source(false)
        .verify_incoming_target(false)
        .attach(&mut session)
        .await?;
    receiver.set_credit(prefetch).await?;
    let mut since = 0;
    while !tally.is_settled() {
        let delivery = receiver.recv::<Body<Value>>().await?;
        let (info, message) = delivery.into_parts();
        let Body::Data(data) = &message.body else { anyhow::bail!("the body is no data") };
        tally.handle(&data.iter().flat_map(|part| part.0.iter().copied()).collect::<Vec<u8>>());
        receiver.accept(info).await?;
        tally.settled(1);
        since += 1;
        if since > prefetch / 8 {
            since = 0;
            receiver.set_credit(prefetch).await?;
        }
    }
    receiver.close().await?;
    Ok(())
}
