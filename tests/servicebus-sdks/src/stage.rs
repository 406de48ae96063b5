//! Starts an emulator for a scenario, moves its clock and breaks it, when the scenario says so.
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
                    // A scenario that failed hangs up in the middle.
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
    /// With the entities of a Config.json; with a key, tokens must be signed by it; stored, messages outlive a crash.
    Start {
        config: Value,
        key: Option<String>,
        #[serde(default)]
        stored: bool,
    },
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
    /// The next sends are refused: the server is busy.
    Busy {
        times: u32,
    },
    /// The next sends are done, and not answered.
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
}

/// A running emulator, and where its state is.
#[derive(Debug)]
struct Running {
    emulator: Emulator,
    _directory: Option<TempDir>,
}

async fn answer(running: &mut Option<Running>, request: Request) -> Result<Value> {
    if let Request::Start { config, key, stored } = request {
        let started = running.insert(start(&config, key, stored).await?);
        return Ok(json!({ "port": started.emulator.address().port() }));
    }
    let emulator = &running.as_ref().context("no emulator was started")?.emulator;
    match request {
        Request::Start { .. } => {}
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
    }
    Ok(json!({}))
}

async fn start(config: &Value, key: Option<String>, stored: bool) -> Result<Running> {
    let config = Config::parse(&config.to_string())?;
    ensure!(config.unknown_keys.is_empty(), "the configuration does not know {:?}", config.unknown_keys);
    let mut builder = Emulator::builder().namespace(config.namespace);
    if let Some(key) = key {
        builder = builder.key("RootManageSharedAccessKey", key);
    }
    let directory = if stored { Some(TempDir::new()?) } else { None };
    if let Some(directory) = &directory {
        builder = builder.state_file(directory.path().join("state"));
    }
    Ok(Running { emulator: builder.start().await?, _directory: directory })
}
