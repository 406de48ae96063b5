//! Shared access keys and their rights.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::percent_decode_str;
use sha2::Sha256;

use super::address::strip_authority;
use crate::broker::Timestamp;

/// Maximum number of grants of a connection; the oldest is forgotten.
const MAX_GRANTS: usize = 1000;

/// The known keys, by name. Without any, every token is accepted.
#[derive(Default)]
pub(crate) struct Keys(Vec<(String, String)>);

/// The permission of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Grant {
    /// A path in lower case; includes everything below it.
    resource: String,
    expires: Option<Timestamp>,
}

/// The permissions of all tokens of a connection.
#[derive(Debug, Default)]
pub(crate) struct Authorised(Vec<Grant>);

/// Why a token is refused. Reveals nothing of the token itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error(
        "InvalidSignature: the token is no shared access signature. Write SharedAccessSignature sr=..&sig=..&se=..&skn=.."
    )]
    Malformed,
    #[error(
        "InvalidSignature: there is no key of that name, or the token was not signed by it. Look at the connection string."
    )]
    WrongSignature,
    #[error("ExpiredToken: the token ran out. Sign a new one.")]
    Expired,
}

impl Keys {
    pub(crate) fn new(keys: Vec<(String, String)>) -> Self {
        Self(keys)
    }

    /// Returns true if every token is accepted.
    pub(super) fn admits_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first key, for a connection string.
    pub(crate) fn first(&self) -> Option<(&str, &str)> {
        self.0.first().map(|(name, key)| (name.as_str(), key.as_str()))
    }

    /// Checks a token and returns its permission.
    pub(crate) fn check_token(&self, token: &str, now: Timestamp) -> Result<Grant, TokenError> {
        if self.0.is_empty() {
            return Ok(Grant { resource: String::new(), expires: None });
        }
        let fields = token.strip_prefix("SharedAccessSignature ").ok_or(TokenError::Malformed)?;
        let field = |name: &str| {
            fields
                .split('&')
                .find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name))
                .map(|(_, v)| v)
        };
        let (Some(resource), Some(signature), Some(expiry), Some(name)) =
            (field("sr"), field("sig"), field("se"), field("skn"))
        else {
            return Err(TokenError::Malformed);
        };
        let seconds: i64 = expiry.parse().map_err(|_| TokenError::Malformed)?;
        let signature = BASE64_STANDARD.decode(decoded(signature)?).map_err(|_| TokenError::Malformed)?;
        let key = self.key(&decoded(name)?).ok_or(TokenError::WrongSignature)?;
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key.as_bytes()).map_err(|_| TokenError::WrongSignature)?;
        mac.update(format!("{resource}\n{expiry}").as_bytes());
        mac.verify_slice(&signature).map_err(|_| TokenError::WrongSignature)?;
        let expires = Timestamp::from_millis(seconds.saturating_mul(1000));
        if expires <= now {
            return Err(TokenError::Expired);
        }
        let resource = strip_authority(&decoded(resource)?).trim_matches('/').to_lowercase();
        Ok(Grant { resource, expires: Some(expires) })
    }

    /// Checks name and key of SASL PLAIN: `\0name\0key`.
    pub(crate) fn admits_plain(&self, response: &[u8]) -> bool {
        let mut parts = response.split(|byte| *byte == 0).skip(1);
        let (name, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        self.0.is_empty() || self.0.iter().any(|(n, k)| n.as_bytes() == name && k.as_bytes() == key)
    }

    fn key(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, key)| key.as_str())
    }
}

/// Hides the keys.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Authorised {
    pub(super) fn add(&mut self, grant: Grant) {
        self.0.retain(|known| known.resource != grant.resource);
        if self.0.len() == MAX_GRANTS {
            self.0.remove(0);
        }
        self.0.push(grant);
    }

    /// Grants everything: the client gave name and key themselves.
    pub(super) fn plain(&mut self) {
        self.add(Grant { resource: String::new(), expires: None });
    }

    pub(super) fn covers(&self, path: &str, now: Timestamp) -> bool {
        let path = path.to_lowercase();
        self.0.iter().any(|grant| {
            let below = path
                .strip_prefix(&grant.resource)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || grant.resource.is_empty());
            below && grant.expires.is_none_or(|expires| expires > now)
        })
    }
}

fn decoded(text: &str) -> Result<String, TokenError> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs a token as SDKs do.
    fn token(key: &str, resource: &str, expiry: i64) -> String {
        let resource: String =
            percent_encoding::utf8_percent_encode(resource, percent_encoding::NON_ALPHANUMERIC).to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).unwrap();
        mac.update(format!("{resource}\n{expiry}").as_bytes());
        let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
        let signature = percent_encoding::utf8_percent_encode(&signature, percent_encoding::NON_ALPHANUMERIC);
        format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn=root")
    }

    #[test]
    fn a_token_allows_what_it_was_signed_for_until_it_runs_out() {
        let keys = Keys::new(vec![("root".into(), "secret".into())]);
        let now = Timestamp::from_millis(1_000_000);
        let mut authorised = Authorised::default();
        authorised.add(keys.check_token(&token("secret", "sb://localhost:5672/Orders", 2000), now).unwrap());
        assert!(authorised.covers("orders", now));
        assert!(authorised.covers("orders/$deadletterqueue", now));
        assert!(!authorised.covers("orders2", now));
        assert!(!authorised.covers("orders", Timestamp::from_millis(2_000_000)));
        authorised.add(keys.check_token(&token("secret", "sb://localhost", 2000), now).unwrap());
        assert!(authorised.covers("orders2", now));
    }

    #[test]
    fn a_token_that_is_not_good_is_refused_with_the_reason() {
        let keys = Keys::new(vec![("root".into(), "secret".into())]);
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(keys.check_token("", now), Err(TokenError::Malformed));
        assert_eq!(keys.check_token(&token("other", "sb://h/q", 2000), now), Err(TokenError::WrongSignature));
        assert_eq!(keys.check_token(&token("secret", "sb://h/q", 1000), now), Err(TokenError::Expired));
        let renamed = token("secret", "sb://h/q", 2000).replace("skn=root", "skn=Root");
        assert_eq!(keys.check_token(&renamed, now), Err(TokenError::WrongSignature));
    }

    #[test]
    fn the_name_and_the_key_may_come_by_sasl_plain() {
        let keys = Keys::new(vec![("root".into(), "secret".into())]);
        assert!(keys.admits_plain(b"\0root\0secret"));
        assert!(!keys.admits_plain(b"\0root\0other"));
        assert!(!keys.admits_plain(b""));
        assert!(Keys::default().admits_plain(b""));
    }

    #[test]
    fn no_key_is_printed() {
        assert!(!format!("{:?}", Keys::new(vec![("root".into(), "secret".into())])).contains("secret"));
    }
}
