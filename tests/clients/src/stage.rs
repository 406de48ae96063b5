//! Answers the requests of scenarios in other languages.
//!
//! Each scenario opens a connection of its own. It sends a request as one line of JSON, and is answered by one:
//! `{"do": "advance", "seconds": 31}`, `{}`. What it started ends with its connection.

use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What scenarios run on; displayed in the report.
pub trait Broker: Display + Copy + Send + Sync + 'static {
    /// What one scenario has of it.
    type Scene: Send;
    /// What a scenario can ask.
    type Request: DeserializeOwned + Send;

    /// Answers a request of the scenario that has `scene`.
    fn answer(
        &self,
        scene: &mut Option<Self::Scene>,
        request: Self::Request,
    ) -> impl Future<Output = Result<Value>> + Send;
}

/// Listens for scenarios until it is dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Stage {
    pub(crate) async fn open(broker: impl Broker) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port for the scenarios")?;
        let address = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(async move {
                    // A failed scenario closes the connection at any point.
                    let _ = serve(broker, connection).await;
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

async fn serve<B: Broker>(broker: B, mut connection: TcpStream) -> Result<()> {
    connection.set_nodelay(true)?;
    let (reading, mut writing) = connection.split();
    let mut lines = BufReader::new(reading).lines();
    let mut scene = None;
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => broker.answer(&mut scene, request).await,
            Err(error) => Err(error.into()),
        };
        let answer = answer.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
        writing.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}
