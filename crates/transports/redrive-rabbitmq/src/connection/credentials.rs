//! Provides user and password, or a token: for passwords that rotate and tokens that expire.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use redrive_core::BoxError;

/// User and password, or a token, for the broker. `Debug` leaves the secret out.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) secret: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// Creates credentials from a user and the password.
    #[must_use]
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), secret: password.into(), valid_for: None }
    }

    /// Creates credentials from a token for the broker's OAuth 2 plugin. The token names the user.
    #[must_use]
    pub fn token(token: impl Into<String>) -> Self {
        Self::password("", token)
    }

    /// Sets how long the credentials are valid from now. After three quarters of that time the provider is asked again, and the
    /// new secret is sent to the broker on the existing connection.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    /// Returns when to ask the provider again.
    pub(crate) fn renewed_after(&self) -> Option<Duration> {
        const MIN_INTERVAL: Duration = Duration::from_millis(500);
        self.valid_for.map(|time| (time - time / 4).max(MIN_INTERVAL))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .field("valid_for", &self.valid_for)
            .finish_non_exhaustive()
    }
}

/// Provides credentials. An async closure is a provider:
///
/// ```no_run
/// # async fn token_of_the_day() -> Result<String, redrive_core::BoxError> { Ok(String::new()) }
/// # async fn connect() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use redrive_rabbitmq::{Credentials, RabbitMq};
///
/// let transport = RabbitMq::options("orders")
///     .credentials(|| async {
///         Ok(Credentials::token(token_of_the_day().await?).valid_for(Duration::from_secs(600)))
///     })
///     .connect("amqps://broker.example")
///     .await?;
/// # Ok(()) }
/// ```
#[async_trait]
pub trait CredentialsProvider: Send + Sync + 'static {
    /// Returns the current credentials. Called before each connection (there are two, three if they are
    /// [shared](crate::Connections), and new ones after each interruption), before the current credentials expire, and when the
    /// broker denies access. Dropped after the time of [`connect_timeout`](crate::Options::connect_timeout).
    ///
    /// # Errors
    ///
    /// Any. A new connection is then not made, and tried again later; an existing one stays, and the provider is asked again
    /// soon. The error's text is logged: it must not contain a secret.
    async fn credentials(&self) -> Result<Credentials, BoxError>;
}

#[async_trait]
impl<F, Fut> CredentialsProvider for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Credentials, BoxError>> + Send,
{
    async fn credentials(&self) -> Result<Credentials, BoxError> {
        self().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_not_shown() {
        let credentials = Credentials::password("alice", "s3cret").valid_for(Duration::from_secs(8));
        let shown = format!("{credentials:?}");
        assert!(shown.contains("alice") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn they_are_renewed_before_they_expire() {
        let renewed = |credentials: Credentials| credentials.renewed_after();
        assert_eq!(renewed(Credentials::token("t")), None);
        assert_eq!(
            renewed(Credentials::token("t").valid_for(Duration::from_secs(8))),
            Some(Duration::from_secs(6))
        );
        assert_eq!(
            renewed(Credentials::token("t").valid_for(Duration::ZERO)),
            Some(Duration::from_millis(500))
        );
        assert!(renewed(Credentials::token("t").valid_for(Duration::MAX)).is_some());
    }
}
