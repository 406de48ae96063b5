//! Scenarios that once differed, by name, with what RabbitMQ did: in `regressions/`, one file each.

use crate::campaign::Recording;
use anyhow::{Context as _, Result};
use redrive_brokers::Version;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A shrunk scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Regression {
    /// What RabbitMQ does and the emulator once did not, in one sentence.
    pub rule: String,
    /// `3.10` or `4.3`
    pub version: String,
    /// The emulator still does otherwise: a test demands that it does, so that this is taken away when it is corrected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The scenario, the seed that it was shrunk from, and what RabbitMQ did.
    pub recording: Recording,
}

impl Regression {
    /// The version of RabbitMQ.
    ///
    /// # Errors
    /// If it is not one of those that are tested.
    pub fn version(&self) -> Result<Version> {
        self.version.parse().map_err(anyhow::Error::msg)
    }

    /// Writes the file of a regression.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, name: &str) -> Result<PathBuf> {
        let path = folder().join(format!("{name}.json"));
        std::fs::create_dir_all(folder())?;
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| format!("could not write {}", path.display()))?;
        Ok(path)
    }
}

/// Reads all regressions, by name.
///
/// # Errors
/// If a file cannot be read.
pub fn all() -> Result<Vec<(String, Regression)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path)?;
        let regression =
            serde_json::from_str(&text).with_context(|| format!("{} cannot be read", path.display()))?;
        all.push((name, regression));
    }
    all.sort_by(|(one, _), (other, _): &(String, Regression)| one.cmp(other));
    Ok(all)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions")
}
