//! What becomes of a dead letter whose target is full, missing or forbidden (G6): settled in one frame, with our reason.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use lapin::options::{BasicGetOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use redrive_brokers::{Node, Version};
use tokio::time::{sleep, timeout};

use super::client::Client;
use super::{channel, declare, publish};

const MESSAGES: usize = 20;
const ROOM: i32 = 5;
/// The broker tries again every three minutes.
const SENT_AGAIN_WITHIN: Duration = Duration::from_secs(400);
const READER: &str = "reader";
const REASON: &str = "the card has expired";

#[derive(Clone, Copy, Debug)]
enum Target {
    There,
    Full,
    Missing,
    /// The consumer's user may read the work queue, and nothing else.
    Forbidden,
}

pub(super) async fn run() -> Result<()> {
    let node = tokio::task::spawn_blocking(|| Node::start(Version::V4_3)).await??;
    node.aside(|node| {
        node.ctl(&["add_user", READER, READER])?;
        node.ctl(&["set_permissions", READER, "", "", "^work-.*"])
    })
    .await?;
    for strategy in ["at-most-once", "at-least-once"] {
        for target in [Target::There, Target::Forbidden, Target::Full, Target::Missing] {
            run_one(&node, strategy, target).await?;
        }
    }
    Ok(())
}

async fn run_one(node: &Node, strategy: &str, target: Target) -> Result<()> {
    let url = node.url();
    let queue = format!("work-{strategy}-{target:?}");
    let shelf = format!("{queue}-shelf");
    let text = |text: &str| AMQPValue::LongString(text.into());
    let dead_letters = [
        ("x-dead-letter-exchange", text("")),
        ("x-dead-letter-routing-key", text(&shelf)),
        ("x-dead-letter-strategy", text(strategy)),
        ("x-overflow", text("reject-publish")),
    ];
    declare(&url, &queue, &dead_letters).await?;
    match target {
        Target::There | Target::Forbidden => declare(&url, &shelf, &[]).await?,
        Target::Full => {
            let full = [("x-max-length", AMQPValue::LongInt(ROOM)), ("x-overflow", text("reject-publish"))];
            declare(&url, &shelf, &full).await?;
            // The queue refuses once it is beyond its limit, and only whom it has told so: one after the other.
            let mut filled = 0;
            while publish(&url, &shelf, filled..filled + 1).await.is_ok() {
                filled += 1;
                ensure!(filled < 10 * ROOM as usize, "the shelf does not become full");
            }
        }
        Target::Missing => {}
    }
    let (before, _) = on_the_shelf(&url, &shelf).await?;
    publish(&url, &queue, 0..MESSAGES).await?;
    let user = if matches!(target, Target::Forbidden) { READER } else { "guest" };
    let mut client = Client::attach_as(user, node.address(), &queue, 100).await?;
    for _ in 0..MESSAGES {
        let arrival =
            timeout(Duration::from_secs(20), client.next()).await.context("a message did not come")??;
        client.dead_letter(arrival, REASON).await?;
    }
    // Long enough for a first try of the dead-letter worker; what it keeps it tries again after three minutes.
    sleep(Duration::from_secs(3)).await;
    let again = timeout(Duration::from_millis(500), client.next()).await.is_ok();
    drop(client);
    let (found, reason) = on_the_shelf(&url, &shelf).await?;
    let stored = found - before;
    // Now there is room.
    if matches!(target, Target::Full | Target::Missing) {
        let (connection, channel) = channel(&url).await?;
        channel.queue_delete(shelf.as_str().into(), QueueDeleteOptions::default()).await?;
        connection.close(200, "OK".into()).await?;
        declare(&url, &shelf, &[]).await?;
    }
    let mut later = on_the_shelf(&url, &shelf).await?.0;
    let began = Instant::now();
    while stored + later < MESSAGES && strategy == "at-least-once" && began.elapsed() < SENT_AGAIN_WITHIN {
        sleep(Duration::from_secs(1)).await;
        later = on_the_shelf(&url, &shelf).await?.0;
    }
    println!(
        "{strategy}, target {target:?}: {stored} of {MESSAGES} stored (reason {}), handed out again: {again}; once there is room: {later}",
        reason.as_deref().unwrap_or("–")
    );
    Ok(())
}

/// How many messages a queue has, and our reason on the first.
async fn on_the_shelf(url: &str, shelf: &str) -> Result<(usize, Option<String>)> {
    let (connection, first) = channel(url).await?;
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let Ok(found) = first.queue_declare(shelf.into(), passive, FieldTable::default()).await else {
        return Ok((0, None));
    };
    let count = found.message_count() as usize;
    let got = first.basic_get(shelf.into(), BasicGetOptions { no_ack: false }).await?;
    let reason = got.and_then(|got| {
        let headers = got.delivery.properties.headers().clone()?;
        match headers.inner().get("x-redrive-error")? {
            AMQPValue::LongString(reason) => Some(reason.to_string()),
            other => Some(format!("{other:?}")),
        }
    });
    connection.close(200, "OK".into()).await?;
    Ok((count, reason))
}
