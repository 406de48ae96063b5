//! AMQP in a WebSocket, on the port of HTTPS.
//! The format: <https://docs.oasis-open.org/amqp-bindmap/amqp-wsb/v1.0/amqp-wsb-v1.0.html>.

use fe2o3_amqp_ws::WebSocketStream;
use fe2o3_amqp_ws::native::TokioWebSocketStream;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Address;
use crate::error::WireError;

/// The path of the WebSocket endpoint of Service Bus.
const PATH: &str = "/$servicebus/websocket";

/// Opens a WebSocket on a connected stream.
pub(super) async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    address: &Address,
    stream: S,
) -> Result<WebSocketStream<TokioWebSocketStream<S>>, WireError> {
    // The scheme only appears in the request: the stream already has TLS.
    let scheme = if address.development_emulator { "ws" } else { "wss" };
    let url = format!("{scheme}://{}{PATH}", authority(address));
    let opened = WebSocketStream::connect_with_stream(&url, stream).await;
    opened.map_err(|error| address.unreachable(&format!("no WebSocket at {PATH}: {error}")))
}

fn authority(address: &Address) -> String {
    let (host, port) = address.target();
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
