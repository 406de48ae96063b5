//! The stream below the protocol: TCP, or TLS on it.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::address::ConnectionString;
use crate::error::{Refusal, WireError};

/// Whatever carries bytes both ways.
pub(crate) trait Stream: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin> Stream for S {}

/// Connects; with TLS, but for the emulator.
pub(crate) async fn connect(address: &ConnectionString) -> Result<Box<dyn Stream>, WireError> {
    let (host, port) = address.target();
    let unreachable =
        |error: std::io::Error| WireError::interrupted(format!("no connection to {host}:{port}: {error}"));
    let tcp = TcpStream::connect((host, port)).await.map_err(unreachable)?;
    tcp.set_nodelay(true).map_err(unreachable)?;
    if address.development_emulator {
        return Ok(Box::new(tcp));
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        WireError::new(Refusal::Other, format!("`{host}` is no name that a certificate can have"))
    })?;
    let tls = TlsConnector::from(config()?).connect(name, tcp).await.map_err(unreachable)?;
    Ok(Box::new(tls))
}

fn config() -> Result<Arc<ClientConfig>, WireError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let said = "this machine has no root certificates: install `ca-certificates`";
        return Err(WireError::new(Refusal::Other, said));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| WireError::new(Refusal::Other, format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
