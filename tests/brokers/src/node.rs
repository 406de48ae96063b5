//! A private RabbitMQ node.

mod container;
mod machine;
mod shortcut;

use crate::command::{run, run_with_input};
use crate::handshake;
use crate::install::{self, Installation, Place};
use crate::network::{Host, Network};
use crate::ports::free_port;
use crate::{Version, env, starts};
use anyhow::{Context as _, Result, ensure};
use shortcut::{STILL_STARTS, shortcut};
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a start. It takes 3 to 10 s on an idle machine, longer on a busy one; this only distinguishes a hang.
const START: Duration = Duration::from_secs(600);

/// Pause before a node that starts is asked again.
const STARTS_AGAIN: Duration = Duration::from_millis(200);
/// How long a node may go on starting after it accepts connections.
const STARTS_FOR: Duration = Duration::from_secs(60);

/// A private RabbitMQ node with its own ports, name and data.
///
/// Clones share the node. When the last one is dropped, or the test process dies, the node is killed and its data removed. All
/// methods block; inside a runtime use [`aside`](Node::aside).
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    installation: Installation,
    name: String,
    address: SocketAddr,
    management_port: u16,
    /// False in a cluster, whose nodes wait for each other.
    starts_alone: bool,
    engine: Mutex<Box<dyn Engine>>,
}

/// Where a node of a cluster runs.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) host: Host,
    /// The secret that the nodes of a cluster share.
    pub(crate) cookie: String,
    /// The port on which the nodes talk, the same on all machines.
    pub(crate) dist: u16,
    /// The port where nodes find each other, the same on all machines.
    pub(crate) epmd: u16,
    /// It must outlive the node.
    pub(crate) _network: Arc<Network>,
}

/// Runs a node: on this machine, or with Docker. Leaves nothing behind when dropped.
trait Engine: fmt::Debug + Send {
    /// Starts the broker on its data, without waiting for it.
    fn start(&mut self) -> Result<()>;
    /// Returns an error if the started broker has ended.
    fn alive(&mut self) -> Result<()>;
    /// Sends SIGKILL, and waits until it is dead. No error if it is dead already.
    fn kill(&mut self) -> Result<()>;
    /// Stops it in order, and waits until it has ended.
    fn stop(&mut self) -> Result<()>;
    /// A command that runs `rabbitmqctl` on this node.
    fn ctl(&self) -> Command;
    /// A command that lets this node evaluate an Erlang expression from its input, and prints what that prints. `None`: there is none.
    fn evaluate(&self) -> Option<Command>;
    /// Returns the last output of the broker, for errors.
    fn output(&self) -> String;
    /// Returns everything that the broker logged.
    fn log(&self) -> String;
}

impl Node {
    /// Starts a node of `version`; returns when it accepts AMQP connections.
    ///
    /// # Errors
    /// When the version is not installed (nothing is installed here: see [`install`]) or
    /// does not start; with the end of its output.
    pub fn start(version: Version) -> Result<Node> {
        Node::with_config(version, &[])
    }

    /// [`start`](Node::start) with more lines of `rabbitmq.conf`.
    ///
    /// # Errors
    /// As [`start`](Node::start).
    pub fn with_config(version: Version, config: &[&str]) -> Result<Node> {
        Node::with_plugins(version, config, &[])
    }

    /// [`with_config`](Node::with_config) with these plugins, which make the start some seconds longer.
    /// `rabbitmq_management` answers at [`management_url`](Node::management_url).
    ///
    /// # Errors
    /// As [`start`](Node::start).
    pub fn with_plugins(version: Version, config: &[&str], plugins: &[&str]) -> Result<Node> {
        Node::with_files(version, config, plugins, &[])
    }

    /// [`with_plugins`](Node::with_plugins) with files, by name and content: keys, certificates. `{files}` in a line of
    /// `config` is the folder that they are in, as the node sees it.
    ///
    /// # Errors
    /// As [`start`](Node::start).
    pub fn with_files(
        version: Version,
        config: &[&str],
        plugins: &[&str],
        files: &[(&str, &str)],
    ) -> Result<Node> {
        let installation = install::find(version).with_context(|| {
            format!(
                "RabbitMQ {version} is not installed; `cargo xtask test` installs it on Debian or Ubuntu, as root"
            )
        })?;
        let mut tries = 0;
        loop {
            tries += 1;
            let started = Node::prepare(&installation, config, plugins, files)
                .and_then(|node| node.restart().map(|()| node));
            match started {
                // Another process may take a port that was free.
                Err(error) if tries < 4 && says_in_use(&format!("{error:#}")) => {}
                other => return other,
            }
        }
    }

