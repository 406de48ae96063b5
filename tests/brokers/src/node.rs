//! A private RabbitMQ node.

use crate::command::{run, tail};
use crate::handshake;
use crate::install::{self, Installation};
use crate::ports::{free_port, random};
use crate::process::{Group, Watcher};
use crate::{Version, env};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const BIN: &str = "/usr/lib/rabbitmq/bin";

/// A start takes 5 to 10 s on an idle machine; test machines are not idle.
const START: Duration = Duration::from_secs(180);

/// A private RabbitMQ node on ports of its own, with data, name, cookie and epmd of its own.
///
/// Clones are the same node. With the last one dropped, or with the test process dead, the node is
/// killed and its data removed. All methods block; inside a runtime go through [`aside`](Node::aside).
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    installation: Installation,
    name: String,
    ports: Ports,
    data: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    server: Option<Group>,
    epmd: Group,
    watcher: Watcher,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    dist: u16,
    epmd: u16,
}

impl Node {
    /// Starts a node of `version`; returns when it accepts AMQP connections.
    ///
    /// # Errors
    /// When the version is not installed (nothing is installed here: see [`install`](crate::install)) or
    /// does not start; with the end of its output.
    pub fn start(version: Version) -> Result<Node> {
        Node::with_config(version, &[])
    }

    /// [`start`](Node::start) with more lines of `rabbitmq.conf`.
    ///
    /// # Errors
    /// As [`start`](Node::start).
    pub fn with_config(version: Version, config: &[&str]) -> Result<Node> {
        let installation = install::find(version).with_context(|| {
            format!(
                "RabbitMQ {version} is not installed; `cargo xtask test` installs it on Debian or Ubuntu, as root"
            )
        })?;
        let mut tries = 0;
        loop {
            tries += 1;
            let started =
                Node::prepare(installation.clone(), config).and_then(|node| node.restart().map(|()| node));
            match started {
                // Free ports are free until another process takes them.
                Err(error) if tries < 4 && format!("{error:#}").contains("in use") => {}
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

    /// Runs a blocking action on this node without holding up the runtime:
    /// `node.aside(|node| node.restart()).await?`.
    ///
    /// # Panics
    /// When `action` panics.
    pub async fn aside<T: Send + 'static>(&self, action: impl FnOnce(&Node) -> T + Send + 'static) -> T {
        let node = self.clone();
        tokio::task::spawn_blocking(move || action(&node)).await.expect("the action on the node panicked")
    }

    /// The URL of the node, for guest on the virtual host `/`.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@{}/%2f", self.address())
    }

    /// Where the node listens for AMQP; for a [`Proxy`](crate::Proxy) in front of it.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.inner.ports.amqp).into()
    }

    /// The version of the node.
    pub fn version(&self) -> Version {
        self.inner.installation.version()
    }

    /// The exact release of the node, for example `3.10.8`.
    pub fn release(&self) -> &str {
        self.inner.installation.release()
    }

