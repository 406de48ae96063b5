//! AMQP over WebSockets, as on Azure's port 443, for networks that block everything else: each binary message is a piece of the
//! byte stream, cut anywhere.

use std::future::ready;
use std::io;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use redrive_emulator_host::{Door, Halves};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

/// Path at which clients of Service Bus open a WebSocket.
const PATH: &str = "/$servicebus/websocket";
/// The subprotocol of AMQP: the registered name, and the one that Microsoft's clients use.
const SUBPROTOCOLS: [&str; 2] = ["amqp", "AMQPWSB10"];
const SUBPROTOCOL_HEADER: &str = "Sec-WebSocket-Protocol";

/// Accepts the client's request for a WebSocket.
// As for `agree`, which the closure calls.
#[expect(clippy::result_large_err)]
pub(super) async fn accept<S>(stream: S, door: Option<&Door>) -> io::Result<Halves>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let socket = accept_hdr_async(stream, |request: &Request, response| agree(request, response, door))
        .await
        .map_err(io::Error::other)?;
    let (sink, stream) = socket.split();
    let reading = StreamReader::new(stream.filter_map(|message| ready(bytes(message))));
    let messages =
        sink.sink_map_err(io::Error::other).with(|bytes| ready(io::Result::Ok(Message::Binary(bytes))));
    Ok((Box::new(reading), Box::new(SinkWriter::new(CopyToBytes::new(messages)))))
}

/// Returns the bytes of a message of AMQP. The library answers WebSocket's own messages.
fn bytes(message: Result<Message, tokio_tungstenite::tungstenite::Error>) -> Option<io::Result<Bytes>> {
    match message {
        Ok(Message::Binary(bytes)) => Some(Ok(bytes)),
        Ok(Message::Text(_)) => {
            Some(Err(io::Error::new(io::ErrorKind::InvalidData, "AMQP is in binary messages; this is text")))
        }
        Ok(_) => None,
        Err(error) => Some(Err(io::Error::other(error))),
    }
}

// The library's trait requires the large error by value.
#[expect(clippy::result_large_err)]
fn agree(request: &Request, mut response: Response, door: Option<&Door>) -> Result<Response, ErrorResponse> {
    let headers = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    if let Some(Err(reason)) = door.map(|door| door.check(headers)) {
        return Err(refusal(StatusCode::FORBIDDEN, reason));
    }
    if request.uri().path().trim_end_matches('/') != PATH {
        return Err(refusal(StatusCode::NOT_FOUND, format!("There is a WebSocket at {PATH} only.")));
    }
    let Some(name) = subprotocol(request) else {
        let text = "Ask for the subprotocol `amqp` or `AMQPWSB10`.".to_owned();
        return Err(refusal(StatusCode::BAD_REQUEST, text));
    };
    response.headers_mut().insert(SUBPROTOCOL_HEADER, HeaderValue::from_static(name));
    Ok(response)
}

/// Returns the first requested subprotocol that is AMQP.
fn subprotocol(request: &Request) -> Option<&'static str> {
    let asked = request.headers().get_all(SUBPROTOCOL_HEADER).into_iter();
    let mut names = asked.filter_map(|value| value.to_str().ok()).flat_map(|names| names.split(','));
    names.find_map(|asked| SUBPROTOCOLS.into_iter().find(|known| known.eq_ignore_ascii_case(asked.trim())))
}

fn refusal(status: StatusCode, text: String) -> ErrorResponse {
    let mut refusal = ErrorResponse::new(Some(text));
    *refusal.status_mut() = status;
    refusal
}
