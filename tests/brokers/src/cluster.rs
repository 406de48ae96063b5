//! A RabbitMQ cluster of three nodes, each on its own simulated machine.

use crate::network::Network;
use crate::node::Site;
use crate::ports::{free_port, random};
use crate::{Node, Version, install};
use anyhow::{Context as _, Result};
use std::sync::Arc;

/// Number of nodes: the minimum for a cluster that survives the loss of one.
const NODES: u8 = 3;

/// Three nodes in three network namespaces, joined. The minority of a partitioned cluster pauses, as RabbitMQ recommends for
/// three nodes. To keep tests short, nodes consider each other lost after four seconds of silence (RabbitMQ's default: 60), and
/// an unconfirmed dead letter is sent again after ten (180).
///
/// Everything is removed when this is dropped, or when the test process dies. All methods block.
#[derive(Debug, Clone)]
pub struct Cluster {
    nodes: Vec<Node>,
    network: Arc<Network>,
}

impl Cluster {
    /// Checks that this machine can run a cluster.
    ///
    /// # Errors
    /// If the version is not installed (a broker elsewhere, or in a container, is not enough), or networks cannot be created.
    pub fn possible(version: Version) -> Result<()> {
        install::find(version)
            .with_context(|| format!("RabbitMQ {version} is not installed on this machine"))?;
        Network::possible()
    }

    /// Starts three nodes of `version`; returns when they have joined and accept AMQP connections. Needs root.
    ///
    /// # Errors
    /// When the version is not installed, the network cannot be made, or a node does not start.
    pub fn start(version: Version) -> Result<Cluster> {
        let installation = install::find(version).with_context(|| {
            format!("RabbitMQ {version} is not installed: run `cargo xtask test` as root")
        })?;
        let network = Arc::new(Network::lay(NODES)?);
        let (id, cookie) = (format!("{:016x}", random()), format!("{:016X}", random()));
        // All use the same ports: each has its own address.
        let (amqp, dist, epmd) = (free_port()?, free_port()?, free_port()?);
        let member = |host: &crate::network::Host| format!("redrive-{id}@{}", host.name);
        let members = network.hosts().iter().map(member).enumerate();
        let mut config = vec![
            "loopback_users.guest = false".to_owned(),
            "cluster_partition_handling = pause_minority".to_owned(),
            "cluster_formation.peer_discovery_backend = classic_config".to_owned(),
            // A node whose neighbours start half a minute later would otherwise form its own cluster. Not longer: a restarted node looks
            // for them too; with ten minutes, one restart took five.
            "cluster_formation.discovery_retry_limit = 60".to_owned(),
            "cluster_formation.discovery_retry_interval = 500".to_owned(),
        ];
        config.extend(
            members.map(|(number, name)| {
                format!("cluster_formation.classic_config.nodes.{} = {name}", number + 1)
            }),
        );
        let config: Vec<&str> = config.iter().map(String::as_str).collect();
        let nodes = network.hosts().iter().map(|host| {
            let site = Site {
                host: host.clone(),
                _network: Arc::clone(&network),
                cookie: cookie.clone(),
                dist,
                epmd,
            };
            Node::on(&installation, &format!("{id}-{}", host.name), &member(host), amqp, &config, site)
        });
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        // Concurrently: they wait for each other.
        std::thread::scope(|scope| {
            let starting: Vec<_> = nodes.iter().map(|node| scope.spawn(|| node.restart())).collect();
            starting.into_iter().try_for_each(|start| start.join().expect("starting a node panicked"))
        })?;
        nodes[0].ctl(&["await_online_nodes", &NODES.to_string()])?;
        Ok(Cluster { nodes, network })
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the number of the node that leads a quorum queue, as node `asked` reports it.
    ///
    /// # Errors
    /// When that node does not know.
    pub fn leader(&self, queue: &str, asked: usize) -> Result<usize> {
        let queues = self.nodes[asked].ctl(&["list_queues", "name", "leader"])?;
        let of = |line: &str| {
            let (name, leader) = line.split_once('\t')?;
            (name == queue).then(|| leader.trim().to_owned())
        };
        let leader = queues.lines().find_map(of).with_context(|| format!("no queue `{queue}`: {queues}"))?;
        let number = self.nodes.iter().position(|node| node.name() == leader);
        number.with_context(|| format!("`{queue}` has no leader: `{leader}`"))
    }

    /// Divides a node from the two others, or ends that. Its clients still reach it.
    ///
    /// # Errors
    /// When the network cannot be changed.
    pub fn divide(&self, node: usize, divided: bool) -> Result<()> {
        self.network.inner_cable(node, !divided)
    }

    /// Divides a node from everybody, or ends that.
    ///
    /// # Errors
    /// When the network cannot be changed.
    pub fn isolate(&self, node: usize, isolated: bool) -> Result<()> {
        self.network.inner_cable(node, !isolated)?;
        self.network.outer_cable(node, !isolated)
    }
}
