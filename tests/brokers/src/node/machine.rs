//! A node as processes of this machine: the broker, and its own epmd.

use super::{Engine, START, Setup, Site, configuration};
use crate::command::tail;
use crate::install::Installation;
use crate::ports::{free_port, random};
use crate::process::{Group, Watcher};
use anyhow::{Context as _, Result, ensure};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Debian's `/usr/sbin/rabbitmq-server` is a wrapper that switches user and ignores a private data folder.
const BIN: &str = "/usr/lib/rabbitmq/bin";

/// Time limit of a stop: a node hands over its leaders before it ends.
const STOP: Duration = Duration::from_secs(300);
/// What `rabbitmqctl stop` said.
const STOP_OUTPUT: &str = "stop-output";

/// Seconds of silence (and up to a quarter more) after which nodes of a cluster consider each other lost.
const TICK: u32 = 4;

/// Time after which a delay queue sends a message again whose target lost its leader; RabbitMQ's default is three minutes.
const IN_A_CLUSTER: &str = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 10000}]}].\n";

/// The processes and the folder of one node.
#[derive(Debug)]
pub(super) struct Machine {
    installation: Installation,
    name: String,
    ports: Ports,
    /// The machine of a network on which it runs; `None`: this machine.
    site: Option<Site>,
    data: PathBuf,
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

impl Machine {
    pub(super) fn prepare(
        installation: &Installation,
        id: &str,
        name: &str,
        setup: &Setup<'_>,
    ) -> Result<Machine> {
        let site = setup.site.clone();
        let (dist, epmd) = match &site {
            Some(site) => (site.dist, site.epmd),
            None => (free_port()?, free_port()?),
        };
        let ports = Ports { amqp: setup.port, dist, epmd };
        let data = std::env::temp_dir().join(format!("redrive-broker-{id}"));
        lay_out(&data, setup, &installation.inside(&data))
            .with_context(|| format!("could not fill {}", data.display()))?;
        // The watcher first: from now on the folder is removed when this process ends.
        let watcher = Watcher::start(&data, None)?;
        let mut epmd = installation.command(&data, "epmd");
        epmd.args(["-port", &ports.epmd.to_string()]);
        let mut epmd = match &site {
            Some(site) => site.host.command(&epmd),
            None => {
                epmd.args(["-address", "127.0.0.1"]);
                epmd
            }
        };
        let output = File::create(data.join("epmd-output"))?;
        let epmd = Group::spawn(epmd.stdout(output.try_clone()?).stderr(output))?;
        watcher.cover([&epmd])?;
        let (installation, name) = (installation.clone(), name.to_owned());
        Ok(Machine { installation, name, ports, site, data, server: None, epmd, watcher })
    }

    /// A program of this node's installation, with this node's private environment and nothing else.
    fn command(&self, program: &str) -> Command {
        let Machine { installation, name, ports, data, .. } = self;
        let inside = installation.inside(data);
        let mut command = installation.command(data, program);
        if let Some(site) = &self.site {
            command = site.host.command(&command);
        }
        let [a, b, c, d] = self.site.as_ref().map_or(Ipv4Addr::LOCALHOST, |site| site.host.inner).octets();
        let tick = self.site.as_ref().map_or(String::new(), |_| format!("-kernel net_ticktime {TICK} "));
        command
            .current_dir(data)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", inside.join("home"))
            .env("ERL_EPMD_PORT", ports.epmd.to_string())
            .env("RABBITMQ_NODENAME", name)
            .env("RABBITMQ_NODE_IP_ADDRESS", clients_come_to(self.site.as_ref()).to_string())
            .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
            .env("RABBITMQ_DIST_PORT", ports.dist.to_string())
            .env("RABBITMQ_MNESIA_BASE", inside.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", inside.join("log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", inside.join("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", inside.join("rabbitmq-env.conf"))
            .env("RABBITMQ_ADVANCED_CONFIG_FILE", inside.join("advanced.config"))
            // Without `.conf`: 3.10 adds it.
            .env("RABBITMQ_CONFIG_FILE", inside.join("rabbitmq"))
            // Reachable from this machine only. A scheduler that sleeps at once is woken for every file of a start, which doubles its time.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                format!(
                    "{tick}-kernel inet_dist_use_interface {{{a},{b},{c},{d}}} +sbwt very_short +sbwtdcpu none +sbwtdio very_short"
                ),
            );
        if self.site.is_none() {
            command.env("ERL_EPMD_ADDRESS", "127.0.0.1");
        }
        command
    }

