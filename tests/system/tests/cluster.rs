//! Three nodes under load lose one: the leader is killed, one is partitioned from the others, all are restarted one by one.
//! Every message ends, and work continues on the other two.
//!
//! RabbitMQ 4.3 with the ladder always runs; 3.10, and the other delay modes on 4.3, run with `REDRIVE_CLUSTER=all`, because they
//! take a minute and a half more each.
//! `REDRIVE_CLUSTER_MESSAGES` sets the minimum number of messages for each fault, by default 600; more are published until the
//! fault
//! is over.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use redrive::{Shelf, Shelves as _};
use redrive_brokers::{Cluster, Node, report};
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::load::{Load, Pulse};
use redrive_system_tests::rabbit::{Rabbit, declare_and_wait};
use redrive_system_tests::verdict::{Interruptions, judge, unended};
use redrive_system_tests::{Combination, Delays, QueueType, Version, poll_again, within};
use tokio::time::{Sleep, sleep};

mod v3_10 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cluster_that_loses_a_node_loses_no_message() {
        if super::all() {
            super::no_message_is_lost(super::Version::V3_10, &[super::Delays::Ladder]).await;
        } else {
            super::report("NOT RUN: the cluster of RabbitMQ 3.10 (set REDRIVE_CLUSTER=all)");
        }
    }
}

mod v4_3 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_cluster_that_loses_a_node_loses_no_message() {
        super::no_message_is_lost(super::Version::V4_3, &[super::Delays::Ladder]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn nor_does_it_with_another_delay_mode() {
        if super::all() {
            super::no_message_is_lost(super::Version::V4_3, &super::Delays::ALL[1..]).await;
        } else {
            super::report(
                "NOT RUN: native, single-queue and staged on the cluster of RabbitMQ 4.3 (set REDRIVE_CLUSTER=all)",
            );
        }
    }
}

fn all() -> bool {
    std::env::var("REDRIVE_CLUSTER").is_ok_and(|which| which == "all")
}

/// Interval at which the logs of the workers are read.
const LOOK: Duration = Duration::from_millis(5);
/// Interval at which a node is asked again.
const ASK: Duration = Duration::from_millis(200);
/// How long a node stays partitioned: the others must give it up, and it must notice.
const DIVIDED: Duration = Duration::from_secs(8);
/// A start that takes this many seconds hangs; a normal one takes 5 to 40.
const STARTS_WITHIN: &str = "120";
/// How long the nodes are under load before the fault.
const HANDLED_BEFORE: usize = 100;

async fn no_message_is_lost(version: Version, modes: &[Delays]) {
    let limit = Duration::from_secs(3600) * u32::try_from(modes.len()).unwrap();
    let what = format!("the cluster of RabbitMQ {version}");
    // A laptop without root, a broker in a container: reported at the end of the run, not a failure.
    if let Err(why) = tokio::task::spawn_blocking(move || Cluster::possible(version)).await.unwrap() {
        return report(&format!("NOT RUN: {what}: {why:#}"));
    }
    within(limit, &what, async {
        let began = Instant::now();
        let cluster = tokio::task::spawn_blocking(move || Cluster::start(version)).await.unwrap().unwrap();
        let start = began.elapsed();
        for &delays in modes {
            let on = Combination { delays, ..Combination::new(version, QueueType::Quorum) };
            leader_killed(&cluster, on).await;
            minority_divided(&cluster, on).await;
            restarted_one_by_one(&cluster, on).await;
        }
        report(&format!(
            "{what}: {:.0} s to start, {:.0} s in all",
            start.as_secs_f64(),
            began.elapsed().as_secs_f64()
        ));
    })
    .await;
}

async fn leader_killed(cluster: &Cluster, on: Combination) {
    let mut scene = Scene::set(cluster, on, "leader-killed").await;
    let leader = scene.leader().await;
    let node = cluster.nodes()[leader].clone();
    scene.during("the leader dies", node.aside(Node::kill)).await.unwrap();
    // The others continue without it.
    scene.go_on(HANDLED_BEFORE).await;
    scene.during("it starts again", node.aside(Node::restart)).await.unwrap();
    scene.end("leader of the work queue killed (SIGKILL) and restarted", 1).await;
}

async fn minority_divided(cluster: &Cluster, on: Combination) {
    let mut scene = Scene::set(cluster, on, "divided").await;
    let leader = scene.leader().await;
    cluster.divide(leader, true).unwrap();
    let until = Instant::now() + DIVIDED;
    scene.go_on(HANDLED_BEFORE).await;
    scene.during("the division is noticed", tokio::time::sleep_until(until.into())).await;
    cluster.divide(leader, false).unwrap();
    let what = format!("leader divided from the two others for {} s", until_now(until));
    scene.comes_back(leader).await;
    scene.end(&what, 2).await;
}

fn until_now(until: Instant) -> u64 {
    (DIVIDED + until.elapsed()).as_secs()
}

async fn restarted_one_by_one(cluster: &Cluster, on: Combination) {
    let mut scene = Scene::set(cluster, on, "restarted").await;
    for node in cluster.nodes() {
        if let Err(error) = scene.during("a node stops", node.aside(Node::stop)).await {
            // The restart kills it, as a service manager does. That must not lose messages either.
            report(&format!("{on}: a node does not stop in time, and is killed"));
            eprintln!("{error:#}");
        }
        scene.during("it starts again", node.aside(Node::restart)).await.unwrap();
        scene.whole().await;
    }
    scene.end("all three restarted in order, one by one", 3).await;
}

/// A queue with load: a producer, and a worker on each node that connects to another node if it loses its own.
struct Scene<'a> {
    cluster: &'a Cluster,
    on: Combination,
    queue: String,
    workers: Vec<Fleet>,
    load: Load,
    pulse: Pulse,
    deadline: Instant,
}

