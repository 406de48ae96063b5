//! Random faults, one after the other, while messages arrive, fail, wait and end: at the end every message is accounted for.
//!
//! 25 seconds as a test. For longer: `cargo xtask soak --minutes 20`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redrive_brokers::{Node, Proxy, own_node, report};
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::load::Load;
use redrive_system_tests::rabbit::declare_and_wait;
use redrive_system_tests::verdict::{Interruptions, judge, to_the_end};
use redrive_system_tests::{Combination, on_both_versions, poll_again};
use tokio::time::sleep;

// Two days: what ends a soak is its own time.
on_both_versions!(172_800; the_books_balance_after_random_faults);

const QUEUE: &str = "soak";
/// How long the rest may take when the faults are over. The broker itself sends again after three minutes what it lost on the
/// way from a delay queue.
const PATIENCE: Duration = Duration::from_secs(900);
/// Shorter soaks tell nothing of what a process keeps: its buffers still fill.
const LONG: Duration = Duration::from_secs(120);

/// How long, how much, how often.
struct Size {
    faults: Duration,
    between_messages: Duration,
    /// In milliseconds.
    between_faults: std::ops::Range<u64>,
    seed: u64,
}

impl Size {
    fn read() -> Self {
        let said = |name: &str| {
            let said = std::env::var(name).ok();
            said.map(|text| text.parse::<u64>().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
        };
        let seed = said("REDRIVE_SOAK_SEED").unwrap_or_else(|| fastrand::u64(..));
        let (seconds, between_messages, between_faults) = match said("REDRIVE_SOAK_MINUTES") {
            // Messages few enough to leave the processors to others.
            Some(minutes) => (60 * minutes, 30, 4000..16_000),
            None => (25, 10, 200..1200),
        };
        let between_messages =
            Duration::from_millis(said("REDRIVE_SOAK_MESSAGE_EVERY_MS").unwrap_or(between_messages));
        Self { faults: Duration::from_secs(seconds), between_messages, between_faults, seed }
    }
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    BrokerKilled,
    BrokerRestarted,
    ConsumerKilled,
    ConnectionsCut,
    ConnectionsRefused,
    ConnectionsSilent,
    ConnectionsSlow,
    MemoryAlarm,
    DiskAlarm,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::BrokerKilled,
        Self::BrokerRestarted,
        Self::ConsumerKilled,
        Self::ConnectionsCut,
        Self::ConnectionsRefused,
        Self::ConnectionsSilent,
        Self::ConnectionsSlow,
        Self::MemoryAlarm,
        Self::DiskAlarm,
    ];
}

async fn the_books_balance_after_random_faults(on: Combination) {
    let size = Size::read();
    let mut scene = Scene::set(on, &size).await;
    let mut faults: BTreeMap<Fault, u32> = BTreeMap::new();
    let until = Instant::now() + size.faults;
    // Each once, in a new order each time, so that a short soak has them all as far as it comes.
    let mut to_come = Vec::new();
    while Instant::now() < until {
        if to_come.is_empty() {
            to_come = Fault::ALL.to_vec();
            scene.dice.shuffle(&mut to_come);
        }
        let fault = to_come.pop().expect("it was just filled");
        scene.suffer(fault).await;
        *faults.entry(fault).or_default() += 1;
        scene.memory.push(scene.workers[0].memory());
        let pause = scene.dice.u64(size.between_faults.clone());
        sleep(Duration::from_millis(pause)).await;
    }
    let of: Vec<_> = faults.iter().map(|(fault, times)| format!("{fault:?} {times}")).collect();
    let (total, memory) = (faults.values().sum::<u32>(), scene.memory.clone());
    let books = scene.close(total).await;
    report(&format!(
        "soak on {on}: {} s, seed {}, {total} faults ({}): {books}; memory of the consumer that was never killed: {}",
        size.faults.as_secs(),
        size.seed,
        of.join(", "),
        remembered(&memory, size.faults)
    ));
}

/// A broker behind a proxy, two workers, a producer with a way of its own.
struct Scene {
    on: Combination,
    node: Node,
    proxy: Proxy,
    /// Only the second is ever killed.
    workers: Vec<Fleet>,
    load: Load,
    dice: fastrand::Rng,
    memory: Vec<u64>,
}

