//! Who we are, asked for anew before each connection: for passwords that rotate and tokens that expire.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use lapin::types::LongString;
use redrive_core::BoxError;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::connection::{Backoff, Live};

/// What the broker is shown: user and password, or a token. Shows itself without the secret.
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) secret: String,
    valid_for: Option<Duration>,
}

impl Credentials {
    /// A user and the password.
    #[must_use]
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), secret: password.into(), valid_for: None }
    }

    /// A token, as the broker's OAuth 2 plugin takes it. Who we are stands in the token.
    #[must_use]
    pub fn token(token: impl Into<String>) -> Self {
        Self::password("", token)
    }

    /// The same, good for this long from now. When three quarters of that are over the provider is asked again, and the
    /// broker is shown the new secret, without a new connection.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    /// When to ask again.
    pub(crate) fn renewed_after(&self) -> Option<Duration> {
        const NOT_SOONER: Duration = Duration::from_millis(500);
        self.valid_for.map(|time| (time - time / 4).max(NOT_SOONER))
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

/// Where credentials come from. An async closure is one:
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
    /// The credentials of now. Asked before each connection (there are two, three where they are
    /// [shared](crate::Connections), and new ones after each interruption), before those given out expire, and when the broker
    /// refuses access to something. It has the time of [`connect_timeout`](crate::Options::connect_timeout), and is dropped
    /// after that.
    ///
    /// # Errors
    ///
    /// Any. The connection is then not made, and tried again; one that is there goes on, and the provider is asked again
    /// soon. The error's words go to the log: they must not contain a secret.
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

/// How often it is looked whether the connection is still there, where nothing is to be renewed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// After a renewal the provider is not asked again for this long, whatever is refused.
const AFTER_RENEWAL: Duration = Duration::from_millis(250);

/// The answer of the provider, unless it takes longer than this.
async fn asked(provider: &dyn CredentialsProvider, within: Duration) -> Result<Credentials, BoxError> {
    let answer = timeout(within, provider.credentials()).await;
    answer.unwrap_or_else(|_| {
        let within = humantime::format_duration(within);
        Err(format!("the credentials provider does not answer within {within}").into())
    })
}

/// Shows the broker new credentials before those of now expire, for as long as the connection lives; and when it refuses what
/// is asked of it: RabbitMQ 3.10 leaves a connection open whose token ran out, and refuses what is sent over it.
pub(crate) async fn keep_fresh(
    live: Weak<Live>,
    refused: Arc<Notify>,
    provider: Arc<dyn CredentialsProvider>,
    mut shown: Credentials,
    within: Duration,
    connection: String,
) {
    let mut backoff = Backoff::default();
    let mut wait = shown.renewed_after();
    loop {
        let due = tokio::select! {
            () = sleep(wait.unwrap_or(LOOK_EVERY)) => wait.is_some(),
            () = refused.notified() => true,
        };
        if !live.upgrade().is_some_and(|live| live.is_up()) {
            return;
        }
        if !due {
            continue;
        }
        let next = match asked(&*provider, within).await {
            Ok(fresh) => {
                let Some(live) = live.upgrade() else { return };
                let secret = LongString::from(fresh.secret.as_str());
                let updated = live.answered(live.connection.update_secret(secret, "renewed".into())).await;
                match updated {
                    Ok(()) => {
                        info!(%connection, "RabbitMQ took the renewed credentials");
                        backoff.reset();
                        shown = fresh;
                        // Another refusal just after is one that no new credentials mend.
                        sleep(AFTER_RENEWAL).await;
                        // Said of those before.
                        let _ = refused.notified().now_or_never();
                        shown.renewed_after().map(|wait| wait.saturating_sub(AFTER_RENEWAL))
                    }
                    Err(error) => {
                        warn!(%connection, %error, "RabbitMQ did not take the renewed credentials");
                        // Not cut short by refusals, which go on meanwhile.
                        sleep(backoff.next()).await;
                        Some(Duration::ZERO)
                    }
                }
            }
            Err(error) => {
                let again = backoff.next();
                warn!(%connection, %error, ?again, "no renewed credentials are to be had, asking again");
                sleep(again).await;
                Some(Duration::ZERO)
            }
        };
        wait = next;
        debug!(%connection, ?wait, "credentials are looked after again");
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

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_does_not_answer_is_not_waited_for() {
        struct Silent;
        #[async_trait]
        impl CredentialsProvider for Silent {
            async fn credentials(&self) -> Result<Credentials, BoxError> {
                std::future::pending().await
            }
        }
        let error = asked(&Silent, Duration::from_secs(9)).await.unwrap_err();
        assert!(error.to_string().contains("9s"), "{error}");
    }
}
