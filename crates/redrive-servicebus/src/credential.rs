//! What stands for the right to use a namespace.

use std::fmt;
#[cfg(feature = "entra")]
use std::sync::Arc;

#[cfg(feature = "entra")]
use azure_core::credentials::TokenCredential;

/// What stands for the right to use the namespace.
#[derive(Clone)]
pub(crate) enum Credential {
    /// A shared access key: tokens are signed with it.
    Key {
        /// `SharedAccessKeyName`.
        name: String,
        /// `SharedAccessKey`.
        key: String,
    },
    /// A token that somebody else signed: `SharedAccessSignature`. It cannot be renewed here.
    Token(String),
    /// An identity of Microsoft Entra ID, which is asked for tokens.
    #[cfg(feature = "entra")]
    Entra(Arc<dyn TokenCredential>),
}

/// Shows no secret, and nothing of what an identity would say of itself.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { name, .. } => f.debug_struct("Key").field("name", name).finish_non_exhaustive(),
            Self::Token(_) => f.write_str("Token(..)"),
            #[cfg(feature = "entra")]
            Self::Entra(_) => f.write_str("Entra(..)"),
        }
    }
}
