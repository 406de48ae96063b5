//! Reads a secret. It is never printed: not in errors, and not by `Debug`.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SecretSource {
    /// In a file.
    File(PathBuf),
    /// In an environment variable.
    Env(String),
    /// In what a command prints, which a shell runs.
    Command(String),
}

/// A password or a connection string.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// For the broker, and for nothing else.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

/// For arguments.
impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl SecretSource {
    /// Reads the secret, without the line feed at its end.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or is empty. The error contains no part of it.
    pub(crate) fn read(&self) -> Result<Secret> {
        let text = match self {
            Self::File(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the secret from the {self}"))?;
                // An editor's byte order mark is no part of it.
                text.trim_start_matches('\u{feff}').to_owned()
            }
            Self::Env(_) if !self.may_be_named() => bail!("cannot read the secret from {self}"),
            Self::Env(name) => std::env::var(name)
                .with_context(|| format!("cannot read the secret from the environment variable {name}"))?,
            Self::Command(command) => output(command)?,
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            bail!("the secret is empty: {self}");
        }
        Ok(Secret::new(text))
    }

    /// Returns false for what may be the secret, given in place of the name of its source.
    fn may_be_named(&self) -> bool {
        match self {
            // Keys begin with a `/`, too.
            Self::File(path) => {
                path.exists()
                    || path.parent().is_some_and(|folder| folder.parent().is_some() && folder.is_dir())
            }
            Self::Env(name) => is_variable(name),
            Self::Command(_) => true,
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(_) if !self.may_be_named() => {
                f.write_str("file that was given (its name is not shown, because it may be the secret itself)")
            }
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(_) if !self.may_be_named() => f.write_str(
                "an environment variable: the given text is not the name of one (it is not shown, because it may be the secret itself)",
            ),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Command(command) => write!(f, "command `{command}`"),
        }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// Returns true for a text that has the form of an address with a secret in it, wherever it was given.
pub(crate) fn may_hold_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.contains("sharedaccess") || (lower.contains("://") && lower.contains(['@', '?']))
}

/// Returns true for the same, and for an address without its scheme.
pub(crate) fn may_be_address(text: &str) -> bool {
    text.contains("://")
        || may_hold_secret(text)
        || text.split_once(':').is_some_and(|(_, rest)| rest.contains('@'))
}

fn output(command: &str) -> Result<String> {
    // It may ask for a passphrase: on the terminal, not in the data.
    let ran =
        Command::new("sh").arg("-c").arg(command).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let ran = ran.with_context(|| format!("cannot run `{command}` for the secret"))?;
    if !ran.status.success() {
        bail!("`{command}`, which prints the secret, ended with {}", ran.status);
    }
    String::from_utf8(ran.stdout).ok().with_context(|| format!("`{command}` prints no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_without_its_line_feed_and_never_printed() {
        let secret = SecretSource::Command("printf 'hunter2\\n'".into()).read().unwrap();
        assert_eq!(secret.expose(), "hunter2");
        assert_eq!(format!("{secret:?}"), "***");
    }

    #[test]
    fn a_secret_in_the_place_of_its_file_is_not_repeated() {
        let key = "Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey=hunter2";
        for secret in [key, "amqp://u:hunter2@h", "hunter2", "/hunter2", "hun/hunter2", "/hun/hunter2", ""] {
            let source = SecretSource::File(secret.into());
            let error = format!("{:#}", source.read().unwrap_err());
            assert!(error.contains("may be the secret itself): No such file"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            assert!(!source.to_string().contains("hunter2"), "{source}");
        }
        let folder = tempfile::tempdir().unwrap();
        let missing = SecretSource::File(folder.path().join("missing"));
        assert!(format!("{:#}", missing.read().unwrap_err()).contains("missing: No such file"));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_secret() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\u{feff}hunter2\r\n").unwrap();
        assert_eq!(SecretSource::File(file.path().into()).read().unwrap().expose(), "hunter2");
    }

    #[test]
    fn a_source_without_a_secret_says_which_one() {
        let error = SecretSource::Command("true".into()).read().unwrap_err();
        assert_eq!(error.to_string(), "the secret is empty: command `true`");
        let error = SecretSource::Command("echo hunter2; exit 3".into()).read().unwrap_err().to_string();
        assert!(error.ends_with("ended with exit status: 3") && !error.contains("hunter2\n"), "{error}");
        assert!(SecretSource::File("/does/not/exist".into()).read().is_err());
        let error = SecretSource::Env("Endpoint=sb://x;SharedAccessKey=hunter2".into()).read().unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
