//! AMQP in a WebSocket, as Service Bus offers it on the port that is open everywhere.
//! The format: <https://docs.oasis-open.org/amqp-bindmap/amqp-wsb/v1.0/amqp-wsb-v1.0.html>.

use fe2o3_amqp_ws::WebSocketStream;
use fe2o3_amqp_ws::native::TokioWebSocketStream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::connection::address::Address;
use crate::error::WireError;

/// Where Service Bus takes them.
const PATH: &str = "/$servicebus/websocket";

/// A WebSocket on a stream that stands.
pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    address: &Address,
    stream: S,
) -> Result<WebSocketStream<TokioWebSocketStream<S>>, WireError> {
    // The name says nothing about the stream: TLS is on it already.
    let scheme = if address.development_emulator { "ws" } else { "wss" };
    let url = format!("{scheme}://{}{PATH}", authority(address));
    let opened = WebSocketStream::connect_with_stream(&url, stream).await;
    opened.map_err(|error| address.unreachable(&format!("no WebSocket at {PATH}: {error}")))
}

fn authority(address: &Address) -> String {
    let (host, port) = address.target();
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
