//! Machines of one network, on this machine: a network namespace for each, and two cables.
//!
//! One cable leads to the switch that connects the machines, the other to this machine, where clients run. A pulled cable silently
//! drops everything, as between real machines.

use crate::command::run;
use crate::ports::random;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Sets one machine apart: its own network, its own name, and the names of its neighbours. `$1` its name, `$2` the file
/// with the names.
const ENTER: &str = r#"
hostname "$1"
mount --bind "$2" /etc/hosts
shift 2
exec "$@"
"#;

/// Machines and their connections. Removed when this is dropped, or when the test process dies.
#[derive(Debug)]
pub(crate) struct Network {
    id: String,
    hosts: Vec<Host>,
    _cleaner: Cleaner,
}

/// One of the machines.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// Its name for its neighbours.
    pub(crate) name: String,
    /// Its address for its neighbours.
    pub(crate) inner: Ipv4Addr,
    /// Its address for this machine.
    pub(crate) outer: Ipv4Addr,
    namespace: String,
    names: PathBuf,
}

impl Network {
    /// Checks that this machine can create networks: creates a small one, and removes it.
    pub(crate) fn possible() -> Result<()> {
        let namespace = format!("redrive-{:06x}-probe", random() & 0xff_ffff);
        ip(&format!("netns add {namespace}"))
            .context("no network namespaces here: they need root, the right to make them, and iproute2")?;
        let bridge = ip(&format!("-n {namespace} link add switch type bridge"));
        let cable = ip(&format!("-n {namespace} link add one type veth peer name two"));
        ip(&format!("netns del {namespace}"))?;
        bridge.and(cable).context("no bridges or cables between network namespaces here")
    }

    /// A network of this many machines, up to 60, all cables plugged in.
    pub(crate) fn lay(machines: u8) -> Result<Network> {
        run(Command::new("ip").arg("netns")).context(
            "a cluster on one machine needs network namespaces: run this as root, with the right to make them, and with \
             `ip` (package iproute2) installed",
        )?;
        let id = format!("{:06x}", random() & 0xff_ffff);
        // A private network of random number: other tests lay theirs meanwhile.
        let [_, b, c, _] = u32::try_from(random() & 0xffff_ffff)?.to_be_bytes();
        let names = std::env::temp_dir().join(format!("redrive-hosts-{id}"));
        let host = |number: u8| Host {
            name: format!("n{number}"),
            inner: Ipv4Addr::new(172, 16 + c % 16, b, number),
            outer: Ipv4Addr::new(10, b, c, 4 * number + 2),
            namespace: format!("redrive-{id}-n{number}"),
            names: names.clone(),
        };
        let hosts: Vec<Host> = (1..=machines).map(host).collect();
        let switch = format!("redrive-{id}-switch");
        // Dead connections can keep a namespace, and with it the cables, for minutes.
        let cables = (0..hosts.len()).map(|number| format!("link del {}", plug(&id, number)));
        let namespaces = hosts.iter().map(|host| &host.namespace).chain([&switch]);
        let namespaces = namespaces.map(|namespace| format!("netns del {namespace}"));
        let cleaner = Cleaner::start(&names, cables.chain(namespaces))?;
        let lines: String = hosts.iter().map(|host| format!("{} {}\n", host.inner, host.name)).collect();
        fs::write(&names, format!("127.0.0.1 localhost\n{lines}"))?;

        let network = Network { id, hosts, _cleaner: cleaner };
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add switch type bridge"))?;
        ip(&format!("-n {switch} link set switch up"))?;
        for (number, host) in network.hosts.iter().enumerate() {
            network.connect(number, host, &switch)?;
        }
        Ok(network)
    }

    fn connect(&self, number: usize, host: &Host, switch: &str) -> Result<()> {
        let Host { name, inner, outer, namespace, .. } = host;
        let plug = plug(&self.id, number);
        let [a, b, c, d] = outer.octets();
        let here = Ipv4Addr::new(a, b, c, d - 1);
        for command in [
            format!("netns add {namespace}"),
            format!("-n {namespace} link set lo up"),
            format!("link add {name} netns {switch} type veth peer name inner netns {namespace}"),
            format!("-n {switch} link set {name} master switch up"),
            format!("-n {namespace} addr add {inner}/24 dev inner"),
            format!("-n {namespace} link set inner up"),
            format!("link add {plug} type veth peer name outer netns {namespace}"),
            format!("addr add {here}/30 dev {plug}"),
            format!("link set {plug} up"),
            format!("-n {namespace} addr add {outer}/30 dev outer"),
            format!("-n {namespace} link set outer up"),
        ] {
            ip(&command)?;
        }
        Ok(())
    }

    pub(crate) fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Plugs or pulls the cable between a machine and its neighbours.
    pub(crate) fn inner_cable(&self, number: usize, plugged: bool) -> Result<()> {
        let host = self.hosts.get(number).context("there is no such machine")?;
        ip(&format!("-n redrive-{}-switch link set {} {}", self.id, host.name, state(plugged)))
    }

    /// Plugs or pulls the cable between a machine and its clients.
    pub(crate) fn outer_cable(&self, number: usize, plugged: bool) -> Result<()> {
        ensure!(number < self.hosts.len(), "there is no such machine");
        ip(&format!("link set {} {}", plug(&self.id, number), state(plugged)))
    }
}

/// The end of a cable on this machine. Names of interfaces have at most 15 characters.
fn plug(id: &str, number: usize) -> String {
    format!("rd-{id}-{}", number + 1)
}

impl Host {
    /// The same command, run on this machine of the network. Its environment must be set afterwards.
    pub(crate) fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.namespace));
        inside.args(["unshare", "--mount", "--uts", "--propagation", "private"]);
        inside.args(["sh", "-ec", ENTER, "sh", &self.name]).arg(&self.names);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }
}

fn state(plugged: bool) -> &'static str {
    if plugged { "up" } else { "down" }
}

fn ip(arguments: &str) -> Result<()> {
    run(Command::new("ip").args(arguments.split(' '))).map(drop)
}

/// Removes the network when this process ends, however it ends: a shell that reads from a pipe, as in
/// [`Watcher`](crate::process::Watcher).
#[derive(Debug)]
struct Cleaner(Child);

impl Cleaner {
    /// Removes the file with the names, and runs these commands of `ip`.
    fn start(names: &Path, commands: impl Iterator<Item = String>) -> Result<Cleaner> {
        let script = r#"
            read -r _
            rm -f "$1"; shift
            for command in "$@"; do ip $command; done
        "#;
        let shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(names)
            .args(commands)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the test's process group: a signal to that must not end it before it has cleaned up.
            .process_group(0)
            .spawn()
            .context("could not run sh to watch over the network")?;
        Ok(Cleaner(shell))
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}
