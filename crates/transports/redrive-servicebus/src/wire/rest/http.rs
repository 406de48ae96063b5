//! The HTTP client: hyper, with the TLS configuration and certificates of AMQP. The client library's own one would add a second
//! TLS library and other certificates. It also opens a connection for each request, drops headers that are not ASCII, and cannot
//! read a response with more than a hundred headers, although Service Bus allows a message to have more.

use std::time::Duration;

use async_trait::async_trait;
use azure_core_rest::error::{Error, ErrorKind};
use azure_core_rest::headers::{HeaderName, HeaderValue, Headers};
use azure_core_rest::{Body, BytesStream, HttpClient, Request, Response, Result, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

use crate::address::Address;
use crate::error::{Refusal, WireError};
use crate::wire::tls;

/// The longest time that connecting may take.
const CONNECT_WAIT: Duration = Duration::from_secs(30);
/// The time after which an idle connection is closed. Every server keeps it longer: a request on a connection that the server has
/// just closed would fail.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a response, in bytes: 64 KiB of properties, which are longer when encoded.
const MAX_HEAD: usize = 1 << 20;
const MAX_HEADERS: usize = 2000;

/// Separates the name of a header from its number if it was there before. No name contains it.
pub(super) const REPEATED: char = ' ';

#[derive(Debug)]
pub(super) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

impl Http {
    pub(super) fn new(address: &Address) -> std::result::Result<Self, WireError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_WAIT));
        let config = if address.development_emulator {
            plain()?
        } else {
            (*tls::config(address.ca_certificates.as_deref())?).clone()
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(POOL_IDLE_TIMEOUT);
        builder.http1_max_headers(MAX_HEADERS).http1_max_buf_size(MAX_HEAD);
        Ok(Self(builder.build(connector)))
    }
}

#[async_trait]
impl HttpClient for Http {
    async fn execute_request(&self, request: &Request) -> Result<Response> {
        let mut builder =
            hyper::Request::builder().method(request.method().as_ref()).uri(request.url().as_str());
        for (name, value) in request.headers().iter() {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let body = match request.body() {
            Body::Bytes(bytes) => bytes.clone(),
            Body::SeekableStream(_) => {
                return Err(Error::message(ErrorKind::Other, "only bodies in memory can be sent"));
            }
        };
        let request =
            builder.body(Full::new(body)).map_err(|error| Error::new(ErrorKind::DataConversion, error))?;
        let answer = self.0.request(request).await.map_err(|error| Error::new(ErrorKind::Io, error))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| Error::new(ErrorKind::Io, error))?.to_bytes();
        let mut headers = Headers::new();
        for name in head.headers.keys() {
            for (number, value) in head.headers.get_all(name).iter().enumerate() {
                // The library's headers have each name once. A property of the message may have the name of a header of HTTP.
                let name = if number == 0 { name.to_string() } else { format!("{name}{REPEATED}{number}") };
                headers.insert(HeaderName::from(name), HeaderValue::from(text(value.as_bytes())));
            }
        }
        let status = StatusCode::try_from(head.status.as_u16())
            .map_err(|error| Error::message(ErrorKind::DataConversion, error.to_string()))?;
        Ok(Response::new(status, headers, Box::pin(BytesStream::new(body))))
    }
}

/// Reads a header value as UTF-8, or else as Latin-1, the original charset of HTTP headers.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}

/// Returns a TLS configuration for an emulator, which does not use it.
fn plain() -> std::result::Result<ClientConfig, WireError> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| WireError::new(Refusal::Other, format!("TLS cannot be set up: {error}")))?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
