//! Selects entries by a program of jq: `--where '.headers.tenant == "blue" and (.body.lines | length) > 3'`, and edits them.
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
use redrive::ops::{BodyView, Edit, EditDocument, SensitiveEdits, ViewEntry};
use redrive::shelves::{EntryHandle, Shelved};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use self::worker::Mode;
use crate::args::JQ_WORKER;
use crate::desk::edit::refused;
use crate::exit::usage;
use crate::output::plural;
use crate::settings::Global;

/// Memory of the other process, in KiB, and its time on the processor, in seconds.
const LIMITS: &str = "ulimit -v 1048576; ulimit -t 60; exec \"$0\" \"$@\"";

/// What a program selects.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    pub(crate) handles: HashSet<EntryHandle>,
    /// For how many entries the program fails. They are not selected.
    failed: usize,
    /// The first of them, and the kind of the problem.
    first: Option<(EntryHandle, String)>,
    /// For how many entries `.body` was null, because nobody can look into it.
    pub(crate) not_looked_into: usize,
}

impl Matching {
    /// Returns what must be said of entries that are left out, of `all`.
    ///
    /// # Errors
    ///
    /// If the program fails for every entry: it is wrong.
    pub(crate) fn note(&self, all: usize) -> Result<Option<String>> {
        let Some((handle, why)) = &self.first else { return Ok(None) };
        let failed = self.failed;
        if failed == all {
            return Err(usage(format!(
                "--where fails for every message that it looks at, {all}; the first: {handle}: {why}"
            )));
        }
        let verb = if failed == 1 { "is" } else { "are" };
        let left_out = format!("{}, which {verb} left out", plural(failed, "message"));
        Ok(Some(format!("--where failed for {left_out}; the first: {handle}: {why}")))
    }

    fn add(&mut self, handle: &EntryHandle, answer: &str) {
        if answer == "true" {
            self.handles.insert(handle.clone());
        } else if let Some(why) = answer.strip_prefix(worker::UNDECIDED) {
            self.failed += 1;
            self.first.get_or_insert_with(|| (handle.clone(), why.to_owned()));
        }
    }
}

/// Returns the entries for which the program says `true`.
///
/// # Errors
///
/// If the program is wrong, or takes too much time or memory.
pub(crate) async fn matching(
    global: &Global,
    program: &str,
    queue: &str,
    entries: &[&ViewEntry],
) -> Result<Matching> {
    let lines = entries.iter().map(|entry| document::of(queue, entry)).collect::<Result<_, _>>()?;
    let handles = entries.iter().map(|entry| &entry.entry.handle);
    let closed = |entry: &&&ViewEntry| BodyView::of(&entry.entry.message).problem().is_some();
    let mut matching =
        Matching { not_looked_into: entries.iter().filter(closed).count(), ..Matching::default() };
    answers(global, (program, Mode::Select), lines, handles.cloned().collect(), |handle, answer| {
        matching.add(handle, answer.map_err(|error| usage(format!("the program is wrong: {error}")))?);
        Ok(())
    })
    .await
    .context("cannot select by --where")?;
    Ok(matching)
}

/// Checks a program that edits, before any message is read.
///
/// # Errors
///
/// If it cannot be read: what is wrong, and where.
pub(crate) fn check(program: &str) -> Result<()> {
    worker::compiled(program)
        .map(drop)
        .map_err(|error| usage(format!("the program of --jq is wrong: {error}")))
}

