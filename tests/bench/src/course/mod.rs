//! Fills the queues, starts the contestants one after the other, measures, checks, reports.

pub(crate) mod figures;
pub(crate) mod heat;
mod plan;
mod report;
mod starters;
mod svg;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::process;
use crate::queues::Queues;
use crate::server::{self, Server};
use crate::task::{QueueType, Task, Work};
use figures::{Course, Entry, Sample};
use heat::{Heat, Program};
pub(crate) use plan::Plan;
pub(crate) use report::{Show, show};

/// Runs everything that is asked for, and reports.
pub(crate) async fn run(plan: &Plan) -> Result<ExitCode> {
    let plan = plan.clone().unfolded();
    report::announce(&plan);
    let mut courses = Vec::new();
    for server in server::running(&plan.broker)? {
        for &queue_type in &plan.queue_type {
            let queues = Queues::make(&server.url, queue_type).await?;
            for &work in &plan.work {
                for &prefetch in &plan.prefetch {
                    let course = run_course(&plan, &server, &queues, queue_type, work, prefetch).await?;
                    println!("\n{}\n{}", course.title(), table::of(&course));
                    courses.push(course);
                    // After each: a long run that is broken off has not been for nothing.
                    report::write(&plan, &courses)?;
                }
            }
            queues.remove_all().await?;
        }
    }
    let failed = courses.iter().flat_map(|course| &course.entries).any(|entry| entry.failure.is_some());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn run_course(
    plan: &Plan,
    server: &Server,
    queues: &Queues,
    queue_type: QueueType,
    work: Work,
    prefetch: u16,
) -> Result<Course> {
    let contestants = starters::all(plan, work)?;
    let entry = |(variant, _): &(String, Program)| Entry {
        variant: variant.clone(),
        count: plan.count_for(work, variant),
        samples: Vec::new(),
        failure: None,
    };
    let mut entries: Vec<Entry> = contestants.iter().map(entry).collect();
    for round in 0..plan.rounds as usize {
        // Not always in the same order: the broker has just done what came before.
        for turn in 0..contestants.len() {
            let place = (turn + round) % contestants.len();
            let (entry, (variant, program)) = (&mut entries[place], &contestants[place]);
            if entry.failure.is_some() {
                continue;
            }
            let task = Task {
                variant: variant.clone(),
                work,
                url: server.url.clone(),
                queue: queues.work().to_owned(),
                queue_type,
                count: entry.count,
                prefetch,
            };
            match run_heat(queues, program, &task, server.process).await {
                Ok(heat) => entry.samples.push(sample(&heat)),
                Err(error) => {
                    eprintln!("{variant}: {error:#}");
                    entry.failure = Some(format!("{error:#}"));
                }
            }
        }
        eprintln!("round {} of {} done: {} {}", round + 1, plan.rounds, work.name(), queue_type.name());
    }
    let broker = server.release.clone();
    Ok(Course { work, broker, queue_type, prefetch, entries })
}

/// A contestant that leaves a message behind, or takes one twice, has not done the work.
async fn run_heat(queues: &Queues, program: &Program, task: &Task, broker: Option<u32>) -> Result<Heat> {
    queues.fill(task.work, task.count).await.context("cannot fill the queue")?;
    if let Some(broker) = broker {
        process::until_quiet(broker).await;
    }
    let heat = heat::run(program, task, broker).await?;
    queues.check(task.work, task.count).await.context("not all messages are where they belong")?;
    Ok(heat)
}

fn sample(heat: &Heat) -> Sample {
    let messages = heat.finish.messages as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / messages;
    Sample {
        messages_per_second: messages / heat.finish.seconds,
        client_us: each(heat.client),
        broker_us: heat.broker.map(each),
    }
}

/// Where results are written.
pub(crate) fn folder() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"), PathBuf::from);
    target.join("bench")
}
