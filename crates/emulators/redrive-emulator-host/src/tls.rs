//! TLS. Only the server presents a certificate.

use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

/// A connection within TLS.
pub type TlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// The emulator's certificate and key.
#[derive(Debug, Clone)]
pub struct Identity(Arc<ServerConfig>);

/// Why a certificate or its key cannot be used. Reveals nothing of their content.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The certificates are no PEM.
    #[error("the certificates cannot be read as PEM: {0}")]
    Certificates(rustls::pki_types::pem::Error),
    /// The PEM text has no certificate.
    #[error("there is no certificate in the PEM text")]
    NoCertificate,
    /// The key is no PEM.
    #[error("the private key cannot be read as PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    /// rustls refuses them.
    #[error("certificate and key cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

impl Identity {
    /// Creates it from PEM texts: the certificate, those that sign it, and the key.
    ///
    /// # Errors
    /// If the texts are no PEM, or certificate and key do not fit.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
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

    /// Accepts a client.
    ///
    /// # Errors
    /// If the handshake fails.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream> {
        TlsAcceptor::from(Arc::clone(&self.0)).accept(stream).await
    }
}