impl<'a> Scene<'a> {
    async fn set(cluster: &'a Cluster, on: Combination, what: &str) -> Self {
        let deadline = Instant::now() + Duration::from_secs(900);
        let nodes = cluster.nodes();
        let queue = &format!("{what}-{}", on.delays.word());
        on.delays.prepare(&nodes[0].url(), queue).await;
        // The node that declares the queues will lead them.
        let declaring = on.options(queue).connect_any(urls(nodes, 0)).await.unwrap();
        declare_and_wait(&declaring).await;
        let address = |first| urls(nodes, first).join(",");
        let mut first = Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, on, &address(0), queue);
        let others = [first.beside(&address(1)), first.beside(&address(2))];
        first.start();
        first.until(deadline, "a worker starts", |log| log.started == 1).await;
        let mut workers: Vec<Fleet> = [first].into_iter().chain(others).collect();
        workers[1..].iter_mut().for_each(Fleet::start);
        workers[0].until(deadline, "all workers start", |log| log.started == 3).await;
        let transport = on.options(queue).connect_any(urls(nodes, 1)).await.unwrap();
        let load = Load::start(transport);
        let mut scene =
            Self { cluster, on, queue: queue.clone(), workers, load, pulse: Pulse::default(), deadline };
        scene.go_on(HANDLED_BEFORE).await;
        scene.pulse = Pulse::default();
        scene
    }

    async fn leader(&self) -> usize {
        loop {
            let (cluster, queue) = (self.cluster.clone(), self.queue.clone());
            match tokio::task::spawn_blocking(move || cluster.leader(&queue, 1)).await.unwrap() {
                Ok(leader) => return leader,
                // Nodes that stall for seconds elect another leader.
                Err(error) => self.patience(&format!("the queue has a leader: {error:#}")),
            }
        }
    }

    /// Waits until this many more messages were handled.
    async fn go_on(&mut self, more: usize) {
        let before = self.look();
        while self.look() < before + more {
            self.poll_again(LOOK, "work goes on").await;
        }
    }

    /// Checks the workers while waiting for `what`.
    async fn during<T>(&mut self, what: &str, action: impl Future<Output = T>) -> T {
        let mut action = std::pin::pin!(action);
        loop {
            tokio::select! {
                done = &mut action => return done,
                () = self.poll_again(LOOK, what) => {}
            }
            self.look();
        }
    }

    fn look(&mut self) -> usize {
        self.workers[0].log.catch_up();
        let handled = self.workers[0].log.records.values().filter(|record| record.handled > 0).count();
        self.pulse.beat(handled);
        handled
    }

    fn poll_again(&self, every: Duration, what: &str) -> Sleep {
        poll_again(every, self.deadline, || format!("{what}; {}", self.workers[0].state()))
    }

    fn patience(&self, what: &str) {
        assert!(Instant::now() < self.deadline, "not in time: {what}; {}", self.workers[0].state());
    }

    /// Waits until the partitioned node has started again.
    ///
    /// RabbitMQ 3.10.8 with Erlang 25.1 or later sometimes hangs in that start until it is killed: `global:sync` never
    /// ends (<https://github.com/rabbitmq/rabbitmq-server/issues/6034>).
    async fn comes_back(&mut self, number: usize) {
        let node = self.cluster.nodes()[number].clone();
        let started = node.aside(|node| node.ctl(&["await_startup", "--timeout", STARTS_WITHIN]));
        if let Err(error) = self.during("the divided node starts again", started).await {
            report(&format!("{}: the divided node hangs in its start, and is killed: {error:#}", self.on));
            self.during("it starts again", node.aside(Node::restart)).await.unwrap();
        }
    }

    /// Waits until all queues have all their members again.
    async fn whole(&mut self) {
        loop {
            let node = self.cluster.nodes()[1].clone();
            let asked = node.aside(|node| node.ctl(&["list_queues", "name", "online"]));
            let queues = self.during("a node lists its queues", asked).await.unwrap_or_default();
            let ours = queues.lines().filter(|line| line.starts_with(&self.queue));
            let online: Vec<usize> = ours.map(|line| line.matches('@').count()).collect();
            if !online.is_empty() && online.iter().all(|members| *members == 3) {
                return;
            }
            self.patience("all queues have three members");
        }
    }

    /// Waits until every message has ended, and reports how.
    async fn end(mut self, what: &str, faults: u32) {
        self.load.stop_at(messages());
        let ids = loop {
            self.look();
            if let Some(ids) = self.load.done() {
                break ids;
            }
            self.poll_again(LOOK, "all is published").await;
        };
        let on = self.on;
        let addresses = urls(self.cluster.nodes(), 1);
        let transport = loop {
            match on.options(&self.queue).connect_any(&addresses).await {
                Ok(transport) => break transport,
                Err(error) => self.poll_again(ASK, &format!("a node takes a connection: {error}")).await,
            }
        };
        let shelves = transport.shelves();
        let (mut looked, mut rests) = (Instant::now(), Vec::new());
        loop {
            self.look();
            if looked.elapsed() > Duration::from_millis(500) {
                let browsed = shelves.browse(Shelf::DeadLetter, None, usize::MAX);
                rests = self.during("the shelf is browsed", browsed).await.unwrap_or_default().entries;
                looked = Instant::now();
            }
            let left = unended(&ids, &self.workers[0].log, &rests);
            if left.is_empty() {
                break;
            }
            let what = format!("all ended; {} did not: {:?}", left.len(), &left[..left.len().min(20)]);
            self.poll_again(LOOK, &what).await;
        }
        self.empty(&addresses).await;
        let rests = loop {
            // Read again: something may have been redelivered meanwhile.
            let rests = shelves.browse(Shelf::DeadLetter, None, usize::MAX).await.unwrap_or_default().entries;
            if unended(&ids, &self.workers[0].log, &rests).is_empty() {
                break rests;
            }
            self.poll_again(ASK, "the shelf is as it was").await;
        };
        // Every fault cuts the connections of one worker, and what the new leader does not know may be redelivered.
        let interruptions =
            Interruptions { workers: 0, brokers: 3 * faults, charged: on.delays.charges_interruptions() };
        let verdict = judge(&ids, &self.workers[0].log, &rests, interruptions);
        report(&format!(
            "cluster of three {on}, {what}: {verdict}; longest pause {:.1} s without a message handled, {:.1} s \
             without a confirm for the producer, {} published again because their confirm did not come",
            self.pulse.longest().as_secs_f64(),
            self.load.longest_pause().as_secs_f64(),
            self.load.twice(),
        ));
    }

    /// Waits until nothing is left in the work queue and the delay queues, also after the workers have returned what they held.
    async fn empty(&mut self, addresses: &[String]) {
        loop {
            for worker in &mut self.workers {
                worker.stop().await;
            }
            self.workers[0].log.catch_up();
            // These numbers do not include a message that the broker holds back.
            sleep(self.on.delays.unseen_for()).await;
            let left = self.left(addresses).await;
            if left.is_empty() {
                return;
            }
            self.workers.iter_mut().for_each(Fleet::start);
            // The workers may act meanwhile.
            self.poll_again(Duration::from_millis(500), &format!("the queues are empty; {left:?}")).await;
        }
    }

    /// Number of ready messages in the work queue and the delay queues, without empty ones.
    async fn left(&self, addresses: &[String]) -> HashMap<String, u32> {
        let queues = self.on.delays.queues(&self.queue).into_iter().chain([self.queue.clone()]);
        let queues: Vec<String> = queues.collect();
        for address in addresses.iter().cycle() {
            // Perhaps not every node is back.
            if let Some(left) = ready(address, &queues).await {
                return left;
            }
            self.poll_again(ASK, "a node tells what is in the queues").await;
        }
        unreachable!("there are nodes")
    }
}

/// `None` if this node does not answer.
async fn ready(address: &str, queues: &[String]) -> Option<HashMap<String, u32>> {
    let rabbit = Rabbit::try_connect(address).await.ok()?;
    let mut left = HashMap::new();
    for queue in queues {
        let ready = rabbit.ready(queue).await?;
        if ready > 0 {
            left.insert(queue.clone(), ready);
        }
    }
    Some(left)
}

fn messages() -> usize {
    let set = std::env::var("REDRIVE_CLUSTER_MESSAGES").ok();
    set.map_or(600, |number| number.parse().expect("REDRIVE_CLUSTER_MESSAGES is a number"))
}

/// The addresses of all nodes, this one first.
fn urls(nodes: &[Node], first: usize) -> Vec<String> {
    (first..first + nodes.len()).map(|number| nodes[number % nodes.len()].url()).collect()
}
