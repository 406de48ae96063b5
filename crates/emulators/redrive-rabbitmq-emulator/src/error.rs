use std::io;

#[cfg(feature = "tls")]
use redrive_emulator_host::IdentityError;
use redrive_emulator_host::{ListenError, StoreError};
use thiserror::Error;

/// Why an emulator did not start, or did not take definitions.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct StartError(#[from] Reason);

#[derive(Debug, Error)]
enum Reason {
    #[error(transparent)]
    Listen(#[from] ListenError),
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

impl StartError {
    pub(crate) fn definitions(what: String) -> Self {
        Self(Reason::Definitions(what))
    }

    pub(crate) fn thread(source: io::Error) -> Self {
        Self(Reason::Thread(source))
    }
}

impl From<ListenError> for StartError {
    fn from(error: ListenError) -> Self {
        Self(Reason::Listen(error))
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
