//! Many messages that wait, and large annotations: what the broker needs for them, and where it refuses.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use redrive_brokers::{Node, Version};
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::{declare, publish};
use crate::process;

const AN_HOUR: Duration = Duration::from_secs(3600);
const A_SECOND: Duration = Duration::from_secs(1);
const PREFETCH: u32 = 1000;
/// Messages for each size of annotation.
const LARGE: usize = 200;

/// Settings of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[arg(long, default_value_t = 1_000_000)]
    messages: usize,
    /// Sizes of the annotation with the error, in bytes.
    #[arg(long, default_values_t = [1024, 4096, 16_384, 65_536, 130_000, 262_144])]
    annotation: Vec<usize>,
}

pub(super) async fn run(plan: &Plan) -> Result<()> {
    let config = ["vm_memory_high_watermark.absolute = 12GB", "raft.wal_max_size_bytes = 512000000"];
    let node = tokio::task::spawn_blocking(move || Node::with_config(Version::V4_3, &config)).await??;
    for &bytes in &plan.annotation {
        large(&node, bytes).await?;
    }
    many(&node, plan.messages).await
}

/// Lets messages fail with an annotation of this size, and looks whether they come back with it.
async fn large(node: &Node, bytes: usize) -> Result<()> {
    let queue = format!("large-{bytes}");
    declare(&node.url(), &queue, &[]).await?;
    publish(&node.url(), &queue, 0..LARGE).await?;
    let text = "e".repeat(bytes);
    let mut client = Client::attach(node.address(), &queue, PREFETCH).await?;
    let refused = async {
        for _ in 0..LARGE {
            let arrival = timeout(Duration::from_secs(10), client.next()).await.context("did not come")??;
            client.retry(arrival, A_SECOND, &text).await?;
        }
        anyhow::Ok(())
    };
    let refused = refused.await.err();
    let mut back = 0;
    let came = async {
        while back < LARGE {
            let arrival =
                timeout(Duration::from_secs(10), client.next()).await.context("did not come back")??;
            back += usize::from(arrival.attempt == 2);
            client.accept(arrival).await?;
        }
        anyhow::Ok(())
    };
    let ended = came.await.err();
    if ended.is_some() {
        drop(client);
        let mut again = Client::attach(node.address(), &queue, PREFETCH).await?;
        let (mut found, mut counted) = (0, 0);
        while let Ok(arrival) = timeout(Duration::from_secs(10), again.next()).await {
            let arrival = arrival?;
            found += 1;
            counted += usize::from(arrival.attempt > 1 || arrival.broker_count > 0);
            again.accept(arrival).await?;
        }
        println!("a new link finds {found} of them, {counted} with a failure counted");
    }
    let said =
        |error: Option<anyhow::Error>| error.map_or_else(|| "no".to_owned(), |error| format!("{error:#}"));
    println!(
        "annotation of {bytes} bytes: refused: {}; {back} of {LARGE} came back: error {}",
        said(refused),
        said(ended)
    );
    Ok(())
}

async fn many(node: &Node, messages: usize) -> Result<()> {
    let queue = "many";
    let broker = || process::listener(node.address().port()).context("the broker's process is not found");
    let memory = || Ok::<_, anyhow::Error>(process::resident_mib(broker()?).unwrap_or_default());
    declare(&node.url(), queue, &[]).await?;
    sleep(Duration::from_secs(5)).await;
    let empty = memory()?;
    publish(&node.url(), queue, 0..messages).await?;
    process::until_quiet(broker()?).await;
    let ready = memory()?;
    let began = Instant::now();
    let mut client = Client::attach(node.address(), queue, PREFETCH).await?;
    for settled in 1..=messages {
        let arrival = client.next().await?;
        client.retry(arrival, AN_HOUR, "the bank is closed").await?;
        if settled % (PREFETCH as usize / 4) == 0 {
            client.allow(PREFETCH).await?;
        }
    }
    let took = began.elapsed();
    process::until_quiet(broker()?).await;
    let waiting = memory()?;
    drop(client);
    println!(
        "{messages} messages: broker {empty:.0} MiB empty, {ready:.0} MiB when they are ready, {waiting:.0} MiB when they wait; settled in {took:.0?}"
    );
    for how in ["stopped", "killed"] {
        let down = Instant::now();
        node.aside(move |node| if how == "killed" { node.kill() } else { node.stop() }).await?;
        let down_for = down.elapsed();
        let began = Instant::now();
        node.aside(Node::restart).await?;
        let up = began.elapsed();
        // The queue hands out, which it does to nobody while it recovers.
        publish(&node.url(), queue, messages..messages + 1).await?;
        let mut client = Client::attach(node.address(), queue, 1).await?;
        let arrival =
            timeout(Duration::from_secs(600), client.next()).await.context("the queue does not answer")??;
        let answers = began.elapsed();
        let early = arrival.id < u32::try_from(messages)?;
        client.accept(arrival).await?;
        println!(
            "{how} in {down_for:.1?}; up again after {up:.1?}, the queue after {answers:.1?}, with {:.0} MiB; a waiting message came early: {early}",
            memory()?
        );
    }
    Ok(())
}
