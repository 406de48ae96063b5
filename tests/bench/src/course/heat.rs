//! One contestant on one filled queue: started, told to go, measured.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::contestant::Finish;
use crate::process;
use crate::task::Task;

/// A contestant that takes longer is stuck.
const HEAT_TIMEOUT: Duration = Duration::from_secs(180);

/// How a contestant is started; the arguments of the task are added.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) arguments: Vec<String>,
    /// What it is called there, where that is not its name in the table.
    pub(super) variant: Option<&'static str>,
}

/// What one run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heat {
    pub(crate) finish: Finish,
    /// CPU time of the contestant.
    pub(crate) client: Duration,
    /// CPU time of the broker, where it runs on this machine.
    pub(crate) broker: Option<Duration>,
}

/// Runs a contestant. Whether the queues are as they must be afterwards is for the caller to see.
pub(super) async fn run(program: &Program, task: &Task, broker: Option<u32>) -> Result<Heat> {
    let mut child = start(program, task)?;
    let id = child.id().context("the contestant ended at once")?;
    let outcome = timeout(HEAT_TIMEOUT, measure(&mut child, id, task.count, broker)).await;
    let heat = outcome.with_context(|| format!("it did not end within {HEAT_TIMEOUT:?}"))??;
    let status = timeout(HEAT_TIMEOUT, child.wait()).await.context("it reported, and did not end")??;
    ensure!(status.success(), "it ended with {status}");
    Ok(heat)
}

/// Waits until a contestant is ready, tells it to go, and waits for its report.
pub(crate) async fn measure(child: &mut Child, id: u32, count: u64, broker: Option<u32>) -> Result<Heat> {
    let output = child.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(output).lines();
    loop {
        match lines.next_line().await? {
            Some(line) if line == "ready" => break,
            Some(_) => {}
            None => bail!("it ended before it was ready"),
        }
    }
    let used = || (process::used(id), broker.and_then(process::used));
    let (client_before, broker_before) = used();
    let mut input = child.stdin.take().context("its input is piped")?;
    input.write_all(b"go\n").await?;
    let finish: Finish = loop {
        match lines.next_line().await? {
            Some(line) if line.starts_with('{') => break serde_json::from_str(&line)?,
            Some(_) => {}
            None => bail!("it ended without a report"),
        }
    };
    let (client_after, broker_after) = used();
    ensure!(
        finish.messages == count && finish.duplicates == 0,
        "it handled {} different messages of {}, and {} twice",
        finish.messages,
        count,
        finish.duplicates
    );
    let between = |before: Option<Duration>, after: Option<Duration>| Some(after?.saturating_sub(before?));
    Ok(Heat {
        finish,
        client: between(client_before, client_after).context("cannot read its CPU time")?,
        broker: between(broker_before, broker_after),
    })
}

fn start(program: &Program, task: &Task) -> Result<Child> {
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .args(["--variant", program.variant.unwrap_or(&task.variant)])
        .args(["--work", task.work.name()])
        .args(["--url", &task.url])
        .args(["--queue", &task.queue])
        .args(["--queue-type", task.queue_type.name()])
        .args(["--count", &task.count.to_string()])
        .args(["--prefetch", &task.prefetch.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().with_context(|| format!("cannot start {}", program.path.display()))
}
