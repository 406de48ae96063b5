//! The kill test: the broker dies again and again while each message fails three times.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use lapin::options::BasicGetOptions;
use parking_lot::Mutex;
use redrive::prelude::*;
use redrive::rabbitmq::{Delay, Native, QueueType};
use redrive_brokers::{Cluster, Node, Version};
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::observed::{FAILURES, Observed};
use super::{Mode, QUEUE, channel, declare, publish};

/// The wait of each retry.
const WAIT: Duration = Duration::from_secs(2);
/// Without an attempt for so long, what is left is lost. The broker itself sends again after three minutes what it lost on its way.
const SILENCE: Duration = Duration::from_secs(240);
const PREFETCH: u32 = 200;

/// Settings of the test.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[arg(long, default_value_t = 20_000)]
    messages: usize,
    /// How often the node is killed, at even parts of the work.
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Three nodes instead: one is killed, later one is divided from the others.
    #[arg(long)]
    cluster: bool,
    /// Only these; may be repeated.
    #[arg(long)]
    mode: Vec<Mode>,
}

pub(super) async fn run(plan: &Plan) -> Result<()> {
    let modes = if plan.mode.is_empty() { &Mode::ALL[..] } else { &plan.mode };
    for &mode in modes {
        let brokers = tokio::task::spawn_blocking({
            let cluster = plan.cluster;
            move || {
                if cluster {
                    Cluster::start(Version::V4_3).map(Brokers::Three)
                } else {
                    one_node().map(Brokers::One)
                }
            }
        });
        run_mode(mode, plan, brokers.await??).await?;
    }
    Ok(())
}

fn one_node() -> Result<Node> {
    Node::with_config(Version::V4_3, &["vm_memory_high_watermark.absolute = 4GB"])
}

#[derive(Clone)]
enum Brokers {
    One(Node),
    Three(Cluster),
}

impl Brokers {
    fn nodes(&self) -> &[Node] {
        match self {
            Self::One(node) => std::slice::from_ref(node),
            Self::Three(cluster) => cluster.nodes(),
        }
    }
}

/// The messages of a run, and what was seen of them.
#[derive(Clone)]
struct Watched(Arc<Mutex<Observed>>);

impl Watched {}

impl Watched {
    /// How many messages succeeded, and how many attempts there were.
    fn progress(&self) -> (usize, usize) {
        let observed = self.0.lock();
        (observed.succeeded(), observed.handled())
    }
}

async fn run_mode(mode: Mode, plan: &Plan, brokers: Brokers) -> Result<()> {
    let watched = Watched(Arc::new(Mutex::new(Observed::new(plan.messages, WAIT))));
    let url = brokers.nodes()[0].url();
    let worker = match mode {
        Mode::InPlace => {
            declare(&url, QUEUE, &[]).await?;
            tokio::spawn(in_place(brokers.clone(), watched.clone()))
        }
        Mode::Ladder | Mode::Native => {
            let delay =
                if matches!(mode, Mode::Native) { Native::between(WAIT, WAIT).into() } else { Delay::Ladder };
            let urls: Vec<_> = brokers.nodes().iter().map(Node::url).collect();
            let options =
                RabbitMq::options(QUEUE).queue_type(QueueType::Quorum).delivery_limit(100_000).delay(delay);
            let consumer = with_redrive(options.connect_any(&urls).await?, watched.clone());
            let handle = consumer.handle();
            let running =
                tokio::spawn(async move { consumer.run().await.map(drop).context("the consumer ended") });
            handle.wait_for_health(redrive::Health::is_ready).await;
            running
        }
    };
    // A quorum queue that is killed in its first seconds may come back broken.
    sleep(Duration::from_secs(5)).await;
    eprintln!("{mode:?}: publishing");
    let began = Instant::now();
    publish(&url, QUEUE, 0..plan.messages).await?;
    let faults = tokio::spawn(faults(brokers.clone(), watched.clone(), plan.messages, plan.kills));
    let mut last = (0, Instant::now());
    loop {
        sleep(Duration::from_millis(500)).await;
        let (succeeded, handled) = watched.progress();
        if handled != last.0 {
            eprint!("\r{mode:?}: {handled} handled, {succeeded} succeeded ");
            last = (handled, Instant::now());
        }
        if succeeded == plan.messages && faults.is_finished() || last.1.elapsed() > SILENCE {
            break;
        }
    }
    // What was acknowledged and is handed out again would come now.
    sleep(3 * WAIT).await;
    let faults = timeout(Duration::from_secs(60), faults).await.context("the faults did not end")???;
    worker.abort();
    let nodes = brokers.nodes();
    let shelved = shelved(&url).await?;
    watched.0.lock().shelve(&shelved);
    let verdict = watched.0.lock().verdict();
    if verdict.lost > 0 {
        let list = ["list_queues", "name", "messages_ready", "messages_unacknowledged", "messages"];
        println!("{}", nodes[0].aside(move |node| node.ctl(&list)).await?);
    }
    println!("{mode:?}: {} messages, {faults}, {:.0?}: {verdict}", plan.messages, began.elapsed());
    Ok(())
}

