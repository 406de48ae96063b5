//! The configuration file: named brokers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use redrive::Shelf;
use redrive::servicebus::Entity;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::broker::Broker;
use crate::exit::usage;
use crate::secret::{SecretSource, may_hold_secret};

/// The configuration file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    /// The context of commands that name none.
    pub(crate) default: Option<String>,
    /// Each context, or what is wrong with it: that concerns only who uses it.
    pub(crate) contexts: BTreeMap<String, Result<Context, String>>,
    pub(crate) path: PathBuf,
    /// False if the file of the user does not exist.
    exists: bool,
}

/// A broker, and what is known about its queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Context {
    /// Its name in the file; none if the arguments say which broker.
    #[serde(skip)]
    pub(crate) name: Option<String>,
    /// `amqps://USER@HOST/VHOST`, `servicebus`, or `unix:PATH`.
    pub(crate) broker: Broker,
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
    /// Queues, and the other queues whose dead letters are on the same shelves: a redrive sends each message to the queue that it failed in.
    #[serde(default)]
    pub(crate) shelves_shared_with: BTreeMap<String, Vec<String>>,
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
    /// If it cannot be read or parsed. A context that is wrong is no error.
    pub(crate) fn read(path: Option<PathBuf>) -> Result<Self> {
        let (path, is_default) = match path {
            Some(path) => (path, false),
            None => (default_path()?, true),
        };
        let text = match std::fs::read_to_string(&path) {
            Err(error) if is_default && error.kind() == ErrorKind::NotFound => {
                return Ok(Self { path, ..Self::default() });
            }
            text => text.with_context(|| format!("cannot read the configuration {}", path.display()))?,
        };
        Self::parse(&text, &path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            default: Option<String>,
            #[serde(default)]
            contexts: BTreeMap<String, IgnoredAny>,
        }
        // The whole error would quote the line, which may contain a password that does not belong there.
        let wrong = |error: &toml::de::Error| {
            let line =
                error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let is_secret =
                text.lines().nth(line - 1).is_some_and(|line| line.trim_start().starts_with("secret"));
            let example = if is_secret { SECRET_EXAMPLE } else { "" };
            format!("{}, line {line}: {}{example}", path.display(), without_value(error.message()))
        };
        let File { default, contexts } = toml::from_str(text).map_err(|error| usage(wrong(&error)))?;
        let context = |name: String| {
            let context =
                toml::Deserializer::parse(text).and_then(|file| At(&["contexts", &name]).deserialize(file));
            let context = context.map_err(|error| wrong(&error));
            (name, context)
        };
        let contexts = contexts.into_keys().map(context).collect();
        Ok(Self { default, contexts, path: path.to_owned(), exists: true })
    }

    /// Returns the names of the contexts; nothing if there are none.
    fn known(&self) -> Option<String> {
        let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
        (!known.is_empty()).then(|| known.join(", "))
    }

    /// Returns the name of the default context.
    ///
    /// # Errors
    ///
    /// If there is none: says which contexts there are.
    pub(crate) fn default_name(&self) -> Result<&str> {
        self.default.as_deref().ok_or_else(|| {
            let path = self.path.display();
            usage(match self.known() {
                Some(known) => format!(
                    "no broker: pass --context NAME ({path} has {known}) or --broker URL, or set `default` in that file"
                ),
                None => format!(
                    "no broker: pass --broker URL, set REDRIVE_BROKER, or name one in {path} and pass --context NAME"
                ),
            })
        })
    }

    /// Returns a context.
    ///
    /// # Errors
    ///
    /// If there is none of this name, or it is wrong.
    pub(crate) fn context(&self, name: &str) -> Result<Context> {
        match self.contexts.get(name) {
            Some(Ok(context)) => Ok(context.clone()),
            Some(Err(why)) => Err(usage(format!("the context `{name}` cannot be used: {why}"))),
            None if may_hold_secret(name) => Err(usage(
                "a context has a name, and no address: --broker takes the URL of a broker without its password",
            )),
            None if !self.exists => {
                Err(usage(format!("no context `{name}`: the file {} does not exist", self.path.display())))
            }
            None => Err(usage(format!(
                "no context `{name}` in {}: it has {}",
                self.path.display(),
                self.known().unwrap_or_else(|| "none".to_owned())
            ))),
        }
    }
}

