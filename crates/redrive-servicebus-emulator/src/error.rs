use std::io;

use crate::broker::SetupError;
use crate::store::StoreError;

/// Why the emulator did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen on the address.
    #[error("cannot listen on {address}: {source}. Take another port, or 0 for one that is free.")]
    Listen {
        /// The requested address.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The queues and topics contradict each other.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The state file cannot be used.
    #[error(transparent)]
    State(#[from] StoreError),
    /// The certificate or its key cannot be used.
    #[cfg(feature = "tls")]
    #[error("TLS: {0}. Give both as PEM, as `openssl req -x509 -newkey rsa -nodes` writes them.")]
    Tls(Box<dyn std::error::Error + Send + Sync>),
    /// The system refuses another thread.
    #[error("cannot start the thread that writes the state file: {0}")]
    Thread(io::Error),
}

/// Why a certificate or its key cannot be used. Reveals nothing of their content.
#[cfg(feature = "tls")]
#[derive(Debug, thiserror::Error)]
pub(crate) enum IdentityError {
    #[error("the certificates cannot be read as PEM: {0}")]
    Certificates(rustls::pki_types::pem::Error),
    #[error("there is no certificate in the PEM text")]
    NoCertificate,
    #[error("the private key cannot be read as PEM: {0}")]
    Key(rustls::pki_types::pem::Error),
    #[error("certificate and key cannot be used: {0}")]
    Refused(#[from] rustls::Error),
}

impl StartError {
    pub(crate) fn listen((address, source): (String, io::Error)) -> Self {
        Self::Listen { address, source }
    }
}

#[cfg(feature = "tls")]
impl From<IdentityError> for StartError {
    fn from(error: IdentityError) -> Self {
        Self::Tls(error.into())
    }
}