/// Kills at even parts of the work. Returns what was done.
async fn faults(brokers: Brokers, watched: Watched, messages: usize, kills: usize) -> Result<String> {
    let all = messages * (FAILURES as usize + 1);
    let at = async |part: usize, of: usize| {
        while watched.0.lock().handled() < all * part / of {
            sleep(Duration::from_millis(5)).await;
        }
    };
    match brokers {
        Brokers::One(node) => {
            for kill in 0..kills {
                at(2 * kill + 1, 2 * kills).await;
                node.aside(|node| node.kill().and_then(|()| node.restart())).await?;
            }
            Ok(format!("killed {kills} times"))
        }
        Brokers::Three(cluster) => {
            let leader = |cluster: &Cluster| cluster.leader(QUEUE, 0).or_else(|_| cluster.leader(QUEUE, 1));
            at(1, 4).await;
            let killed = tokio::task::spawn_blocking({
                let cluster = cluster.clone();
                move || {
                    let number = leader(&cluster)?;
                    let node = &cluster.nodes()[number];
                    node.kill()?;
                    std::thread::sleep(Duration::from_secs(5));
                    node.restart().map(|()| number)
                }
            });
            let killed = killed.await??;
            at(2, 4).await;
            let divided = tokio::task::spawn_blocking(move || {
                let number = leader(&cluster)?;
                cluster.divide(number, true)?;
                std::thread::sleep(Duration::from_secs(20));
                cluster.divide(number, false).map(|()| number)
            });
            Ok(format!("node {killed} killed, node {} divided, both leaders", divided.await??))
        }
    }
}

/// Works until it is aborted; connects again when its connection ends.
async fn in_place(brokers: Brokers, watched: Watched) -> Result<()> {
    let addresses: Vec<_> = brokers.nodes().iter().map(Node::address).collect();
    for address in addresses.iter().cycle() {
        let ended = match timeout(Duration::from_secs(10), Client::attach(*address, QUEUE, PREFETCH)).await {
            Ok(Ok(client)) => in_place_until_it_breaks(client, &watched).await,
            Ok(Err(error)) => error,
            Err(_) => anyhow::anyhow!("no answer to the attach"),
        };
        eprintln!("connects again: {ended:#}");
        sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The numbers of the messages on redrive's shelf; it is emptied.
async fn shelved(url: &str) -> Result<Vec<u32>> {
    let (connection, channel) = channel(url).await?;
    let mut shelved = Vec::new();
    let shelf = format!("{QUEUE}--dead-letters");
    // Retries in place have no shelf.
    while let Ok(Some(got)) = channel.basic_get(shelf.as_str().into(), BasicGetOptions { no_ack: true }).await
    {
        shelved.push(std::str::from_utf8(&got.delivery.data)?.parse()?);
    }
    if connection.status().connected() {
        connection.close(200, "OK".into()).await?;
    }
    Ok(shelved)
}

async fn in_place_until_it_breaks(mut client: Client, watched: &Watched) -> anyhow::Error {
    let mut settled = 0;
    loop {
        let worked = async {
            let arrival = client.next().await?;
            let now = Instant::now();
            let succeeds = watched.0.lock().saw(arrival.id, arrival.attempt, arrival.broker_count, now);
            if succeeds {
                client.accept(arrival).await?;
            } else {
                client.retry(arrival, WAIT, "the bank is closed").await?;
            }
            settled += 1;
            if settled == PREFETCH / 4 {
                // The credit that is left may be less than half by then.
                client.allow(PREFETCH).await?;
                settled = 0;
            }
            anyhow::Ok(())
        };
        if let Err(error) = worked.await {
            return error;
        }
    }
}

fn with_redrive(transport: RabbitMq, watched: Watched) -> redrive::Runner<RabbitMq> {
    Consumer::new(transport)
        .prefetch(PREFETCH)
        .concurrency(PREFETCH as usize)
        // The broker's count includes its deaths.
        .with_dead_letter_backoff(DeadLetterBackoff::new([WAIT; FAILURES as usize]).poison_after(1000))
        .handler(move |delivery: Delivery| {
            let watched = watched.clone();
            async move {
                let id = std::str::from_utf8(delivery.message().body())?.parse()?;
                let above = delivery.broker_delivery_count().saturating_sub(1);
                let succeeds = watched.0.lock().saw(id, delivery.attempt(), above, Instant::now());
                if succeeds { Ok(()) } else { Err(BoxError::from("the bank is closed")) }
            }
        })
}

/// Fails if no message can be lost by the test itself.
pub(super) fn check(plan: &Plan) -> Result<()> {
    ensure!(plan.messages > 0 && plan.kills > 0, "without messages or kills nothing is shown");
    Ok(())
}
