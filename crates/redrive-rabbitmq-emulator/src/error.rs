use std::io;

use thiserror::Error;

use crate::store::StoreError;

/// Why an emulator did not start, or did not take definitions.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct StartError(#[from] Reason);

#[derive(Debug, Error)]
enum Reason {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("the definitions cannot be applied: {0}")]
    Definitions(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the thread that writes the state file cannot be started: {0}")]
    Thread(io::Error),
    #[error("the certificate for TLS: {0}")]
    #[cfg(feature = "tls")]
    Tls(#[from] IdentityError),
}

/// Why a certificate or its key cannot be used. Reveals nothing of their content.
#[cfg(feature = "tls")]
#[derive(Debug, Error)]
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
        Self(Reason::Listen { address, source })
    }

    pub(crate) fn definitions(what: String) -> Self {
        Self(Reason::Definitions(what))
    }

    pub(crate) fn thread(source: io::Error) -> Self {
        Self(Reason::Thread(source))
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self(Reason::Store(error))
    }
}

#[cfg(feature = "tls")]
impl From<IdentityError> for StartError {
    fn from(error: IdentityError) -> Self {
        Self(Reason::Tls(error))
    }
}
