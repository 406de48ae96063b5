//! The ways in: plain TCP, TLS, and WebSockets on either.

use crate::client::{Client, one, text};
use fe2o3_amqp_ws::WebSocketStream;
use redrive_servicebus_emulator::{Emulator, Settings};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, http::HeaderValue};

const PATH: &str = "ws://localhost/$servicebus/websocket";

/// An emulator that speaks all protocols, and the certificate that it shows.
async fn emulator() -> (Emulator, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let builder = Emulator::builder().queue("q", Settings::default());
    let builder = builder.tls(made.cert.pem(), made.signing_key.serialize_pem()).websockets();
    (builder.start().await.expect("the emulator starts"), made.cert.der().clone())
}

async fn tcp(emulator: &Emulator) -> TcpStream {
    TcpStream::connect(emulator.address()).await.expect("it listens")
}

async fn tls(
    emulator: &Emulator,
    certificate: CertificateDer<'static>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it is a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of TLS")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, tcp(emulator).await).await
}

async fn sends_and_receives(mut client: Client, long: &str) {
    client.send("q", &[long]).await;
    let mut receiver = client.receiver("q", 1).await;
    let delivery = one(&mut receiver).await;
    assert!(text(&delivery) == long, "{} bytes came back unchanged", long.len());
    receiver.accept(&delivery).await.expect("the link is open");
    client.connection.close().await.expect("it closes in order");
}

#[tokio::test]
async fn all_ways_lead_to_the_same_port() {
    let (emulator, certificate) = emulator().await;
    // Several frames, and several pieces of whatever carries them.
    let long = "0123456789abcdef".repeat(12 * 1024);
    sends_and_receives(Client::connect(&emulator).await, &long).await;
    let within_tls = tls(&emulator, certificate.clone()).await.expect("TLS");
    sends_and_receives(Client::connect_on(within_tls).await, &long).await;
    let socket = WebSocketStream::connect_with_stream(PATH, tcp(&emulator).await).await.expect("a WebSocket");
    sends_and_receives(Client::connect_on(socket).await, &long).await;
    let within_tls = tls(&emulator, certificate).await.expect("TLS");
    let socket = WebSocketStream::connect_with_stream(PATH, within_tls).await.expect("a WebSocket");
    sends_and_receives(Client::connect_on(socket).await, &long).await;
}

#[tokio::test]
async fn a_websocket_is_had_where_azure_has_it_and_for_amqp_only() {
    let (emulator, _) = emulator().await;
    for (url, subprotocol, status) in [
        (PATH, "mqtt", 400),
        (PATH, "", 400),
        ("ws://localhost/elsewhere", "amqp", 404),
        ("ws://localhost/$servicebus/websocket/", "x, AMQPWSB10", 101),
    ] {
        let mut request = url.into_client_request().expect("a request");
        if !subprotocol.is_empty() {
            request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(subprotocol));
        }
        let answered = match tokio_tungstenite::client_async(request, tcp(&emulator).await).await {
            Ok((_, response)) => response.status(),
            Err(Error::Http(response)) => response.status(),
            Err(other) => panic!("{url} {subprotocol}: {other}"),
        };
        assert_eq!(answered.as_u16(), status, "{url} {subprotocol}");
    }
}

#[tokio::test]
async fn a_client_that_is_still_at_the_door_does_not_hold_up_the_end() {
    let (emulator, _) = emulator().await;
    let silent = tcp(&emulator).await;
    while emulator.connections() == 0 {
        tokio::task::yield_now().await;
    }
    emulator.stop().await;
    drop(silent);
}

#[tokio::test]
async fn what_is_no_certificate_is_refused_at_the_start() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    for (certificate, key) in [
        (String::new(), made.signing_key.serialize_pem()),
        (made.cert.pem(), "no key".to_owned()),
        (made.cert.pem(), rcgen::KeyPair::generate().expect("another key").serialize_pem()),
    ] {
        let refused = Emulator::builder().tls(certificate, key).start().await.expect_err("of no use");
        assert!(refused.to_string().starts_with("TLS: "), "{refused}");
    }
}
