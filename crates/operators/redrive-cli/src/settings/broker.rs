//! Which broker: read once, by the parsers of the libraries, and shown only by its label.

use std::path::{Path, PathBuf};

use anyhow::Result;
use redrive::rabbitmq::Address;
use serde::Deserialize;

use crate::exit::usage;
use crate::secret::Secret;

/// A broker. Nothing of it is shown but its label, which has no secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Broker {
    kind: Kind,
    label: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    ServiceBus,
    Socket(PathBuf),
    RabbitMq {
        /// It has parameters too, which may be secret.
        url: Secret,
        user: String,
    },
}

const SERVICE_BUS: &str = "servicebus";
const EXPECTED: &str =
    "the broker must be `amqp://USER@HOST/VHOST`, `amqps://…`, `servicebus` or `unix:PATH`";

impl Broker {
    /// Reads `servicebus`, `unix:PATH`, or a URL, or several of one cluster, without a password: other users see it in the list of
    /// processes, and it ends up in histories.
    ///
    /// # Errors
    ///
    /// If it is none of these. The error repeats no part of it.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text == SERVICE_BUS {
            return Ok(Self { kind: Kind::ServiceBus, label: text.to_owned() });
        }
        if let Some(path) = text.strip_prefix("unix:") {
            check_socket(path)?;
            return Ok(Self { kind: Kind::Socket(path.into()), label: text.to_owned() });
        }
        if !text.contains("://") || text.to_ascii_lowercase().contains("endpoint=") {
            return Err(usage(format!(
                "{EXPECTED}. A connection string of Service Bus is a secret: put it into a file or a variable"
            )));
        }
        let addresses = Address::list(text).map_err(|error| usage(format!("{EXPECTED}: {error}")))?;
        if addresses.iter().any(Address::has_password) {
            return Err(usage(
                "the URL contains a password, which other users of this machine can see: write `amqp://USER@HOST` and pass the \
                 password with --secret-file or --secret-env, or as `secret` of a context",
            ));
        }
        let user = addresses.first().map(|address| address.user().to_owned()).unwrap_or_default();
        let label = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        Ok(Self { kind: Kind::RabbitMq { url: Secret::new(text), user }, label })
    }

    /// Returns Service Bus.
    pub(crate) fn service_bus() -> Self {
        Self { kind: Kind::ServiceBus, label: SERVICE_BUS.to_owned() }
    }

    /// Returns the broker in the process of a service that nobody reaches.
    pub(crate) fn in_process() -> Self {
        Self { kind: Kind::Socket(PathBuf::new()), label: "unix:".to_owned() }
    }

    pub(crate) fn is_service_bus(&self) -> bool {
        self.kind == Kind::ServiceBus
    }

    /// Returns the path of the socket of a service, if that is the broker.
    pub(crate) fn socket(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Socket(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the URL of RabbitMQ; for the client and for nothing else.
    pub(crate) fn url(&self) -> &str {
        match &self.kind {
            Kind::RabbitMq { url, .. } => url.expose(),
            _ => "",
        }
    }

    /// Returns the user of RabbitMQ.
    pub(crate) fn user(&self) -> &str {
        match &self.kind {
            Kind::RabbitMq { user, .. } => user,
            _ => "",
        }
    }

    /// Returns how it is called where it has no other name: the URL without user and parameters.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }
}

impl TryFrom<String> for Broker {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).map_err(|error| error.to_string())
    }
}

/// Plans and logs name the broker by this path, wherever they are read.
fn check_socket(path: &str) -> Result<()> {
    // `unix://shop.sock` names a host, as in other URLs.
    let names_a_host = path.starts_with("//") && !path.starts_with("///");
    match Path::new(path).is_absolute() && !names_a_host {
        true if cfg!(unix) => Ok(()),
        true => Err(usage("`unix:` needs a system with Unix domain sockets")),
        false => Err(usage("the path of `unix:PATH` must be absolute: `unix:/run/shop/redrive.sock`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_connection_strings_are_refused_and_not_repeated() {
        for broker in [
            "amqp://ops:hunter2@host/",
            "AMQP://ops:hunter2@host/",
            "amqp://ops:hunter2/x@host",
            "amqp://ops:5672/hunter2@host",
            "amqp://ops%3Ahunter2@host",
            "amqp://host,amqp://ops:hunter2@other",
            "Endpoint=sb://x/;SharedAccessKey=hunter2",
            "\"Endpoint=sb://x/;SharedAccessKey=hunter2\"",
            "amqp://a:hunter2@b@host",
            "ops:hunter2@host",
            "unix:ops:hunter2@host",
            "unix://ops:hunter2@host/run",
        ] {
            let error = Broker::parse(broker).unwrap_err();
            assert!(!format!("{error:#} {error:?}").contains("hunter2"), "{error:?}");
        }
        for broker in ["unix:", "unix:shop.sock", "unix://shop.sock", "/run/shop.sock"] {
            Broker::parse(broker).expect_err(broker);
        }
    }

    #[test]
    fn a_broker_is_called_by_a_label_without_user_and_parameters() {
        for (broker, label) in [
            ("amqp://host:5672/v", "amqp://host:5672/v"),
            ("AMQPS://ops@host/a%2fb?password=hunter2", "amqps://host:5671/a%2Fb"),
            ("amqp://a,amqp://b:1", "amqp://a:5672,amqp://b:1"),
            ("amqp://[::1]", "amqp://[::1]:5672"),
            ("servicebus", "servicebus"),
            ("unix:/run/a:b@c.sock", "unix:/run/a:b@c.sock"),
            ("unix:///run/shop.sock", "unix:///run/shop.sock"),
        ] {
            let read = Broker::parse(broker).unwrap();
            assert_eq!(read.label(), label);
            assert!(!format!("{read:?}").contains("hunter2"));
        }
        assert_eq!(Broker::parse("amqps://ops%40shop@host:5671/v").unwrap().user(), "ops@shop");
        assert_eq!(Broker::parse("amqp://host/a").unwrap().user(), "guest");
    }
}
