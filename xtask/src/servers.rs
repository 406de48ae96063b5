//! The brokers of a run: given by URL, or a private node of an installation.

use anyhow::{Context as _, Result, bail};
use redrive_brokers::{Node, Version, handshake, install, shared_url};
use std::net::ToSocketAddrs as _;
use std::time::Duration;

/// Number of unusual lines to show of the begin of a log, and of its end.
const LOG_LINES: usize = 40;

/// One running broker for all tests that may share it.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) version: Version,
    /// The exact release, as the broker reports it.
    pub(crate) release: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Url(String),
    Node(Node),
}

impl Server {
    pub(crate) fn url(&self) -> String {
        match &self.source {
            Source::Url(url) => url.clone(),
            Source::Node(node) => node.url(),
        }
    }

    /// What a private node logged that no test provokes: the cause, if all tests on it fail from some moment on.
    pub(crate) fn unusual_log_lines(&self) -> Vec<String> {
        let Source::Node(node) = &self.source else { return Vec::new() };
        let log = node.log();
        let lines: Vec<_> = log.lines().filter(|line| is_unusual(line)).map(str::to_owned).collect();
        let last = lines.len().saturating_sub(LOG_LINES).max(LOG_LINES);
        [lines.iter().take(LOG_LINES), lines.get(last..).unwrap_or_default().iter().take(LOG_LINES)]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// `RabbitMQ 3.10.8 (private node)`
    pub(crate) fn describe(&self) -> String {
        let source = match &self.source {
            Source::Url(_) => self.version.url_variable(),
            Source::Node(node) => node.kind(),
        };
        format!("RabbitMQ {} ({source})", self.release)
    }
}

/// Finds or starts a broker of each version.
pub(crate) fn find(versions: &[Version]) -> Result<Vec<Server>> {
    find_with(versions, &[])
}

/// Does the same; brokers that it starts also get these lines of `rabbitmq.conf`.
pub(crate) fn find_with(versions: &[Version], config: &[&str]) -> Result<Vec<Server>> {
    versions.iter().map(|&version| find_one(version, config)).collect()
}

fn find_one(version: Version, config: &[&str]) -> Result<Server> {
    if let Some(url) = shared_url(version) {
        let release = release_at(&url).with_context(|| {
            format!(
                "{} is set, but no broker answers there; start it, correct the URL, or unset it and a \
                 private node is used",
                version.url_variable()
            )
        })?;
        // A broker given by URL must not be killed: tests that kill one need an installation as well.
        if let Err(error) = install::install(version) {
            println!("note: tests that kill their own RabbitMQ {version} will fail: {error:#}");
        }
        return Ok(Server { version, release, source: Source::Url(url) });
    }
    let node = install::install(version)
        .with_context(|| {
            format!(
                "found no RabbitMQ {version}. Any of these will do:\n\
                 - set {variable}=amqp://user:password@host:port/vhost to a running one;\n\
                 - install rabbitmq-server {version} (it is looked for in /usr/lib/rabbitmq);\n\
                 - run this as root on Debian or Ubuntu: it installs what is missing;\n\
                 - run this where Docker works: it uses the image {image};\n\
                 - choose the other version with --broker.\n\
                 What was tried",
                variable = version.url_variable(),
                image = install::image(version),
            )
        })
        .and_then(|_| Node::with_config(version, config))?;
    Ok(Server { version, release: node.release().to_owned(), source: Source::Node(node) })
}

/// Returns false for what the tests provoke all the time.
fn is_unusual(line: &str) -> bool {
    const USUAL: [&str; 5] = [
        "closing AMQP connection",
        "client unexpectedly closed TCP connection",
        "Channel error on connection",
        "Error on AMQP connection",
        "caused a channel exception",
    ];
    !line.trim().is_empty() && !USUAL.iter().any(|usual| line.contains(usual))
}

/// Asks the broker behind `url` for its release, without logging in.
fn release_at(url: &str) -> Result<String> {
    let Some(rest) = url.strip_prefix("amqp://") else {
        if url.starts_with("amqps://") {
            return Ok("(release unknown: amqps)".into());
        }
        bail!("the URL begins neither with amqp:// nor with amqps://");
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let port = host.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let address = if port.is_some() { host.to_owned() } else { format!("{host}:5672") };
    let resolved = address.to_socket_addrs().with_context(|| format!("could not resolve {address}"))?;
    let mut last = anyhow::anyhow!("{address} has no address");
    for socket in resolved {
        match handshake::greet(socket, Duration::from_secs(60)) {
            Ok(greeting) => return Ok(greeting.release),
            Err(error) => last = error,
        }
    }
    Err(last)
}
