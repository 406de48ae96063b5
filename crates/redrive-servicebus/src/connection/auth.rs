//! Credentials, and the tokens made from them: shared access signatures, and tokens of Microsoft Entra ID.
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

/// How long a token that is signed here can be used.
pub(crate) const LIFETIME: Duration = Duration::from_secs(20 * 60);

/// What `$cbs` calls a shared access signature.
const SAS: &str = "servicebus.windows.net:sastoken";

/// What `encodeURIComponent` leaves as it is.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// What proves the right to use the namespace.
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

/// Shows no secret, and nothing that an identity would print of itself.
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

/// A token, as it is put to the node `$cbs`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    /// As `$cbs` names it.
    pub(crate) kind: &'static str,
    /// When a new one must be put; `None`: it cannot be renewed here.
    pub(crate) renew_at: Option<SystemTime>,
}

impl Token {
    /// The token for `audience`, a URI such as `sb://host/orders`, put at `now`. Waits only for identities.
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

    /// As HTTP has it in the header `Authorization`.
    #[cfg(feature = "rest")]
    pub(crate) fn for_http(self) -> String {
        if self.kind == SAS { self.text } else { format!("Bearer {}", self.text) }
    }

    fn signed(key_name: &str, key: &str, audience: &str, now: SystemTime) -> Self {
        Self {
            text: sign(audience, key_name, key, now + LIFETIME),
            kind: SAS,
            // Early enough for several tries.
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

    /// The scope of an identity's token: any namespace that its roles allow.
    const SCOPE: &str = "https://servicebus.azure.net/.default";
    /// What `$cbs` calls such a token.
    const JWT: &str = "jwt";
    /// How long an identity may take to give a token.
    const IDENTITY_WAIT: Duration = Duration::from_secs(30);

    /// Asks an identity for a token.
    pub(super) async fn token(credential: &dyn TokenCredential, now: SystemTime) -> Result<Token, WireError> {
        let asked = timeout(IDENTITY_WAIT, credential.get_token(&[SCOPE], None)).await;
        let given = asked
            .map_err(|_| no_token(&format!("it did not answer within {IDENTITY_WAIT:?}")))?
            .map_err(|error| no_token(&redrive_core::redact(&error.to_string())))?;
        let expires = SystemTime::from(given.expires_on);
        Ok(Token { text: given.token.secret().to_owned(), kind: JWT, renew_at: Some(renew_at(now, expires)) })
    }

    /// After half of the remaining lifetime. An identity may give the same token again until shortly before it expires: each
    /// renewal then halves what is left.
    fn renew_at(now: SystemTime, expires: SystemTime) -> SystemTime {
        now + expires.duration_since(now).unwrap_or_default() / 2
    }

    fn no_token(why: &str) -> WireError {
        WireError::new(Refusal::NoToken, format!("the identity gave no token for `{SCOPE}`: {why}"))
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