impl Scene {
    async fn set(on: Combination, size: &Size) -> Self {
        eprintln!("soak on {on}: seed {}", size.seed);
        let node = tokio::task::spawn_blocking(move || own_node(on.version)).await.unwrap();
        let proxy = Proxy::start(node.address()).await.unwrap();
        let through = node.url().replace(&node.address().to_string(), &proxy.addr().to_string());
        let transport = on.options(QUEUE).connect(&node.url()).await.unwrap();
        declare_and_wait(&transport).await;
        let mut first = Fleet::new(env!("CARGO_BIN_EXE_worker"), Mode::Chaos, on, &through, QUEUE);
        let deadline = Instant::now() + Duration::from_secs(300);
        first.start();
        first.until(deadline, "a worker starts", |log| log.started == 1).await;
        // Its delay queues are there. On 3.10 one whose broker dies in its first second may never confirm again: that is the
        // broker's fault, and known. Nothing tells how old a queue is.
        sleep(Duration::from_secs(4)).await;
        // It may have stood still so far.
        node.aside(|node| node.ctl(&["list_queues", "name"])).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        let mut second = first.beside(&through);
        second.start();
        let load = Load::with_pause(transport, size.between_messages);
        let dice = fastrand::Rng::with_seed(size.seed);
        Self { on, node, proxy, workers: vec![first, second], load, dice, memory: Vec::new() }
    }

    async fn suffer(&mut self, fault: Fault) {
        match fault {
            Fault::BrokerKilled => self.node.aside(Node::restart).await.unwrap(),
            Fault::BrokerRestarted => {
                self.node.aside(Node::stop).await.unwrap();
                self.node.aside(Node::restart).await.unwrap();
            }
            Fault::ConsumerKilled => self.kill().await,
            Fault::ConnectionsCut => self.proxy.cut(),
            Fault::ConnectionsRefused => {
                self.proxy.refuse(true);
                self.proxy.cut();
                self.last().await;
                self.proxy.refuse(false);
            }
            Fault::ConnectionsSilent => {
                self.proxy.freeze();
                self.last().await;
                self.proxy.thaw();
            }
            Fault::ConnectionsSlow => {
                self.proxy.delay(Duration::from_millis(self.dice.u64(2..40)));
                self.last().await;
                self.proxy.delay(Duration::ZERO);
            }
            Fault::MemoryAlarm => {
                self.ctl(&["set_vm_memory_high_watermark", "absolute", "1"]).await;
                self.last().await;
                self.ctl(&["set_vm_memory_high_watermark", "absolute", "1GB"]).await;
            }
            Fault::DiskAlarm => {
                self.ctl(&["set_disk_free_limit", "1000000GB"]).await;
                self.last().await;
                self.ctl(&["set_disk_free_limit", "50MB"]).await;
            }
        }
    }

    /// The time that a fault lasts. Faults seldom come alone.
    async fn last(&mut self) {
        sleep(Duration::from_millis(self.dice.u64(200..3000))).await;
        match self.dice.u8(0..4) {
            0 => self.kill().await,
            1 => self.proxy.cut(),
            _ => {}
        }
        sleep(Duration::from_millis(self.dice.u64(100..1000))).await;
    }

    async fn kill(&mut self) {
        self.workers[1].kill().await;
        self.workers[1].start();
    }

    async fn ctl(&self, arguments: &'static [&'static str]) {
        self.node.aside(move |node| node.ctl(arguments)).await.unwrap();
    }

    /// Ends the load and waits for what is left; gives back the balance.
    async fn close(mut self, faults: u32) -> String {
        let deadline = Instant::now() + PATIENCE;
        self.load.stop_at(0);
        let ids = loop {
            if let Some(ids) = self.load.done() {
                break ids;
            }
            poll_again(Duration::from_millis(20), deadline, || "the producer ends".to_owned()).await;
        };
        let url = self.node.url();
        let transport = self.on.options(QUEUE).connect(&url).await.unwrap();
        let shelf =
            to_the_end(&ids, &mut self.workers, &transport, (QUEUE, self.on.delays), &url, deadline).await;
        // A fault may take a connection twice, and a process with it.
        let interruptions =
            Interruptions { workers: faults, brokers: 2 * faults, ..Interruptions::default() };
        let verdict = judge(&ids, &self.workers[0].log, &shelf, interruptions);
        assert_eq!(verdict.messages, verdict.acknowledged + verdict.dead_lettered, "the books balance");
        format!(
            "published {} = acknowledged {} + dead-lettered {}; {verdict}; {} published again because their confirm did not \
             come",
            verdict.messages,
            verdict.acknowledged,
            verdict.dead_lettered,
            self.load.twice()
        )
    }
}

/// The middle of the second quarter of the samples, and of the last one; they must not differ much. In the first quarter
/// buffers and the memory of settled deliveries fill.
fn remembered(samples: &[u64], over: Duration) -> String {
    const MEGABYTE: u64 = 1 << 20;
    let quarter = samples.len() / 4;
    if quarter < 5 || over < LONG {
        return format!("{} MB", samples.last().unwrap_or(&0) / MEGABYTE);
    }
    let middle = |samples: &[u64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    let (early, late) = (middle(&samples[quarter..2 * quarter]), middle(&samples[3 * quarter..]));
    let most = samples.iter().max().expect("there are samples");
    assert!(late < early + early / 4 + 8 * MEGABYTE, "the consumer grows: {samples:?}");
    format!(
        "{} MB in the second quarter, {} MB in the last, at most {} MB",
        early / MEGABYTE,
        late / MEGABYTE,
        most / MEGABYTE
    )
}
