//! Gives scenes to scenarios in other languages.
//!
//! Each scenario opens a connection of its own. It sends a request as one line of JSON, and is answered by one:
//! `{"do": "pass", "milliseconds": 500}`, `{}`.

use crate::scene::{On, Scene};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
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
    pub(crate) async fn open(on: On) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the scenarios")?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A failed scenario closes the connection at any point.
                    let _ = serve(on, connection).await;
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

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
enum Request {
    Start,
    Pass {
        milliseconds: u64,
    },
    Cut,
    /// Deletes what was declared under these names.
    Close {
        names: Vec<String>,
    },
}

async fn serve(on: On, mut connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let (reading, mut writing) = connection.split();
    let mut lines = BufReader::new(reading).lines();
    let mut scene = None;
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => answer(on, &mut scene, request).await,
            Err(error) => Err(error.into()),
        };
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        writing.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(on: On, scene: &mut Option<Scene>, request: Request) -> Result<Value> {
    if let Request::Start = request {
        let scene = scene.insert(Scene::open(on).await?);
        return Ok(json!({ "url": scene.url(), "prefix": scene.prefix(), "version": on.version().number() }));
    }
    if let Request::Close { names } = &request {
        scene.take().context("there is no scene")?.close(names).await?;
        return Ok(json!({}));
    }
    let scene = scene.as_ref().context("there is no scene")?;
    match request {
        Request::Pass { milliseconds } => scene.pass(Duration::from_millis(milliseconds)).await,
        Request::Cut => scene.cut(),
        Request::Start | Request::Close { .. } => {}
    }
    Ok(json!({}))
}
