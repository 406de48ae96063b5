//! Renews the credentials of a connection that outlives them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use lapin::types::LongString;
use redrive_core::BoxError;
use redrive_transport::ReconnectBackoff;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::credentials::{Credentials, CredentialsProvider};
use super::open::Connection;
use super::timeouts::LONGEST_BACKOFF;

/// Interval in which the task checks that the connection still exists, if nothing is to be renewed.
const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Minimum time between two renewals because of refused access.
const AFTER_RENEWAL: Duration = Duration::from_millis(250);

/// Asks the provider, with a timeout.
async fn with_timeout(provider: &dyn CredentialsProvider, within: Duration) -> Result<Credentials, BoxError> {
    let answer = timeout(within, provider.credentials()).await;
    answer.unwrap_or_else(|_| {
        let within = humantime::format_duration(within);
        Err(format!("the credentials provider does not answer within {within}").into())
    })
}

/// Sends the broker new credentials before the current ones expire, until the connection ends. Also when the broker denies access:
/// RabbitMQ 3.10 leaves a connection with an expired token open, and denies every operation on it.
pub(crate) async fn keep_fresh(
    connection: Weak<Connection>,
    refused: Arc<Notify>,
    provider: Arc<dyn CredentialsProvider>,
    shown: Credentials,
    within: Duration,
    name: String,
) {
    let mut backoff = ReconnectBackoff::up_to(LONGEST_BACKOFF);
    let mut wait = shown.renewed_after();
    loop {
        let due = tokio::select! {
            () = sleep(wait.unwrap_or(CHECK_EVERY)) => wait.is_some(),
            () = refused.notified() => true,
        };
        if !connection.upgrade().is_some_and(|connection| connection.is_up()) {
            return;
        }
        if !due {
            continue;
        }
        wait = match renew(&connection, &*provider, within).await {
            Ok(None) => return,
            Ok(Some(fresh)) => {
                info!(connection = %name, "RabbitMQ accepted the renewed credentials");
                backoff.reset();
                // New credentials do not cure a refusal that comes directly after a renewal.
                sleep(AFTER_RENEWAL).await;
                // That notification was about the previous credentials.
                let _ = refused.notified().now_or_never();
                fresh.renewed_after().map(|wait| wait.saturating_sub(AFTER_RENEWAL))
            }
            Err(error) => {
                let again = backoff.next_wait();
                warn!(connection = %name, %error, ?again, "the credentials were not renewed, trying again");
                // Not cut short by refusals, which continue meanwhile.
                sleep(again).await;
                Some(Duration::ZERO)
            }
        };
        debug!(connection = %name, ?wait, "the credentials are checked again after this wait");
    }
}

/// Asks the provider, and passes its credentials to the broker. `None` if the connection has ended meanwhile.
async fn renew(
    connection: &Weak<Connection>,
    provider: &dyn CredentialsProvider,
    within: Duration,
) -> Result<Option<Credentials>, BoxError> {
    let fresh = with_timeout(provider, within)
        .await
        .map_err(|error| format!("the credentials provider failed: {error}"))?;
    let Some(connection) = connection.upgrade() else { return Ok(None) };
    let secret = LongString::from(fresh.secret.as_str());
    let updated = connection.with_timeout(connection.lapin.update_secret(secret, "renewed".into())).await;
    updated.map_err(|error| format!("RabbitMQ did not take the renewed credentials: {error}"))?;
    Ok(Some(fresh))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_provider_that_does_not_answer_is_not_waited_for() {
        struct Silent;
        #[async_trait]
        impl CredentialsProvider for Silent {
            async fn credentials(&self) -> Result<Credentials, BoxError> {
                std::future::pending().await
            }
        }
        let error = with_timeout(&Silent, Duration::from_secs(9)).await.unwrap_err();
        assert!(error.to_string().contains("9s"), "{error}");
    }
}
