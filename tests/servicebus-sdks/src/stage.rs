//! Starts an emulator for a scenario, advances its clock and injects faults, as the scenario requests.
//!
//! A scenario holds one connection, and has one emulator, which ends with it. Each request is a line of JSON and is answered
//! by one: `{"do": "advance", "seconds": 31}`, `{}`.

use anyhow::{Context as _, Result, ensure};
use redrive_servicebus_emulator::config::Config;
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Step};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// The file with the certificate of an emulator that takes TLS.
const CERTIFICATE: &str = "certificate.pem";

/// Listens for scenarios until it is dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Stage {
    pub(crate) async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the scenarios")?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A failed scenario closes the connection at any point.
                    let _ = serve(connection).await;
                });
            }
        });
        Ok(Self { address, listening })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let (reading, mut writing) = connection.split();
    let mut lines = BufReader::new(reading).lines();
    let mut running = None;
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => answer(&mut running, request).await,
            Err(error) => Err(error.into()),
        };
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        writing.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request {
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
struct Start {
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
struct Running {
    emulator: Emulator,
    directory: TempDir,
}

async fn answer(running: &mut Option<Running>, request: Request) -> Result<Value> {
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