/// Returns each entry as the program edits it, if it changes anything.
///
/// # Errors
///
/// If the program is wrong, fails for an entry, makes an edit that may not be made, or takes too much time or memory.
pub(crate) async fn edited(
    global: &Global,
    program: &str,
    entries: &[&Shelved],
    sensitive: SensitiveEdits,
) -> Result<Vec<(Shelved, Edit)>> {
    let document = |entry: &&Shelved| Ok(EditDocument::of(&entry.message)?.as_str().to_owned());
    let lines = entries.iter().map(document).collect::<Result<_>>()?;
    let handles = entries.iter().map(|entry| entry.handle.clone()).collect();
    let (mut edits, mut rest) = (Vec::new(), entries.iter());
    answers(global, (program, Mode::Edit), lines, handles, |handle, answer| {
        let line = answer.map_err(|error| usage(format!("--jq fails for {handle}: {error}")))?;
        let entry = rest.next().context("more answers than entries")?;
        let message =
            EditDocument::parse(line, &entry.message).with_context(|| format!("the edit of {handle}"))?;
        let edit =
            Edit::between(&entry.message, message, sensitive).map_err(|error| refused(handle, error))?;
        edits.extend(edit.map(|edit| (Shelved::clone(entry), edit)));
        Ok(())
    })
    .await
    .context("nothing was changed: cannot edit by --jq")?;
    Ok(edits)
}

/// Runs a program on each line, and passes its answers on.
async fn answers(
    global: &Global,
    (program, mode): (&str, Mode),
    lines: Vec<String>,
    handles: Vec<EntryHandle>,
    mut each: impl FnMut(&EntryHandle, Result<&str, &str>) -> Result<()>,
) -> Result<()> {
    let mut command = sandboxed(&std::env::current_exe().context("cannot find this program")?);
    command.arg(JQ_WORKER).arg(program).env_clear();
    if mode == Mode::Edit {
        command.arg("--edit");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut worker = command.spawn().context("cannot run jq")?;
    let (input, output) = (worker.stdin.take(), worker.stdout.take());
    let (mut input, output) = (input.context("no pipe")?, output.context("no pipe")?);
    let write = async {
        for mut line in lines {
            line.push('\n');
            // A worker that has ended says why on its last line.
            if input.write_all(line.as_bytes()).await.is_err() {
                break;
            }
        }
        drop(input);
        Ok(())
    };
    let mut answered = 0;
    let read = async {
        let mut lines = BufReader::new(output).lines();
        for handle in &handles {
            match lines.next_line().await? {
                Some(line) => match line.strip_prefix(worker::FAILED) {
                    Some(error) => each(handle, Err(error))?,
                    None => each(handle, Ok(&line))?,
                },
                None => bail!(
                    "the program took more than a minute of the processor, or a gigabyte of memory, at {handle}: \
                     look for a loop in it that does not end, or select fewer messages"
                ),
            }
            answered += 1;
        }
        Ok(())
    };
    let answering = async { tokio::try_join!(write, read) };
    // Said here, and not by who waits for brokers: none is asked.
    let ended = tokio::time::timeout(global.timeout, answering).await;
    match ended {
        Ok(ended) => ended.map(drop),
        Err(_) => bail!(
            "the program took longer than {}, and had answered for {answered} of {}: look for a loop in it that does not \
             end, or raise --timeout",
            humantime::format_duration(global.timeout),
            plural(handles.len(), "message")
        ),
    }
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

#[cfg(test)]
mod tests {
    use redrive::Shelf;

    use super::*;

    #[test]
    fn what_cannot_be_decided_is_left_out_and_said_once() {
        let mut matching = Matching::default();
        assert_eq!(matching.note(0).unwrap(), None);
        for (entry, answer) in
            [("1", "true"), ("2", "?cannot index a string"), ("3", "false"), ("4", "?other")]
        {
            matching.add(&EntryHandle::new(Shelf::DeadLetter, entry), answer);
        }
        assert_eq!(matching.handles, [EntryHandle::new(Shelf::DeadLetter, "1")].into());
        let note = "--where failed for 2 messages, which are left out; the first: dead-letter/2: cannot index a string";
        assert_eq!(matching.note(4).unwrap().as_deref(), Some(note));
        let error = matching.note(2).unwrap_err().to_string();
        assert!(error.contains("every message") && error.contains("cannot index"), "{error}");
    }
}
