//! What is shown to the namespace at every entity: shared access signatures, and what an identity gives.
//! The format of signatures: <https://learn.microsoft.com/rest/api/eventhub/generate-sas-token>.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::credential::Credential;
use crate::error::WireError;

/// How long a token that is signed here can be used.
pub(crate) const LIFETIME: Duration = Duration::from_secs(20 * 60);

/// What `$cbs` calls a shared access signature.
const SAS: &str = "servicebus.windows.net:sastoken";

/// What `encodeURIComponent` leaves as it is.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

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
            Credential::Entra(credential) => crate::entra::token(&**credential, now).await,
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
