//! Tokens of Microsoft Entra ID.

use std::time::{Duration, SystemTime};

use azure_core::credentials::TokenCredential;
use tokio::time::timeout;

use crate::error::{Refusal, WireError};
use crate::token::Token;

/// What a token of an identity is for: any namespace, as far as its roles go.
const SCOPE: &str = "https://servicebus.azure.net/.default";
/// What `$cbs` calls such a token.
const JWT: &str = "jwt";
/// How long an identity may take to give a token.
const WAIT: Duration = Duration::from_secs(30);

/// Asks an identity for a token.
pub(crate) async fn token(credential: &dyn TokenCredential, now: SystemTime) -> Result<Token, WireError> {
    let asked = timeout(WAIT, credential.get_token(&[SCOPE], None)).await;
    let given = asked
        .map_err(|_| none(&format!("it did not answer within {WAIT:?}")))?
        .map_err(|error| none(&error.to_string()))?;
    let expires = SystemTime::from(given.expires_on);
    Ok(Token { text: given.token.secret().to_owned(), kind: JWT, renew_at: Some(renew_at(now, expires)) })
}

/// When half of the time is over that is left. An identity may give the same token again until shortly before it expires:
/// then it is asked after half of what is left then, and so on.
fn renew_at(now: SystemTime, expires: SystemTime) -> SystemTime {
    now + expires.duration_since(now).unwrap_or_default() / 2
}

fn none(why: &str) -> WireError {
    WireError::new(Refusal::NoToken, format!("the identity gave no token for `{SCOPE}`: {why}"))
}
