//! Many messages on a shelf, and runs that are killed. `REDRIVE_TEST_LARGE=100000` is the size of the published figures.

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::{Cli, Shop};
use redrive::Message;
use redrive_brokers::Version;
use serde_json::Value;
use tokio::time::timeout;

mod v3_10 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn killed_in_the_middle_and_resumed() {
        killed(&Shop::rabbitmq(Version::V3_10).await).await;
    }
}

mod v4_3 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn killed_in_the_middle_and_resumed() {
        killed(&Shop::rabbitmq(Version::V4_3).await).await;
    }
}

#[cfg(unix)]
mod memory {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn killed_in_the_middle_and_resumed() {
        killed(&Shop::memory().await).await;
    }
}

/// How many messages fail; half of them are sent back.
fn size() -> usize {
    std::env::var("REDRIVE_TEST_LARGE").map_or(400, |size| size.parse().expect("a number"))
}

const KILLS: usize = 5;
/// Only tells a hang from a slow machine.
const LIMIT: Duration = Duration::from_secs(600);
/// How long RabbitMQ may take to show what a killed process held. It counts none in a queue that is busy.
const SHOWN_WITHIN: Duration = Duration::from_secs(60);

async fn killed(shop: &Shop) {
    let all = size();
    let half = all / 2;
    let service = shop
        .service_that(|text| {
            let order: usize = text.trim_start_matches("order ").parse().expect("a number");
            Err(if order.is_multiple_of(2) { "no answer from the stock" } else { "no such customer" }
                .to_owned())
        })
        .await;
    let message = |order: usize| Message::new(format!("order {order}")).with_id(format!("order-{order}"));
    shop.publish_all((0..all).map(message).collect()).await;
    service.handled(u32::try_from(all).expect("not so many")).await;
    service.stop().await;
    shop.has_shelved(all as u64).await;

    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let mut figures = Vec::new();
    for arguments in
        [&["shelves", queue][..], &["groups", queue], &["browse", queue, "error~stock attempt>=1"]]
    {
        let (seconds, memory) = measured(&cli, arguments).await;
        figures.push(format!("{} {seconds:.1} s {memory} MiB", arguments[0]));
    }
    let begun = Instant::now();
    let plan = cli.json(&["plan", queue, "error~stock"]).await;
    figures.push(format!("plan {:.1} s", begun.elapsed().as_secs_f64()));
    assert_eq!(plan["entries"].as_array().expect("entries").len(), half);

    let (service, handled) = shop.counting().await;
    let distinct = || handled.lock().unwrap().len();
    let is_handled = |text: &str| handled.lock().unwrap().contains_key(text);
    let begun = Instant::now();
    let id = plan["id"].as_str().expect("an id");
    let rate = (half / 5).to_string();
    let apply = [
        "apply",
        id,
        "--yes",
        "--rate",
        // Slower than any service: else the run may be at its end before a kill is due.
        &rate,
        "--canary",
        "1",
        "--canary-wait",
        "1s",
        "--ramp-step",
        "1s",
    ];
    let mut run =
        cli.command(&[&apply[..], &["--reason", "the stock answers"]].concat()).spawn().expect("it runs");
    for kill in 1..=KILLS {
        // Somewhere in the middle. The count of the shelf would not tell: the run holds what it reads.
        within(&format!("the moment of kill {kill}"), || {
            assert!(run.try_wait().unwrap().is_none(), "it ends before kill {kill}");
            distinct() >= half * kill / (2 * KILLS)
        })
        .await;
        run.kill().await.expect("killed");
        let resume = ["runs", "resume", &cli.last_run().expect("a run")].map(str::to_owned);
        let resume: Vec<_> = resume.iter().map(String::as_str).collect();
        run = cli.command(&resume).spawn().expect("it runs");
    }
    let ended = timeout(LIMIT, run.wait()).await.expect("it ends in time").expect("it ends");
    figures.push(format!("run of half of them, killed {KILLS} times {:.1} s", begun.elapsed().as_secs_f64()));

    // Comes after all that was sent, also after what was sent twice.
    shop.publish(Message::new("last").with_id("last")).await;
    within("the last message", || is_handled("last")).await;
    service.stop().await;

    let until = Instant::now() + SHOWN_WITHIN;
    let (lost, on_shelf) = loop {
        let shelf = cli.json(&["browse", queue, "--limit", "1000000"]).await;
        let id = |entry: &Value| entry["properties"]["id"].as_str().map(str::to_owned);
        let ids = shelf.as_array().expect("entries").iter().map(|entry| id(entry).expect("an id"));
        let on_shelf: HashSet<_> = ids.collect();
        let is_shelved = |order: usize| on_shelf.contains(&format!("order-{order}"));
        let is_lost = |order: &usize| !is_shelved(*order) && !is_handled(&format!("order {order}"));
        let lost: Vec<_> = (0..all).filter(is_lost).collect();
        if lost.is_empty() || Instant::now() > until {
            break (lost, on_shelf);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    // What is on the shelf and not certain may be sent as well.
    let in_plan = (0..all).step_by(2);
    let uncertain = in_plan.filter(|order| on_shelf.contains(&format!("order-{order}"))).count();
    let unplanned = (1..all).step_by(2).filter(|order| is_handled(&format!("order {order}"))).count();
    let twice = handled.lock().unwrap().values().filter(|count| **count > 1).count();
    println!(
        "{all} messages: {}; lost {}, sent twice {twice}, uncertain {uncertain}",
        figures.join(", "),
        lost.len()
    );
    assert_eq!((lost, twice, unplanned), (vec![], 0, 0), "lost, sent twice, sent and not in the plan");
    assert_eq!(ended.code(), Some(if uncertain == 0 { 0 } else { 3 }));
    shop.tidy_up().await;
}

/// Waits until something is so.
async fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(LIMIT, waited).await.unwrap_or_else(|_| panic!("not within {LIMIT:?}: {what}"));
}

/// Runs a command, and returns its seconds and its memory in MiB.
async fn measured(cli: &Cli, arguments: &[&str]) -> (f64, u64) {
    let begun = Instant::now();
    let mut command = cli.command(arguments);
    let mut process = command.stdout(std::process::Stdio::null()).spawn().expect("it runs");
    let status = format!("/proc/{}/status", process.id().expect("it runs"));
    let mut memory = 0;
    while process.try_wait().expect("a process").is_none() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        memory = memory.max(peak.trim().trim_end_matches(" kB").parse().unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (begun.elapsed().as_secs_f64(), memory / 1024)
}
