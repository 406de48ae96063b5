//! Both ends by hand, byte by byte.

use std::path::Path;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

pub(crate) struct Raw(pub(crate) UnixStream);

impl Raw {
    /// Connects to a service, and is greeted.
    pub(crate) async fn greeted(path: &Path) -> Self {
        let mut raw = Self(UnixStream::connect(path).await.expect("connected"));
        let greeting = raw.receive().await.expect("a greeting");
        assert_eq!((&greeting["protocol"], &greeting["v"]), (&json!("redrive-operators"), &json!(1)));
        raw
    }

    /// The same, and opens the queue `orders`.
    pub(crate) async fn opened(path: &Path) -> Self {
        let mut raw = Self::greeted(path).await;
        raw.send(&json!({ "v": 1, "queue": "orders", "reports": false })).await;
        assert_eq!(raw.receive().await, Some(json!({ "opened": { "reports": false, "leased": false } })));
        raw
    }

    /// Waits for an operator, greets it, and opens what it asks for.
    pub(crate) async fn accepted(listener: &UnixListener) -> Self {
        let mut raw = Self(listener.accept().await.expect("an operator").0);
        raw.send(&json!({ "protocol": "redrive-operators", "v": 1, "queues": ["orders"] })).await;
        raw.receive().await.expect("it opens a queue");
        raw.send(&json!({ "opened": { "reports": false, "leased": false } })).await;
        raw
    }

    pub(crate) async fn send(&mut self, json: &Value) {
        self.send_frame(json.to_string().as_bytes()).await;
    }

    pub(crate) async fn send_frame(&mut self, frame: &[u8]) {
        let length = u32::try_from(frame.len()).expect("small").to_be_bytes();
        self.send_bytes(&[&length[..], frame].concat()).await;
    }

    /// The other end may have closed.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes).await;
    }

    /// Reads a frame; `None` once the other end has closed.
    pub(crate) async fn receive(&mut self) -> Option<Value> {
        let length = self.0.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.0.read_exact(&mut frame).await.ok()?;
        Some(serde_json::from_slice(&frame).expect("JSON"))
    }
}
