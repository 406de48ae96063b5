//! TLS, as on Azure's port 5671. Only the server presents a certificate.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::error::IdentityError;

/// A connection within TLS.
pub(super) type Stream = tokio_rustls::server::TlsStream<TcpStream>;

/// The emulator's certificate and key.
#[derive(Debug, Clone)]
pub(crate) struct Identity(Arc<ServerConfig>);

impl Identity {
    /// Creates it from PEM texts: the certificate, those that sign it, and the key.
    pub(crate) fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let certificates = CertificateDer::pem_slice_iter(certificates)
            .collect::<Result<Vec<_>, _>>()
            .map_err(IdentityError::Certificates)?;
        if certificates.is_empty() {
            return Err(IdentityError::NoCertificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(IdentityError::Key)?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(certificates, key)?;
        Ok(Self(Arc::new(config)))
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await
    }
}
