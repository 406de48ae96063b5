//! Puts the tokens of a connection, and renews them before they expire.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use fe2o3_amqp_types::primitives::{OrderedMap, SimpleValue};
use serde_amqp::Value;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::own_session::Sessions;
use super::requests::Requests;
use super::waits::{OPEN_WAIT, no_answer};
use crate::address::Address;
use crate::auth::Token;
use crate::error::WireError;

/// The wait before the next attempt after a token could not be put.
const RETRY_WAIT: Duration = Duration::from_secs(15);
/// The shortest sleep between two checks for tokens to renew.
const MIN_SLEEP: Duration = Duration::from_secs(1);
/// The longest sleep between two checks: tokens may have expired while the machine was suspended.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The tokens that were put on a connection.
pub(super) struct Tokens {
    address: Arc<Address>,
    sessions: Sessions,
    cbs: Mutex<Arc<Requests>>,
    /// The audiences that have a token, and the time when each needs a new one.
    renewals: Mutex<HashMap<String, Option<SystemTime>>>,
    /// Held while the first token of an audience is put: concurrent callers would put the same. Audiences that have one do not wait.
    first: Mutex<()>,
    /// Wakes the renewal task when another audience has a token.
    added: Arc<Notify>,
}

impl Tokens {
    /// Starts to put and renew tokens, until the connection ends or this is dropped.
    pub(super) fn start(
        address: Arc<Address>,
        sessions: Sessions,
        cbs: Requests,
        ended: watch::Receiver<bool>,
    ) -> Arc<Self> {
        let added = Arc::new(Notify::new());
        let cbs = Mutex::new(Arc::new(cbs));
        let tokens = Self {
            address,
            sessions,
            cbs,
            renewals: Mutex::default(),
            first: Mutex::default(),
            added: Arc::clone(&added),
        };
        let tokens = Arc::new(tokens);
        tokio::spawn(keep(Arc::downgrade(&tokens), added, ended));
        tokens
    }

    /// Puts a token for an entity, unless it has one.
    pub(super) async fn authorize(&self, path: &str) -> Result<(), WireError> {
        let audience = self.audience(path);
        if self.has_one(&audience).await {
            return Ok(());
        }
        let _first = self.first.lock().await;
        if !self.has_one(&audience).await {
            let renew_at = self.put(&audience).await?;
            self.renewals.lock().await.insert(audience, renew_at);
            self.added.notify_one();
        }
        Ok(())
    }

    /// Forgets the token of an entity that was refused: the next use of the entity puts a fresh one.
    pub(super) async fn forget(&self, path: &str) {
        self.renewals.lock().await.remove(&self.audience(path));
    }

    async fn has_one(&self, audience: &str) -> bool {
        self.renewals.lock().await.contains_key(audience)
    }

    fn audience(&self, path: &str) -> String {
        let entity = path.split("/$").next().unwrap_or(path);
        format!("sb://{}/{entity}", self.address.host)
    }

    async fn put(&self, audience: &str) -> Result<Option<SystemTime>, WireError> {
        let token = Token::for_audience(&self.address.credential, audience, SystemTime::now()).await?;
        let mut properties = OrderedMap::new();
        for (name, value) in [("operation", "put-token"), ("type", token.kind), ("name", audience)] {
            properties.insert(name.to_owned(), SimpleValue::String(value.to_owned()));
        }
        self.cbs().await?.request(properties, Value::String(token.text), None).await?.check()?;
        Ok(token.renew_at)
    }

    /// Returns the node `$cbs`. It is attached again if its link ended: brokers end idle links.
    async fn cbs(&self) -> Result<Arc<Requests>, WireError> {
        let mut cbs = self.cbs.lock().await;
        if !cbs.is_live() {
            let session = self.sessions.begin().await?;
            let name = format!("cbs-{:016x}", fastrand::u64(..));
            let attached = timeout(OPEN_WAIT, Requests::attach(session, "$cbs", &name)).await;
            *cbs = Arc::new(attached.map_err(|_| no_answer("$cbs"))??);
        }
        Ok(Arc::clone(&cbs))
    }

    /// Returns the time until the next check for tokens to renew.
    async fn rest(&self) -> Duration {
        let now = SystemTime::now();
        let next = self.renewals.lock().await.values().flatten().min().copied();
        next.map_or(MAX_SLEEP, |at| at.duration_since(now).unwrap_or_default().clamp(MIN_SLEEP, MAX_SLEEP))
    }

    /// Puts new tokens for the audiences that need one.
    async fn renew(&self) {
        let now = SystemTime::now();
        let due: Vec<String> = {
            let renewals = self.renewals.lock().await;
            let due = renewals.iter().filter(|(_, renew_at)| renew_at.is_some_and(|at| at <= now));
            due.map(|(audience, _)| audience.clone()).collect()
        };
        for audience in due {
            let renew_at = match self.put(&audience).await {
                Ok(renew_at) => {
                    debug!(%audience, "renewed a token");
                    renew_at
                }
                // Retried later: the old token stays valid for some time.
                Err(error) => {
                    warn!(%audience, %error, "a token could not be renewed; trying again");
                    Some(SystemTime::now() + RETRY_WAIT)
                }
            };
            self.renewals.lock().await.insert(audience, renew_at);
        }
    }
}

async fn keep(tokens: Weak<Tokens>, added: Arc<Notify>, mut ended: watch::Receiver<bool>) {
    loop {
        let Some(rest) = tokens.upgrade() else { return };
        let rest = rest.rest().await;
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => return,
            () = tokio::time::sleep(rest) => {}
            () = added.notified() => continue,
        }
        let Some(tokens) = tokens.upgrade() else { return };
        tokens.renew().await;
    }
}