    /// Waits until epmd listens: a broker that finds none would start another one on its port.
    fn await_epmd(&mut self) -> Result<()> {
        let address = (clients_come_to(self.site.as_ref()), self.ports.epmd).into();
        let began = Instant::now();
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            self.epmd_lives()?;
            ensure!(began.elapsed() < START, "epmd does not listen on {address}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn log_files(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(self.data.join("log")).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    fn epmd_lives(&mut self) -> Result<()> {
        ensure!(!self.epmd.ended()?, "epmd ended: is its port {} in use?", self.ports.epmd);
        Ok(())
    }
}

impl Engine for Machine {
    fn start(&mut self) -> Result<()> {
        self.await_epmd()?;
        let output = File::options().create(true).append(true).open(self.data.join("output"))?;
        let mut command = self.command(&format!("{BIN}/rabbitmq-server"));
        let server = Group::spawn(command.stdout(output.try_clone()?).stderr(output))?;
        let server = self.server.insert(server);
        self.watcher.cover([&self.epmd, server])
    }

    fn alive(&mut self) -> Result<()> {
        self.epmd_lives()?;
        let server = self.server.as_mut().context("the node was not started")?;
        ensure!(!server.ended()?, "the node ended");
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        let Some(server) = &mut self.server else { return Ok(()) };
        server.kill()?;
        self.server = None;
        self.watcher.cover([&self.epmd])
    }

    fn stop(&mut self) -> Result<()> {
        let said = File::create(self.data.join(STOP_OUTPUT))?;
        let mut asking = Group::spawn(self.ctl().arg("stop").stdout(said.try_clone()?).stderr(said))?;
        let ended =
            asking.succeeds(STOP).and_then(|()| self.server.as_mut().map_or(Ok(()), |it| it.wait(STOP)));
        if let Err(error) = ended {
            // It waits forever for a node that hangs in its start.
            asking.kill()?;
            return Err(error.context(format!("the node does not stop: {}", self.output())));
        }
        self.server = None;
        self.watcher.cover([&self.epmd])
    }

    fn ctl(&self) -> Command {
        let mut command = self.command(&format!("{BIN}/rabbitmqctl"));
        command.args(["--quiet", "--node", &self.name]);
        command
    }

    fn evaluate(&self) -> Option<Command> {
        let mut command = self.command("erl_call");
        command.args(["-sname", &self.name, "-r", "-fetch_stdout", "-e"]);
        Some(command)
    }

    fn output(&self) -> String {
        [self.data.join("epmd-output"), self.data.join("output"), self.data.join(STOP_OUTPUT)]
            .into_iter()
            .chain(self.log_files())
            .filter_map(|path| Some(tail(&fs::read_to_string(path).ok()?, 25)))
            .collect::<Vec<_>>()
            .join("\n")
    }

    fn log(&self) -> String {
        self.log_files().filter_map(|path| fs::read_to_string(path).ok()).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The watcher, dropped next, removes the folder, and kills remaining processes.
        for group in self.server.iter_mut().chain([&mut self.epmd]) {
            if let Err(error) = group.kill() {
                eprintln!("could not kill the RabbitMQ node {}: {error:#}", self.name);
            }
        }
    }
}

/// Fills the data folder of a new node, which sees it as `inside`.
fn lay_out(data: &Path, setup: &Setup<'_>, inside: &Path) -> Result<()> {
    for folder in ["home", "mnesia", "log"] {
        fs::create_dir_all(data.join(folder))?;
    }
    let cookie = data.join("home/.erlang.cookie");
    let mut cookie = File::options().write(true).create_new(true).mode(0o400).open(cookie)?;
    let site = setup.site.as_ref();
    let secret = site.map_or_else(|| format!("{:016X}", random()), |site| site.cookie.clone());
    cookie.write_all(secret.as_bytes())?;
    fs::write(data.join("enabled_plugins"), setup.enabled_plugins())?;
    fs::write(data.join("rabbitmq-env.conf"), "")?;
    fs::write(data.join("advanced.config"), if site.is_some() { IN_A_CLUSTER } else { "[].\n" })?;
    let mut listener = format!("listeners.tcp.1 = {}:{}\n", clients_come_to(site), setup.port);
    if setup.has_management() {
        let port = setup.management_port;
        listener += &format!("management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n");
    }
    let log = "log.file.level = warning\nlog.console = false\n";
    setup.write_files(&data.join("files"))?;
    let rest = configuration(setup.config, &inside.join("files").to_string_lossy());
    Ok(fs::write(data.join("rabbitmq.conf"), format!("{listener}{log}{rest}"))?)
}

fn clients_come_to(site: Option<&Site>) -> Ipv4Addr {
    site.map_or(Ipv4Addr::LOCALHOST, |site| site.host.outer)
}
