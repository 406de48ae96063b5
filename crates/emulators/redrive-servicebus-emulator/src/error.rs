use std::io;

#[cfg(feature = "tls")]
use redrive_emulator_host::IdentityError;
use redrive_emulator_host::{ListenError, StoreError};

use crate::broker::SetupError;

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

impl From<ListenError> for StartError {
    fn from(ListenError { address, source }: ListenError) -> Self {
        Self::Listen { address, source }
    }
}

#[cfg(feature = "tls")]
impl From<IdentityError> for StartError {
    fn from(error: IdentityError) -> Self {
        Self::Tls(error.into())
    }
}
