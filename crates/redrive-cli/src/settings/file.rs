//! The configuration file: named brokers.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::exit::usage;
use crate::secret::SecretSource;

/// The configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The context of commands that name none.
    pub(crate) default: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
    #[serde(skip)]
    pub(crate) path: PathBuf,
}

/// A broker, and what is known about its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Context {
    /// Its name in the file; none if the arguments say which broker.
    #[serde(skip)]
    pub(crate) name: Option<String>,
    /// `amqps://USER@HOST/VHOST`, `servicebus`, or `unix:PATH`.
    pub(crate) broker: String,
    /// Where the password or the connection string is.
    pub(crate) secret: Option<SecretSource>,
    /// The queues of commands that name none.
    #[serde(default)]
    pub(crate) queues: Vec<String>,
    /// Queues whose dead-letter shelf has another name than redrive gives it.
    #[serde(default)]
    pub(crate) dead_letter_queues: BTreeMap<String, String>,
    /// Queues whose parking shelf has another name, or on Service Bus one at all.
    #[serde(default)]
    pub(crate) parking_queues: BTreeMap<String, String>,
    /// Subscriptions of Service Bus, and where their messages are sent back to: a copy in the topic would reach all subscriptions.
    #[serde(default)]
    pub(crate) retry_queues: BTreeMap<String, String>,
    /// PEM of more certificate authorities.
    pub(crate) ca_file: Option<PathBuf>,
    /// Reads a dead-letter queue although its delivery limit is low.
    #[serde(default)]
    pub(crate) accept_low_delivery_limit: bool,
    /// Refuses every command that changes something.
    #[serde(default)]
    pub(crate) read_only: bool,
}

impl Config {
    /// Reads the file at `path`, by default that of the user. A default file that does not exist is empty.
    ///
    /// # Errors
    ///
    /// If it cannot be read or parsed, or a context is wrong.
    pub(crate) fn read(path: Option<PathBuf>) -> Result<Self> {
        let (path, is_default) = match path {
            Some(path) => (path, false),
            None => (default_path()?, true),
        };
        let text = match std::fs::read_to_string(&path) {
            Err(error) if is_default && error.kind() == ErrorKind::NotFound => String::new(),
            text => text.with_context(|| format!("cannot read the configuration {}", path.display()))?,
        };
        Self::parse(&text, &path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        // The whole error would quote the line, which may contain a password that does not belong there.
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            usage(format!("{}, line {line}: {}", path.display(), error.message()))
        })?;
        for (name, context) in &config.contexts {
            context.check().with_context(|| format!("context `{name}` in {}", path.display()))?;
        }
        config.path = path.to_owned();
        Ok(config)
    }
}

impl Context {
    /// Refuses a URL with a password: other users see it in the list of processes, and it ends up in histories and logs.
    ///
    /// # Errors
    ///
    /// If it has one, or if the scheme is not known.
    pub(crate) fn check(&self) -> Result<()> {
        if self.broker == SERVICE_BUS {
            return Ok(());
        }
        if let Some(path) = self.socket() {
            // `unix://shop.sock` names a host, as in other URLs.
            let text = path.to_string_lossy();
            let names_a_host = text.starts_with("//") && !text.starts_with("///");
            return match path.is_absolute() && !names_a_host {
                true if cfg!(unix) => Ok(()),
                true => Err(usage("`unix:` needs a system with Unix domain sockets")),
                // Plans and logs name the broker so, wherever they are read.
                false => {
                    Err(usage("the path of `unix:PATH` must be absolute: `unix:/run/shop/redrive.sock`"))
                }
            };
        }
        let Some((scheme @ ("amqp" | "amqps"), rest)) = self.broker.split_once("://") else {
            // Perhaps a connection string: not repeated.
            return Err(usage(
                "the broker must be `amqp://USER@HOST/VHOST`, `amqps://…`, `servicebus` or `unix:PATH`. A connection string of Service \
                 Bus is a secret: put it into a file or a variable",
            ));
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(usage(format!(
                "the {scheme} URL contains a password, which other users of this machine can see: write `{scheme}://USER@HOST` and \
                 pass the password with --secret-file or --secret-env, or as `secret` of a context"
            )));
        }
        Ok(())
    }

    pub(crate) fn is_service_bus(&self) -> bool {
        self.broker == SERVICE_BUS
    }

    /// Returns the path of the socket of a service, if that is the broker.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.broker.strip_prefix("unix:").map(Path::new)
    }

    /// Returns how the broker is called in plans and logs: its name, else its URL, which has no secret.
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.broker)
    }
}

const SERVICE_BUS: &str = "servicebus";

fn default_path() -> Result<PathBuf> {
    Ok(user_folder("XDG_CONFIG_HOME", ".config")?.join("redrive").join("config.toml"))
}

/// Returns a folder of the user, as the XDG specification says.
///
/// # Errors
///
/// If neither the variable nor `HOME` is set.
pub(crate) fn user_folder(variable: &str, in_home: &str) -> Result<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable)
        .or_else(|| Some(absolute("HOME")?.join(in_home)))
        .ok_or_else(|| usage(format!("neither {variable} nor HOME is set")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("config.toml"))
    }

    #[test]
    fn a_context_says_where_its_secret_is() {
        let config = parse(
            "default = 'prod'\n[contexts.prod]\nbroker = 'amqps://ops@rabbit.example/shop'\nsecret = { command = 'pass rabbit' }\n\
             queues = ['orders']\n[contexts.azure]\nbroker = 'servicebus'\nsecret = { env = 'SB' }\nread-only = true\n",
        )
        .unwrap();
        let prod = &config.contexts["prod"];
        assert_eq!(prod.secret, Some(SecretSource::Command("pass rabbit".into())));
        assert_eq!(prod.queues, ["orders"]);
        assert!(config.contexts["azure"].read_only && config.contexts["azure"].is_service_bus());
    }

    #[test]
    fn passwords_and_connection_strings_are_refused_and_not_repeated() {
        for broker in [
            "amqp://ops:hunter2@host/",
            "Endpoint=sb://x/;SharedAccessKey=hunter2",
            "amqp://a:hunter2@b@host",
        ] {
            let context = Context { broker: broker.into(), ..Context::default() };
            let error = format!("{:#}", context.check().unwrap_err());
            assert!(!error.contains("hunter2"), "{error}");
        }
        for broker in [
            "amqp://host:5672/v",
            "amqps://ops@host:5671/a%2fb",
            "servicebus",
            "amqp://[::1]:5672",
            "unix:/run/a:b@c.sock",
            "unix:///run/shop.sock",
        ] {
            Context { broker: broker.into(), ..Context::default() }.check().unwrap();
        }
        for broker in ["unix:", "unix:shop.sock", "unix://shop.sock", "/run/shop.sock"] {
            Context { broker: broker.into(), ..Context::default() }.check().expect_err(broker);
        }
    }

    #[test]
    fn an_error_in_the_file_names_its_line_and_does_not_quote_it() {
        let error = parse("[contexts.a]\nbroker = 'servicebus'\npassword = 'hunter2'\n").unwrap_err();
        let error = format!("{error:#}");
        assert!(error.starts_with("config.toml, line 3: unknown field `password`"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}