    /// [`with_config`](Node::with_config) for the inside of a runtime.
    ///
    /// # Errors
    /// As [`start`](Node::start).
    pub async fn start_async(version: Version, config: &[&str]) -> Result<Node> {
        let config: Vec<String> = config.iter().map(|&line| line.to_owned()).collect();
        tokio::task::spawn_blocking(move || {
            Node::with_config(version, &config.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .await?
    }

    /// Runs a blocking action on this node without blocking the runtime:
    /// `node.aside(|node| node.restart()).await?`.
    ///
    /// # Panics
    /// When `action` panics.
    pub async fn aside<T: Send + 'static>(&self, action: impl FnOnce(&Node) -> T + Send + 'static) -> T {
        let node = self.clone();
        tokio::task::spawn_blocking(move || action(&node)).await.expect("the action on the node panicked")
    }

    /// The URL of the node, for guest on the virtual host `/`. It names the usual frame size: lapin clears 8 MiB for each connection where
    /// it learns it from the broker only.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f?frame_max={}", self.address(), 128 * 1024)
    }

    /// The URL of the management API, for guest; where the node has that plugin.
    pub fn management_url(&self) -> String {
        format!("http://guest:guest@127.0.0.1:{}", self.inner.management_port)
    }

    /// Where the node listens for AMQP; for a [`Proxy`](crate::Proxy) in front of it.
    pub fn address(&self) -> SocketAddr {
        self.inner.address
    }

    /// The version of the node.
    pub fn version(&self) -> Version {
        self.inner.installation.version()
    }

    /// The exact release of the node, for example `3.10.8`.
    pub fn release(&self) -> &str {
        self.inner.installation.release()
    }

    /// What kind of node this is, for reports: `private node` or `Docker`.
    pub fn kind(&self) -> &'static str {
        match self.inner.installation.place() {
            Place::Machine | Place::Chroot(_) => "private node",
            Place::Docker => "Docker",
        }
    }

    /// The Erlang name of the node.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What the node logged, from the level `warning` up.
    pub fn log(&self) -> String {
        self.engine().log()
    }

    /// This node as the broker of a test that also runs on shared ones.
    pub fn broker(&self) -> env::Broker {
        env::Broker { url: self.url(), version: self.version() }
    }

    /// SIGKILL to the whole broker, as when the machine loses power; returns when it is dead.
    /// (What it wrote stays in the operating system's cache, so this is kinder than a power loss.)
    ///
    /// # Errors
    /// When processes stay alive. It is no error when the node is dead already.
    pub fn kill(&self) -> Result<()> {
        self.engine().kill()
    }

    /// Starts the node again with the same data, ports and name; kills it first if it is running.
    /// Returns when it accepts AMQP connections.
    ///
    /// # Errors
    /// When it does not start; with the end of its output.
    pub fn restart(&self) -> Result<()> {
        self.engine().kill()?;
        let _turn = if self.inner.starts_alone { Some(starts::turn()?) } else { None };
        let mut engine = self.engine();
        engine.kill()?;
        engine.start()?;
        let greeting = handshake::wait(self.address(), START, || engine.alive())
            .with_context(|| format!("RabbitMQ {} did not start: {}", self.release(), engine.output()))?;
        // A default cluster name is a node's name before the `@`, but the machine's after it.
        let ours = self.inner.name.split_inclusive('@').next().unwrap_or_default();
        ensure!(
            greeting.cluster.starts_with(ours),
            "port {} is in use by the RabbitMQ node {}",
            self.address().port(),
            greeting.cluster
        );
        Ok(())
    }