    /// What kind of node this is, for reports: `private node`.
    pub fn kind(&self) -> &'static str {
        "private node"
    }

    /// The Erlang name of the node.
    pub fn name(&self) -> &str {
        &self.inner.name
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
        let mut state = self.state();
        let Some(mut server) = state.server.take() else { return Ok(()) };
        server.kill()?;
        state.watcher.cover([&state.epmd])
    }

    /// Starts the node again with the same data, ports and name; kills it first if it is running.
    /// Returns when it accepts AMQP connections.
    ///
    /// # Errors
    /// When it does not start; with the end of its output.
    pub fn restart(&self) -> Result<()> {
        self.kill()?;
        let mut state = self.state();
        let output = File::options().create(true).append(true).open(self.inner.data.join("output"))?;
        let mut server = Group::spawn(
            self.command(&format!("{BIN}/rabbitmq-server")).stdout(output.try_clone()?).stderr(output),
        )?;
        state.watcher.cover([&state.epmd, &server])?;
        let ready = handshake::wait(self.address(), START, || {
            ensure!(!state.epmd.ended()?, "epmd ended: its port {} is in use", self.inner.ports.epmd);
            ensure!(!server.ended()?, "the node ended while starting");
            Ok(())
        });
        // Kept even when it is not ready: whoever drops the node kills what runs.
        state.server = Some(server);
        let opened =
            ready.with_context(|| format!("RabbitMQ {} did not start: {}", self.release(), self.output()))?;
        // A default cluster name is the node's name before the `@`, but the machine's after it.
        let ours = self.inner.name.trim_end_matches("localhost");
        ensure!(
            opened.cluster.starts_with(ours),
            "port {} is in use by the RabbitMQ node {}",
            self.inner.ports.amqp,
            opened.cluster
        );
        Ok(())
    }

    /// Stops the node in good order; returns when it has ended. [`restart`](Node::restart) starts it again.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&self) -> Result<()> {
        self.ctl(&["stop"])?;
        let mut state = self.state();
        if let Some(mut server) = state.server.take() {
            server.wait(Duration::from_secs(60))?;
        }
        state.watcher.cover([&state.epmd])
    }

    /// Runs `rabbitmqctl` on this node and gives back what it printed. Takes one to two seconds.
    ///
    /// # Errors
    /// When it fails; with what it said.
    pub fn ctl(&self, arguments: &[&str]) -> Result<String> {
        run(self
            .command(&format!("{BIN}/rabbitmqctl"))
            .args(["--quiet", "--node", self.name()])
            .args(arguments))
    }

    fn prepare(installation: Installation, config: &[&str]) -> Result<Node> {
        let ports = Ports { amqp: free_port()?, dist: free_port()?, epmd: free_port()? };
        let id = format!("{:016x}", random());
        let data = std::env::temp_dir().join(format!("redrive-broker-{id}"));
        lay_out(&data, ports, config).with_context(|| format!("could not fill {}", data.display()))?;
        // The watcher first: from here on the folder goes away with this process.
        let watcher = Watcher::start(&data)?;
        let mut epmd = installation.command(&data, "epmd");
        epmd.args(["-address", "127.0.0.1", "-port", &ports.epmd.to_string()]);
        let output = File::create(data.join("epmd-output"))?;
        let epmd = Group::spawn(epmd.stdout(output.try_clone()?).stderr(output))?;
        watcher.cover([&epmd])?;
        let state = Mutex::new(State { server: None, epmd, watcher });
        let name = format!("redrive-{id}@localhost");
        Ok(Node { inner: Arc::new(Inner { installation, name, ports, data, state }) })
    }

    /// A program of this node's installation, with this node's private environment and nothing else.
    fn command(&self, program: &str) -> Command {
        let Inner { installation, name, ports, data, .. } = &*self.inner;
        let inside = installation.inside(data);
        let mut command = installation.command(data, program);
        command
            .current_dir(data)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", inside.join("home"))
            .env("ERL_EPMD_PORT", ports.epmd.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", name)
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
            .env("RABBITMQ_DIST_PORT", ports.dist.to_string())
            .env("RABBITMQ_MNESIA_BASE", inside.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", inside.join("log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", inside.join("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", inside.join("rabbitmq-env.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", inside.join("advanced.config"))
            // Without `.conf`: 3.10 adds it.
            .env("RABBITMQ_CONFIG_FILE", inside.join("rabbitmq"))
            // Reachable from this machine only, and no busy waiting: the tests need the processors.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
            );
        command
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of what the node printed and logged, for errors.
    fn output(&self) -> String {
        let logs = fs::read_dir(self.inner.data.join("log")).into_iter().flatten().flatten();
        [self.inner.data.join("epmd-output"), self.inner.data.join("output")]
            .into_iter()
            .chain(logs.map(|entry| entry.path()))
            .filter_map(|path| Some(tail(&fs::read_to_string(path).ok()?, 25)))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The watcher, dropped next, removes the folder, and kills again what does not die here.
        for group in state.server.iter_mut().chain([&mut state.epmd]) {
            if let Err(error) = group.kill() {
                eprintln!("could not kill the RabbitMQ node {}: {error:#}", self.name);
            }
        }
    }
}

/// Fills the data folder of a new node.
fn lay_out(data: &Path, ports: Ports, config: &[&str]) -> Result<()> {
    for folder in ["home", "mnesia", "log"] {
        fs::create_dir_all(data.join(folder))?;
    }
    let cookie = data.join("home/.erlang.cookie");
    let mut cookie = File::options().write(true).create_new(true).mode(0o400).open(cookie)?;
    cookie.write_all(format!("{:016X}", random()).as_bytes())?;
    fs::write(data.join("enabled_plugins"), "[].\n")?;
    fs::write(data.join("rabbitmq-env.conf"), "")?;
    fs::write(data.join("advanced.config"), "[].\n")?;
    let mut lines = vec![
        format!("listeners.tcp.1 = 127.0.0.1:{}", ports.amqp),
        "log.file.level = warning".into(),
        "log.console = false".into(),
        "vm_memory_high_watermark.absolute = 1GB".into(),
        "disk_free_limit.absolute = 50MB".into(),
        // The default of 512 MB is for servers; several nodes run here at once.
        "raft.wal_max_size_bytes = 64000000".into(),
    ];
    lines.extend(config.iter().map(|&line| line.to_owned()));
    lines.push(String::new());
    Ok(fs::write(data.join("rabbitmq.conf"), lines.join("\n"))?)
}
