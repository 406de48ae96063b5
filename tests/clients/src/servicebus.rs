//! An emulator of Service Bus for one scenario: advances its clock and injects faults, as the scenario requests.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use redrive_servicebus_emulator::config::Config;
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Step};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stage::Broker;

/// The file with the certificate of an emulator that takes TLS.
const CERTIFICATE: &str = "certificate.pem";

/// The emulator, one for each scenario.
#[derive(Debug, Clone, Copy)]
pub struct ServiceBus;

impl fmt::Display for ServiceBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service Bus emulator")
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
    /// With the entities of a Config.json.
    Start(Start),
    Advance {
        seconds: u64,
    },
    ExpireLocks {
        entity: String,
    },
    ExpireSession {
        entity: String,
        session: String,
    },
    DropConnections,
    Detach {
        entity: String,
    },
    /// Refuses the next sends: the server is busy.
    Busy {
        times: u32,
    },
    /// Carries out the next sends without a reply.
    LoseReplies {
        times: u32,
    },
    RefuseTokens {
        times: u32,
    },
    /// Crash, and start again on the same port with what was stored.
    Restart,
    /// How many messages an entity has.
    Count {
        entity: String,
    },
    /// How many receivers wait there.
    Waiting {
        entity: String,
    },
}

#[derive(Debug, Deserialize)]
pub struct Start {
    config: Value,
    /// Requires tokens that are signed by this key.
    key: Option<String>,
    /// Keeps messages over a crash.
    #[serde(default)]
    stored: bool,
    /// Detaches links that are idle for this many seconds.
    idle_links: Option<u64>,
    /// Accepts TLS too: the answer has the path of the certificate to trust.
    #[serde(default)]
    tls: bool,
    /// Accepts AMQP over WebSockets too.
    #[serde(default)]
    websockets: bool,
}

/// A running emulator, and where its state is.
#[derive(Debug)]
pub struct Running {
    emulator: Emulator,
    directory: TempDir,
}

impl Broker for ServiceBus {
    type Scene = Running;
    type Request = Request;

    async fn answer(&self, running: &mut Option<Running>, request: Request) -> Result<Value> {
        if let Request::Start(plan) = request {
            let started = running.insert(start(plan).await?);
            let certificate = started.directory.path().join(CERTIFICATE);
            return Ok(json!({ "port": started.emulator.address().port(), "certificate": certificate }));
        }
        let emulator = &running.as_ref().context("no emulator was started")?.emulator;
        match request {
            Request::Start(_) => {}
            Request::Advance { seconds } => emulator.advance(Duration::from_secs(seconds)),
            Request::ExpireLocks { entity } => {
                return Ok(json!({ "count": emulator.entity(&entity)?.expire_locks() }));
            }
            Request::ExpireSession { entity, session } => {
                emulator.entity(&entity)?.expire_session_lock(&session)?;
            }
            Request::DropConnections => emulator.drop_connections(),
            Request::Detach { entity } => emulator.detach(&entity),
            Request::Busy { times } => {
                emulator.inject(Fault::new(Step::Send, Effect::server_busy()).times(times));
            }
            Request::LoseReplies { times } => {
                emulator.inject(Fault::new(Step::Send, Effect::LoseReply).times(times));
            }
            Request::RefuseTokens { times } => {
                emulator.inject(Fault::new(Step::Cbs, Effect::unauthorized()).times(times));
            }
            Request::Restart => emulator.restart().await?,
            Request::Count { entity } => {
                return Ok(json!({ "count": emulator.entity(&entity)?.messages().len() }));
            }
            Request::Waiting { entity } => {
                return Ok(json!({ "count": emulator.entity(&entity)?.waiting() }));
            }
        }
        Ok(json!({}))
    }
}

async fn start(plan: Start) -> Result<Running> {
    let config = Config::parse(&plan.config.to_string())?;
    ensure!(config.unknown_keys.is_empty(), "the configuration does not know {:?}", config.unknown_keys);
    let directory = TempDir::new()?;
    let mut builder = Emulator::builder().namespace(config.namespace);
    if let Some(key) = plan.key {
        builder = builder.key("RootManageSharedAccessKey", key);
    }
    if plan.stored {
        builder = builder.state_file(directory.path().join("state"));
    }
    if let Some(seconds) = plan.idle_links {
        builder = builder.detach_idle_links(Duration::from_secs(seconds));
    }
    if plan.tls {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        std::fs::write(directory.path().join(CERTIFICATE), made.cert.pem())?;
        builder = builder.tls(made.cert.pem(), made.signing_key.serialize_pem());
    }
    if plan.websockets {
        builder = builder.websockets();
    }
    Ok(Running { emulator: builder.start().await?, directory })
}
