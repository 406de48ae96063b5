//! What the commands are given that run until they are stopped.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;

use super::Queues;

#[derive(ClapArgs, Debug)]
pub(crate) struct Exporter {
    #[command(flatten)]
    pub(crate) queues: Queues,
    /// The address
    #[arg(long, default_value = "127.0.0.1:9420")]
    pub(crate) listen: std::net::SocketAddr,
    /// How often the shelves are read
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Only counts: reads no message
    #[arg(long)]
    pub(crate) count_only: bool,
}

#[derive(ClapArgs, Debug)]
pub(crate) struct Serve {
    /// The queues [default: those of the context]
    pub(crate) queues: Vec<String>,
    /// The address
    #[arg(long, default_value = "127.0.0.1:7420")]
    pub(crate) listen: std::net::SocketAddr,
    /// The address by which browsers reach it: `https://HOST[:PORT][/PATH]`
    #[arg(long, value_name = "URL")]
    pub(crate) public_url: Option<String>,
    /// The certificate and its chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// A proxy in front does TLS
    #[arg(long)]
    pub(crate) behind_proxy: bool,
    /// A person, and the file with the token; the audit log records the name. May be given several times
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) token: Vec<String>,
    /// The same, for a person who may only read
    #[arg(long, value_name = "NAME=FILE")]
    pub(crate) read_only_token: Vec<String>,
}
