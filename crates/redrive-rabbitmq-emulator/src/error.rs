use std::fmt::Display;
use std::io;

use thiserror::Error;

/// Why an emulator did not start.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct StartError(#[from] Reason);

#[derive(Debug, Error)]
pub(crate) enum Reason {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("the certificate for TLS: {0}")]
    #[cfg(feature = "tls")]
    Tls(#[from] crate::server::tls::IdentityError),
}

impl StartError {
    pub(crate) fn listen(address: &dyn Display, source: io::Error) -> Self {
        Self(Reason::Listen { address: address.to_string(), source })
    }
}
