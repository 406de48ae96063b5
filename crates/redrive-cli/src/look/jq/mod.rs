//! Selects entries by a program of jq: `--where '.headers.tenant == "blue" and (.body.lines | length) > 3'`.
//!
//! The program runs in a process of its own, which has nothing of the environment, and little time and memory: a program that never ends, or
//! that eats memory, ends itself and nothing else.
//!
//! | module | does |
//! |---|---|
//! | [`document`] | what a program sees of an entry; pure |
//! | [`worker`] | the other process |

mod document;
pub(crate) mod worker;

use std::collections::HashSet;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use redrive::EntryHandle;
use redrive::ops::ViewEntry;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::desk::within;
use crate::exit::usage;
use crate::settings::Global;

/// Memory of the other process, in KiB, and its time on the processor, in seconds.
const LIMITS: &str = "ulimit -v 1048576; ulimit -t 60; exec \"$0\" \"$@\"";

/// Returns the entries for which the program says `true`.
///
/// # Errors
///
/// If the program is wrong, fails for an entry, says something else than true or false, or takes too much time or memory.
pub(crate) async fn matching(
    global: &Global,
    program: &str,
    queue: &str,
    entries: &[&ViewEntry],
) -> Result<HashSet<EntryHandle>> {
    let mut command = sandboxed(&std::env::current_exe().context("cannot find this program")?);
    command.arg(worker::NAME).arg(program).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut worker = command.spawn().context("cannot run jq")?;
    let (input, output) = (worker.stdin.take(), worker.stdout.take());
    let (mut input, output) = (input.context("no pipe")?, output.context("no pipe")?);
    let write = async {
        for entry in entries {
            let mut line = document::of(queue, entry).to_string();
            line.push('\n');
            // A worker that has ended says why on its last line.
            if input.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        drop(input);
        Ok(())
    };
    let read = async {
        let mut lines = BufReader::new(output).lines();
        let mut matching = HashSet::new();
        for entry in entries {
            let handle = &entry.entry.handle;
            match lines.next_line().await?.as_deref() {
                Some("true") => {
                    matching.insert(handle.clone());
                }
                Some("false") => {}
                Some(error) => return Err(usage(format!("--where fails for {handle}: {error}"))),
                None => bail!("--where took too much time or memory, at {handle}"),
            }
        }
        Ok(matching)
    };
    let both = within(global.timeout, async { tokio::try_join!(write, read) });
    Ok(both.await.context("cannot select by --where")?.1)
}

/// Returns the command of a process with limits, where the system has them.
fn sandboxed(program: &std::path::Path) -> Command {
    if cfg!(unix) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LIMITS]).arg(program);
        command
    } else {
        Command::new(program)
    }
}