/// What follows an error in a `secret`.
const SECRET_EXAMPLE: &str = ". For example: `secret = { file = \"/run/secrets/rabbitmq\" }`";

/// Returns the message of an error without the value that is wrong: it may be a password that does not belong there.
fn without_value(message: &str) -> String {
    let value = ["unknown variant", "invalid type", "invalid value"]
        .into_iter()
        .find(|kind| message.starts_with(kind));
    // The name of a field is a word. Another text may be an address at the wrong place.
    let field = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let is_of_a_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if let Some((_, rest)) = field.filter(|(name, _)| !name.chars().all(is_of_a_word)) {
        return format!("unknown field{rest}");
    }
    match (value, message.rsplit_once(", expected ")) {
        (Some(kind), Some((_, expected))) => format!("{kind}, expected {expected}"),
        (Some(kind), None) => kind.to_owned(),
        (None, _) => message.to_owned(),
    }
}

/// Reads the context at a path of a file, whatever the rest is.
struct At<'a>(&'a [&'a str]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Context;

    fn deserialize<D: Deserializer<'de>>(self, file: D) -> Result<Context, D::Error> {
        if self.0.is_empty() { Context::deserialize(file) } else { file.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Context;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table with `{}`", self.0.join("."))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Context, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            match self.0.split_first() {
                Some((wanted, rest)) if *wanted == name => found = Some(map.next_value_seed(At(rest))?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        found.ok_or_else(|| A::Error::custom(format!("`{}` is missing", self.0.join("."))))
    }
}

impl Context {
    pub(crate) fn is_service_bus(&self) -> bool {
        self.broker.is_service_bus()
    }

    /// Returns the path of the socket of a service, if that is the broker.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.broker.socket()
    }

    /// Returns how the broker is called in plans and logs: its name, else its URL, which has no secret.
    pub(crate) fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(self.broker.label())
    }

    /// Returns the name of a queue as plans, journals and the library have it: of Service Bus the path of the entity.
    pub(crate) fn queue_name(&self, queue: &str) -> String {
        if self.is_service_bus() { Entity::from(queue).path() } else { queue.to_owned() }
    }

    /// Returns the other queues whose messages are on the same shelf, as far as this context says.
    pub(crate) fn sharers(&self, queue: &str, shelf: Shelf) -> BTreeSet<String> {
        let (names, listed) = match shelf {
            Shelf::Parking => (&self.parking_queues, None),
            _ => (&self.dead_letter_queues, self.named(&self.shelves_shared_with, queue)),
        };
        let name = self.named(names, queue);
        let same = names.iter().filter(|(_, other)| Some(*other) == name).map(|(queue, _)| queue);
        let mut sharers: BTreeSet<_> =
            same.chain(listed.into_iter().flatten()).map(|queue| self.queue_name(queue)).collect();
        sharers.remove(&self.queue_name(queue));
        sharers
    }

    /// Returns what a table of this context says about a queue.
    pub(crate) fn named<'a, V>(&self, table: &'a BTreeMap<String, V>, queue: &str) -> Option<&'a V> {
        let queue = self.queue_name(queue);
        table.iter().find(|(name, _)| self.queue_name(name) == queue).map(|(_, named)| named)
    }
}

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
        let prod = config.context("prod").unwrap();
        assert_eq!(prod.secret, Some(SecretSource::Command("pass rabbit".into())));
        assert_eq!(prod.queues, ["orders"]);
        let azure = config.context("azure").unwrap();
        assert!(azure.read_only && azure.is_service_bus());
    }

    #[test]
    fn an_address_in_the_file_is_not_repeated() {
        for line in [
            "broker = 'amqp://ops:hunter2/x@host'",
            "broker = ['amqp://ops:hunter2@host']",
            "broker = 'Endpoint=sb://x/;SharedAccessKey=hunter2'",
            "broker = 'servicebus'\n'amqp://ops:hunter2@host' = 1",
            "broker = 'servicebus'\nsecret = { 'amqp://ops:hunter2@host' = 1 }",
        ] {
            let config = parse(&format!("[contexts.a]\n{line}\n")).unwrap();
            let error = format!("{:#}", config.context("a").unwrap_err());
            assert!(error.contains("config.toml, line ") && !error.contains("hunter2"), "{error}");
        }
        for file in ["[contexts.a]\nbroker = amqp://ops:hunter2@host\n", "'amqp://ops:hunter2@host' = 1\n"] {
            let error = format!("{:#}", parse(file).unwrap_err());
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = parse("").unwrap().context("amqp://ops:hunter2@host").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn who_shares_a_shelf_is_what_its_names_and_the_list_say() {
        let named = |pairs: &[(&str, &str)]| pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect();
        let context = Context {
            dead_letter_queues: named(&[
                ("orders", "failed"),
                ("bills", "failed"),
                ("mails", "mails-failed"),
            ]),
            parking_queues: named(&[("orders", "parked"), ("mails", "parked")]),
            shelves_shared_with: [("orders".into(), vec!["refunds".into()])].into(),
            ..Context::default()
        };
        let sharers = |queue, shelf| context.sharers(queue, shelf).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(sharers("orders", Shelf::DeadLetter), "bills refunds");
        assert_eq!(sharers("bills", Shelf::DeadLetter), "orders");
        assert_eq!(sharers("orders", Shelf::Parking), "mails");
        assert_eq!(sharers("refunds", Shelf::DeadLetter), "");
    }

    #[test]
    fn a_subscription_has_one_name_however_it_is_written() {
        let context = Context {
            broker: Broker::service_bus(),
            parking_queues: [("shop/orders/subscriptions/billing".into(), "parked".into())].into(),
            ..Context::default()
        };
        assert_eq!(context.queue_name("shop/orders"), "shop/orders");
        let path = "shop/orders/Subscriptions/billing";
        assert_eq!(context.queue_name("shop/orders/SUBSCRIPTIONS/billing"), path);
        assert_eq!(context.named(&context.parking_queues, path), Some(&"parked".to_owned()));
        assert_eq!(context.named(&context.parking_queues, "billing"), None);
    }

    #[test]
    fn an_error_in_the_file_names_its_line_and_does_not_quote_it() {
        let config = parse("[contexts.a]\nbroker = 'servicebus'\npassword = 'hunter2'\n").unwrap();
        let error = format!("{:#}", config.context("a").unwrap_err());
        assert!(error.contains("config.toml, line 3: unknown field `password`"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
        for secret in
            ["secret = 'hunter2, expected '", "secret = { file = ['hunter2'] }", "queues = 'hunter2'"]
        {
            let config = parse(&format!("[contexts.a]\nbroker = 'servicebus'\n{secret}\n")).unwrap();
            let error = format!("{:#}", config.context("a").unwrap_err());
            assert!(error.contains("line 3") && error.contains("expected"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
            let is_secret = secret.starts_with("secret");
            assert_eq!(error.contains("For example: `secret = { file ="), is_secret, "{error}");
        }
    }

    #[test]
    fn a_context_that_nobody_named_is_answered_by_those_that_exist() {
        let config =
            parse("[contexts.prod]\nbroker = 'servicebus'\n[contexts.test]\nbroker = 'servicebus'\n");
        let error = config.unwrap().default_name().unwrap_err().to_string();
        assert!(error.contains("pass --context NAME (config.toml has prod, test)"), "{error}");
        let nothing = Config { path: "config.toml".into(), ..Config::default() };
        let error = nothing.context("shop").unwrap_err().to_string();
        assert_eq!(error, "no context `shop`: the file config.toml does not exist");
        assert!(nothing.default_name().unwrap_err().to_string().contains("pass --broker URL"));
        let error = parse("").unwrap().context("shop").unwrap_err().to_string();
        assert_eq!(error, "no context `shop` in config.toml: it has none");
    }

    #[test]
    fn a_wrong_context_concerns_only_who_uses_it() {
        let config = parse(
            "[contexts]\nnumber = 7\n[contexts.good]\nbroker = 'servicebus'\n[contexts.relative]\nbroker = 'unix:x.sock'\n\
             [contexts.unknown]\nbroker = 'servicebus'\ncolour = 'red'\n[contexts.none]\n",
        )
        .unwrap();
        assert!(config.context("good").unwrap().is_service_bus());
        for (name, said) in [
            ("relative", "must be absolute"),
            ("unknown", "line 9: unknown field `colour`"),
            ("none", "missing field `broker`"),
            ("number", "line 2: invalid type"),
            ("other", "no context `other`"),
        ] {
            let error = config.context(name).unwrap_err().to_string();
            assert!(error.contains(said), "{name}: {error}");
        }
        // The file itself is wrong.
        assert!(parse("contexts = 1\n").is_err() && parse("contextz = {}\n").is_err());
    }
}
