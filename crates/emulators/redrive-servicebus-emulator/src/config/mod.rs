//! The official emulator's `Config.json`, unchanged.
//!
//! Defaults are those of the official emulator, not Azure's: 3 deliveries, 1 hour to live, a window of 20 seconds. The emulator
//! adds three keys: `MaxSizeInMegabytes`, `MaxMessageSizeInKilobytes`, and, for subscriptions,
//! `DeadLetteringOnFilterEvaluationExceptions`; their names are those of Azure's resource templates.

mod duration;
mod file;
mod json;
mod rule;

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::broker::Namespace;

/// A configuration file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The entities.
    pub namespace: Namespace,
    /// Paths of unknown keys, which are ignored.
    pub unknown_keys: Vec<String>,
}

/// Why a file is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{path}: {reason}")]
#[non_exhaustive]
pub struct ConfigError {
    /// Where in the file, such as `UserConfig.Namespaces[0].Queues[1].Properties.LockDuration`, or `line 3, column 7`.
    pub path: String,
    /// What is wrong there, and what to do.
    pub reason: String,
}

impl Config {
    /// Reads the text of a `Config.json`: JSON with comments and commas at the end. Keys may have any case; numbers and booleans may be
    /// texts; `null` is as if the key were missing.
    ///
    /// # Errors
    /// If the text is no JSON, or a value has a wrong type or is out of its range, with its path.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut unknown_keys = Vec::new();
        let mut note = |path: serde_ignored::Path<'_>| unknown_keys.push(path_text(&path));
        let file: file::File = {
            let noting = serde_ignored::Deserializer::new(json::parse(text)?, &mut note);
            serde_path_to_error::deserialize(noting).map_err(|error| ConfigError {
                path: error.path().to_string(),
                reason: error.inner().to_string(),
            })?
        };
        Ok(Self { namespace: file.namespace()?, unknown_keys })
    }
}

/// Formats a path like the paths of errors.
fn path_text(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_text(parent)),
        Path::Map { parent: Path::Root, key } => key.clone(),
        Path::Map { parent, key } => format!("{}.{key}", path_text(parent)),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            path_text(parent)
        }
    }
}
