//! The brokers that are running.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use redrive_brokers::{Version, handshake, shared_url};

use crate::process;

/// A broker that is running.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    /// The exact release of RabbitMQ.
    pub(crate) release: String,
    /// Its process, if it is on this machine.
    pub(crate) process: Option<u32>,
}

/// The brokers that the environment names; of these versions only, if any are chosen.
pub(crate) fn running(versions: &[Version]) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    for version in Version::ALL {
        let chosen = versions.is_empty() || versions.contains(&version);
        let Some(url) = shared_url(version).filter(|_| chosen) else { continue };
        let authority = url.trim_start_matches("amqp://").split('/').next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let address = host.to_socket_addrs().with_context(|| format!("cannot resolve {host}"))?.next();
        let address = address.with_context(|| format!("{host} has no address"))?;
        let release = handshake::greet(address, Duration::from_secs(5))?.release;
        servers.push(Server { release, process: process::listener(address.port()), url });
    }
    if servers.is_empty() {
        let variables = Version::ALL.map(Version::url_variable).join(" or ");
        bail!(
            "no broker is known: run this as `cargo xtask bench`, or set {variables} to amqp://user:password@host:port/vhost"
        );
    }
    Ok(servers)
}
