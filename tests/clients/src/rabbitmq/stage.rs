//! Gives scenes to scenarios in other languages.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use super::scene::{On, Scene};
use crate::stage::Broker;

/// What a scenario requests: `{"do": "pass", "milliseconds": 500}`.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Request {
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

impl Broker for On {
    type Scene = Scene;
    type Request = Request;

    async fn answer(&self, scene: &mut Option<Scene>, request: Request) -> Result<Value> {
        if let Request::Start = request {
            let scene = scene.insert(Scene::open(*self).await?);
            let version = self.version().number();
            return Ok(json!({ "url": scene.url(), "prefix": scene.prefix(), "version": version }));
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
}
