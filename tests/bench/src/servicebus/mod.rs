//! redrive on Azure Service Bus, and the emulator: what each of the two costs. There is no Azure here, so the rates say how
//! fast a laptop or a CI is, and the CPU time of the consumer's side what redrive needs for a message wherever the broker is.

mod consumer;
mod emulator;
mod frames;
mod library;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use comfy_table::Table;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use redrive::Message;
use redrive::servicebus::ServiceBus;
use tokio::process::Command;
use tokio::time::timeout;

use self::consumer::By;
pub(crate) use self::consumer::{Consumption, consume};
use self::emulator::Emulator;
use crate::course::heat::{Heat, measure};
use crate::task;

const QUEUE: &str = "orders";
/// A run that takes longer is stuck.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);
/// How many sends are on their way at once while a queue is filled.
const SENDS: usize = 100;
const BODY: usize = 1024;
/// Shares of the messages that fail the first time, in percent.
const FAILURES: [u64; 2] = [0, 30];

/// What is measured.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// How many messages of 1 KB are consumed in a run.
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// How often each pair runs.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How many messages the consumer handles, and holds, at the same time.
    #[arg(long, default_value_t = 200)]
    prefetch: u32,
    /// How many messages lie in the emulator when its memory is looked at.
    #[arg(long, default_value_t = 100_000)]
    resting: u64,
    /// Binaries of the emulator to compare; by itself the one beside this program.
    #[arg(long)]
    emulator: Vec<PathBuf>,
    /// Binaries of this program to compare as consumers; by itself this one.
    #[arg(long)]
    consumer: Vec<PathBuf>,
    /// What consumes; may be repeated. Written by hand: `library` and `frames`, which retry nothing.
    #[arg(long, default_values = ["redrive"])]
    by: Vec<By>,
}

pub(crate) async fn run(plan: &Plan) -> Result<()> {
    let me = std::env::current_exe()?;
    let emulators = or_else(&plan.emulator, me.with_file_name("redrive-servicebus-emulator"));
    let consumers = or_else(&plan.consumer, me);
    if let Ok(load) = std::fs::read_to_string("/proc/loadavg") {
        println!("load of the machine: {load}");
    }
    for binary in &emulators {
        at_rest(binary, plan.resting).await?;
    }
    let mut lines = Vec::new();
    for percent in FAILURES {
        for emulator in &emulators {
            for consumer in &consumers {
                let able = plan.by.iter().filter(|&&by| percent == 0 || by == By::Redrive);
                lines.extend(able.map(|&by| Line { percent, emulator, consumer, by, heats: Vec::new() }));
            }
        }
    }
    for round in 0..plan.rounds {
        for line in &mut lines {
            let heat = heat(plan, line).await?;
            println!("round {}: {}", round + 1, line.show(&heat));
            line.heats.push(heat);
        }
    }
    println!("{}", table(&lines));
    Ok(())
}

fn or_else(given: &[PathBuf], own: PathBuf) -> Vec<PathBuf> {
    if given.is_empty() { vec![own] } else { given.to_vec() }
}

/// How long it takes to start, and the memory that it needs.
async fn at_rest(binary: &Path, messages: u64) -> Result<()> {
    let mut starts = Vec::new();
    for _ in 0..11 {
        starts.push(Emulator::start(binary).await?.started_in);
    }
    starts.sort();
    let emulator = Emulator::start(binary).await?;
    let empty = emulator.resident_mib()?;
    fill(&emulator, messages).await?;
    let full = emulator.resident_mib()?;
    println!(
        "{}: accepts after {:.1} ms (median of {}; {:.1} to {:.1}), {empty:.1} MiB at rest, {full:.1} MiB with {messages} \
         messages of 1 KB",
        binary.display(),
        millis(starts[starts.len() / 2]),
        starts.len(),
        millis(starts[0]),
        millis(starts[starts.len() - 1]),
    );
    Ok(())
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

async fn fill(emulator: &Emulator, count: u64) -> Result<()> {
    let sender = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let sends = stream::iter(0..count).map(|number| {
        let message = Message::new(task::body(number, BODY)).with_id(number.to_string());
        sender.publish(message)
    });
    sends.buffer_unordered(SENDS).try_collect::<Vec<()>>().await?;
    Ok(())
}

/// A fresh emulator, filled, and one consumer that empties it.
async fn heat(plan: &Plan, line: &Line<'_>) -> Result<Heat> {
    let emulator = Emulator::start(line.emulator).await?;
    fill(&emulator, plan.count).await?;
    let mut child = Command::new(line.consumer)
        .arg("servicebus-consumer")
        .args(["--connection-string", &emulator.connection_string()])
        .args(["--count", &plan.count.to_string()])
        .args(["--prefetch", &plan.prefetch.to_string()])
        .args(["--failures", &line.percent.to_string()])
        .args(["--by", line.by.name()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", line.consumer.display()))?;
    let id = child.id().context("the consumer ended at once")?;
    let measured = measure(&mut child, id, plan.count, Some(emulator.process()?));
    let heat = timeout(RUN_TIMEOUT, measured).await.context("it does not end")??;
    let status = timeout(RUN_TIMEOUT, child.wait()).await.context("it reported, and did not end")??;
    ensure!(status.success(), "the consumer ended with {status}");
    Ok(heat)
}

/// One pair at one kind of work.
struct Line<'a> {
    percent: u64,
    emulator: &'a PathBuf,
    consumer: &'a PathBuf,
    by: By,
    heats: Vec<Heat>,
}

impl Line<'_> {
    fn show(&self, heat: &Heat) -> String {
        let [rate, emulator, consumer] = figures(heat);
        format!("{}: {rate:.0} messages/s, emulator {emulator:.1} µs, consumer {consumer:.1} µs", self.name())
    }

    fn name(&self) -> String {
        let work = if self.percent == 0 {
            "complete only".to_owned()
        } else {
            format!("{} % retried once", self.percent)
        };
        format!("{work}, {} ({} < {})", self.by.name(), self.emulator.display(), self.consumer.display())
    }
}

/// Messages in a second; CPU time for a message of the emulator, and of the consumer, in microseconds.
fn figures(heat: &Heat) -> [f64; 3] {
    let messages = heat.finish.messages as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / messages;
    [messages / heat.finish.seconds, each(heat.broker.unwrap_or_default()), each(heat.client)]
}

fn table(lines: &[Line<'_>]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "",
        "messages/s",
        "CPU of the emulator, µs/message",
        "CPU of the consumer, µs/message",
    ]);
    for line in lines {
        let column = |number: usize| {
            let mut values: Vec<f64> = line.heats.iter().map(|heat| figures(heat)[number]).collect();
            values.sort_by(f64::total_cmp);
            let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
            let last = values.len().saturating_sub(1);
            format!("{:.1} ({:.1} to {:.1})", at(values.len() / 2), at(0), at(last))
        };
        table.add_row([line.name(), column(0), column(1), column(2)]);
    }
    table
}
