//! Which broker a command talks to, and where its secret is.

mod broker;
mod file;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::exit::usage;
use crate::secret::{Secret, SecretSource};
pub(crate) use broker::Broker;
pub(crate) use file::{Config, Context, user_folder};

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// The broker: `amqps://USER@HOST/VHOST` for RabbitMQ, `servicebus` for Azure Service Bus, `unix:PATH` for the socket of a service
    /// with an in-process broker. The secret is never part of it
    #[arg(
        long,
        global = true,
        env = "REDRIVE_BROKER",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Broker"
    )]
    pub(crate) broker: Option<Secret>,
    /// The file with the password of RabbitMQ, or the connection string of Service Bus
    #[arg(
        long,
        global = true,
        env = "REDRIVE_SECRET_FILE",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Broker"
    )]
    pub(crate) secret_file: Option<PathBuf>,
    /// The environment variable with that secret; counts before REDRIVE_SECRET_FILE
    #[arg(long, global = true, value_name = "NAME", help_heading = "Broker")]
    pub(crate) secret_env: Option<String>,
    /// A named broker of the configuration file; counts before --broker, except that a --broker that is typed counts before REDRIVE_CONTEXT
    #[arg(
        long,
        short,
        global = true,
        env = "REDRIVE_CONTEXT",
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Broker"
    )]
    pub(crate) context: Option<String>,
    /// The configuration file [default: redrive/config.toml in the user's configuration folder]
    #[arg(
        long,
        global = true,
        env = "REDRIVE_CONFIG",
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Broker"
    )]
    pub(crate) config: Option<PathBuf>,
    /// The folder of plans, runs and originals [default: redrive in the user's state folder]
    #[arg(
        long,
        global = true,
        env = "REDRIVE_STATE",
        hide_env_values = true,
        value_name = "FOLDER",
        help_heading = "Broker"
    )]
    pub(crate) state: Option<PathBuf>,
    /// Reads a dead-letter queue of RabbitMQ although its delivery limit is low: the broker may remove what is looked at too often
    #[arg(long, global = true, help_heading = "Broker")]
    pub(crate) accept_low_delivery_limit: bool,
    /// Refuses every command that changes something
    #[arg(long, global = true)]
    pub(crate) read_only: bool,
    /// How long connecting and reading may take
    #[arg(long, global = true, default_value = "2m", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) timeout: Duration,
    /// Prints JSON, for scripts
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl Global {
    /// Returns the context that is named, else the broker of the arguments, else the default context.
    ///
    /// # Errors
    ///
    /// If there is none, if the configuration is wrong, or if a URL contains a password.
    pub(crate) fn broker(&self) -> Result<Context> {
        if let Some(broker) = self.broker.as_ref().filter(|_| self.context.is_none()) {
            let secret = match (&self.secret_file, &self.secret_env) {
                (Some(file), _) => Some(SecretSource::File(file.clone())),
                (_, Some(name)) => Some(SecretSource::Env(name.clone())),
                _ => None,
            };
            let accept_low_delivery_limit = self.accept_low_delivery_limit;
            let broker = Broker::parse(broker.expose())?;
            return Ok(Context { broker, secret, accept_low_delivery_limit, ..Context::default() });
        }
        let config = Config::read(self.config.clone())?;
        let name = match &self.context {
            Some(name) => name,
            None => config.default_name()?,
        };
        let context = config.context(name)?;
        let accept_low_delivery_limit = context.accept_low_delivery_limit || self.accept_low_delivery_limit;
        Ok(Context { name: Some(name.to_owned()), accept_low_delivery_limit, ..context })
    }

    /// Refuses to act if the command or the context is read-only.
    ///
    /// # Errors
    ///
    /// If it is.
    pub(crate) fn may_act(&self, context: &Context) -> Result<()> {
        match (self.read_only, context.read_only) {
            (true, _) => Err(usage("--read-only: this command would change something")),
            (_, true) => Err(usage(format!(
                "the context `{}` is read-only: this command would change something",
                context.name.as_deref().unwrap_or_default()
            ))),
            _ => Ok(()),
        }
    }
}
