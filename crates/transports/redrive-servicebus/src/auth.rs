//! Credentials and their tokens: shared access signatures, and tokens of Microsoft Entra ID.
//!
//! The format of signatures: <https://learn.microsoft.com/rest/api/eventhub/generate-sas-token>.

use std::fmt;
#[cfg(feature = "entra")]
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[cfg(feature = "entra")]
use azure_core::credentials::TokenCredential;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::error::WireError;

/// The lifetime of a token that is signed here.
pub(crate) const LIFETIME: Duration = Duration::from_secs(20 * 60);

/// The name of shared access signatures at the node `$cbs`.
const SAS: &str = "servicebus.windows.net:sastoken";

/// The characters that `encodeURIComponent` escapes.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The credentials for a namespace.
#[derive(Clone)]
pub(crate) enum Credential {
    /// A shared access key, which signs tokens.
    Key {
        /// `SharedAccessKeyName`.
        name: String,
        /// `SharedAccessKey`.
        key: String,
    },
    /// A token that was signed elsewhere (`SharedAccessSignature`). It cannot be renewed here.
    Token(String),
    /// An identity of Microsoft Entra ID, which issues tokens.
    #[cfg(feature = "entra")]
    Entra(Arc<dyn TokenCredential>),
}

/// Shows no secret, and nothing of the `Debug` output of an identity.
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

/// A token for the node `$cbs`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// The name of the kind of token at the node `$cbs`.
    pub(crate) kind: &'static str,
    /// The time to put a new token, or `None` if it cannot be renewed here.
    pub(crate) renew_at: Option<SystemTime>,
}

impl Token {
    /// Returns a token for `audience`, a URI such as `sb://host/orders`, at the time `now`. It waits only for identities.
    pub(crate) async fn for_audience(
        credential: &Credential,
        audience: &str,
        now: SystemTime,
    ) -> Result<Self, WireError> {
        match credential {
            Credential::Token(text) => Ok(Self { text: text.clone(), kind: SAS, renew_at: None }),
            Credential::Key { name, key } => Ok(Self::signed(name, key, audience, now)),
            #[cfg(feature = "entra")]
            Credential::Entra(credential) => entra::token(&**credential, now).await,
        }
    }

    /// Returns the value of the HTTP header `Authorization`.
    #[cfg(feature = "rest")]
    pub(crate) fn for_http(self) -> String {
        if self.kind == SAS { self.text } else { format!("Bearer {}", self.text) }
    }

    fn signed(key_name: &str, key: &str, audience: &str, now: SystemTime) -> Self {
        Self {
            text: sign(audience, key_name, key, now + LIFETIME),
            kind: SAS,
            // Early enough for several attempts.
            renew_at: Some(now + LIFETIME / 2),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("renew_at", &self.renew_at).finish_non_exhaustive()
    }
}

#[cfg(feature = "entra")]
mod entra {
    use std::time::{Duration, SystemTime};

    use azure_core::credentials::TokenCredential;
    use tokio::time::timeout;

    use super::Token;
    use crate::error::{Refusal, WireError};

    /// The scope of an identity's token: every namespace that its roles allow.
    const SCOPE: &str = "https://servicebus.azure.net/.default";
    /// The name of such tokens at the node `$cbs`.
    const JWT: &str = "jwt";
    /// The longest time that an identity may take to issue a token.
    const IDENTITY_WAIT: Duration = Duration::from_secs(30);

    /// Requests a token from an identity.
    pub(super) async fn token(credential: &dyn TokenCredential, now: SystemTime) -> Result<Token, WireError> {
        let answer = timeout(IDENTITY_WAIT, credential.get_token(&[SCOPE], None)).await;
        let token = answer
            .map_err(|_| no_token(&format!("it did not answer within {IDENTITY_WAIT:?}")))?
            .map_err(|error| no_token(&redrive_core::redact(&error.to_string())))?;
        let expires = SystemTime::from(token.expires_on);
        Ok(Token { text: token.token.secret().to_owned(), kind: JWT, renew_at: Some(renew_at(now, expires)) })
    }

    /// Returns the time after half of the remaining lifetime. An identity may return the same token until shortly before it
    /// expires: each renewal then halves the remaining time.
    fn renew_at(now: SystemTime, expires: SystemTime) -> SystemTime {
        now + expires.duration_since(now).unwrap_or_default() / 2
    }

    fn no_token(why: &str) -> WireError {
        WireError::new(Refusal::NoToken, format!("the identity returned no token for `{SCOPE}`: {why}"))
    }
}

fn sign(audience: &str, key_name: &str, key: &str, expires: SystemTime) -> String {
    let resource = utf8_percent_encode(audience, RESERVED).to_string();
    let expiry = expires.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, format!("{resource}\n{expiry}").as_bytes()));
    let signature = utf8_percent_encode(&signature, RESERVED);
    let key_name = utf8_percent_encode(key_name, RESERVED);
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={key_name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_signed_as_microsoft_describes() {
        // Made with Python: hmac.new(b"key", b"sb%3A%2F%2Fhost%2Forders\n1000001200", "sha256").
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let token = Token::signed("Root Manage", "key", "sb://host/orders", now);
        assert_eq!(
            token.text,
            "SharedAccessSignature sr=sb%3A%2F%2Fhost%2Forders&sig=bG1CvgmJYx%2FwVdCZsSCC6MU3mZu6Iwh8N4qBSUiKTRs%3D&se=1000001200&skn=Root%20Manage"
        );
        assert_eq!(token.renew_at, Some(now + LIFETIME / 2));
    }

    #[tokio::test]
    async fn a_token_of_somebody_else_is_passed_on_as_it_is() {
        let theirs = Credential::Token("theirs".into());
        let token = Token::for_audience(&theirs, "sb://h/q", SystemTime::now()).await.expect("it is there");
        assert_eq!(token, Token { text: "theirs".into(), kind: SAS, renew_at: None });
    }

    #[test]
    fn debug_shows_no_token() {
        let token = Token { text: "c2VjcmV0".into(), kind: SAS, renew_at: None };
        assert!(!format!("{token:?}").contains("c2VjcmV0"));
    }
}