    /// Stops the node in good order; returns when it has ended. [`restart`](Node::restart) starts it again.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&self) -> Result<()> {
        self.engine().stop()
    }

    /// Does what `rabbitmqctl` with these arguments does, and gives back what it prints. Takes one to two seconds, or milliseconds for the
    /// commands that have a shortcut (`shortcut.rs`).
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        let begun = Instant::now();
        loop {
            match self.ctl_once(arguments) {
                // A node accepts connections a moment before its start ends.
                Err(error) if format!("{error:#}").contains(STILL_STARTS) && begun.elapsed() < STARTS_FOR => {
                    std::thread::sleep(STARTS_AGAIN);
                }
                ended => return ended,
            }
        }
    }

    /// The lock is released while the command runs, so that another task can kill the node meanwhile.
    fn ctl_once(&self, arguments: &[&str]) -> Result<String> {
        let evaluating = shortcut(arguments).zip(self.engine().evaluate());
        let Some((expression, mut command)) = evaluating else {
            let mut command = self.engine().ctl();
            return run(command.args(arguments));
        };
        let printed = run_with_input(&mut command, &expression)?;
        shortcut::outcome(&printed).with_context(|| format!("`{}` failed", arguments.join(" ")))
    }

    /// A node that is ready to start, with its ports and its data folder.
    fn prepare(
        installation: &Installation,
        config: &[&str],
        plugins: &[&str],
        files: &[(&str, &str)],
    ) -> Result<Node> {
        let (port, management_port) = (free_port()?, free_port()?);
        let id = format!("{:016x}", crate::ports::random());
        let name = format!("redrive-{id}@localhost");
        let setup = Setup { port, management_port, config, plugins, files, site: None };
        let engine: Box<dyn Engine> = match installation.place() {
            Place::Machine | Place::Chroot(_) => {
                Box::new(machine::Machine::prepare(installation, &id, &name, &setup)?)
            }
            Place::Docker => Box::new(container::Container::prepare(installation, &id, &name, &setup)?),
        };
        Ok(Node::new(installation, name, &setup, engine))
    }

    /// A node of a cluster, ready to start.
    pub(crate) fn on(
        installation: &Installation,
        id: &str,
        name: &str,
        port: u16,
        config: &[&str],
        site: Site,
    ) -> Result<Node> {
        let setup = Setup { port, management_port: 0, config, plugins: &[], files: &[], site: Some(site) };
        let machine = machine::Machine::prepare(installation, id, name, &setup)?;
        Ok(Node::new(installation, name.to_owned(), &setup, Box::new(machine)))
    }

    fn new(installation: &Installation, name: String, setup: &Setup<'_>, engine: Box<dyn Engine>) -> Node {
        let ip = setup.site.as_ref().map_or(Ipv4Addr::LOCALHOST, |site| site.host.outer);
        Node {
            inner: Arc::new(Inner {
                installation: installation.clone(),
                name,
                address: (ip, setup.port).into(),
                management_port: setup.management_port,
                starts_alone: setup.site.is_none(),
                engine: Mutex::new(engine),
            }),
        }
    }

    fn engine(&self) -> MutexGuard<'_, Box<dyn Engine>> {
        self.inner.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings of a node.
struct Setup<'a> {
    port: u16,
    management_port: u16,
    config: &'a [&'a str],
    plugins: &'a [&'a str],
    files: &'a [(&'a str, &'a str)],
    site: Option<Site>,
}

impl Setup<'_> {
    /// Lines in RabbitMQ's format.
    fn enabled_plugins(&self) -> String {
        format!("[{}].\n", self.plugins.join(","))
    }

    /// Writes the files into a folder of this machine.
    fn write_files(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for (name, content) in self.files {
            fs::write(folder.join(name), content)?;
        }
        Ok(())
    }

    fn has_management(&self) -> bool {
        self.plugins.contains(&"rabbitmq_management")
    }
}

/// `rabbitmq.conf` for every node, small enough for several at once; `config` comes last. `files` is where the node finds
/// the files.
fn configuration(config: &[&str], files: &str) -> String {
    let common = [
        "vm_memory_high_watermark.absolute = 1GB",
        "disk_free_limit.absolute = 50MB",
        // The default of 512 MB is for servers.
        "raft.wal_max_size_bytes = 64000000",
    ];
    common.iter().chain(config).map(|line| format!("{}\n", line.replace("{files}", files))).collect()
}

/// Returns true if an error is about a port in use, in our, Erlang's or Docker's words.
fn says_in_use(error: &str) -> bool {
    ["in use", "eaddrinuse", "already allocated"].iter().any(|words| error.contains(words))
}
