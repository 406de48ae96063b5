//! Process groups that are killed as a whole, and that end with the test.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A program and everything it started, as one process group: `rabbitmq-server` is a shell that waits for
/// the Erlang machine, and killing only the shell would leave the broker running.
#[derive(Debug)]
pub struct Group {
    leader: Child,
}

impl Group {
    /// Starts `command` as the leader of a group of its own.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn spawn(command: &mut Command) -> Result<Group> {
        let leader = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not run {}", command.get_program().display()))?;
        Ok(Group { leader })
    }

    pub(crate) fn id(&self) -> u32 {
        self.leader.id()
    }

    /// Returns true if the leader has ended. (Its group may live on for a moment.)
    ///
    /// # Errors
    /// The system does not tell.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.leader.try_wait()?.is_some())
    }

    /// Sends SIGKILL to every process of the group, and waits until all are dead.
    ///
    /// # Errors
    /// One of them is still alive after two minutes.
    pub fn kill(&mut self) -> Result<()> {
        // The shell's own `kill`: the standard library cannot signal a group without unsafe code.
        let _already_dead = Command::new("sh")
            .args(["-c", &format!("kill -s KILL -- -{}", self.id())])
            .stderr(Stdio::null())
            .status()
            .context("could not run sh to kill a process group")?;
        self.wait(Duration::from_secs(120))
    }

    /// Waits until it has ended with success.
    pub(crate) fn succeeds(&mut self, patience: Duration) -> Result<()> {
        self.wait(patience)?;
        let status = self.leader.wait()?;
        ensure!(status.success(), "process group {} ended with {status}", self.id());
        Ok(())
    }

    /// Waits until every process of the group is dead.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<()> {
        let began = Instant::now();
        while !self.ended()? || lives(self.id()) {
            if began.elapsed() > patience {
                bail!("process group {} is still alive after {patience:?}", self.id());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// Returns true if a process of this group is alive. Zombies count as dead: in a container nothing may reap them.
fn lives(group: u32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|entry| {
        // `pid (name) state parent group …`; the name may hold spaces and parentheses.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = fields.next();
        let of_group = fields.nth(1).and_then(|field| field.parse().ok());
        // If a zombie has threads left, only its first thread has ended: the others still hold the ports.
        let threads = || fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count);
        of_group == Some(group) && (!matches!(state, Some("Z" | "X")) || threads() > 1)
    })
}

/// Kills the groups of a node and removes its folder when this process ends, however it ends.
///
/// A shell that reads from a pipe: when this process dies, even by SIGKILL, the kernel closes the pipe. It needs no polling, and
/// never takes another process for this one.
#[derive(Debug)]
pub struct Watcher {
    shell: Child,
    list: PathBuf,
}

impl Watcher {
    /// Watches over the folder `data` and a Docker container, both of which it removes.
    ///
    /// # Errors
    /// The folder cannot be written to, or there is no shell.
    pub fn start(data: &Path, container: Option<&str>) -> Result<Watcher> {
        let list = data.join("process-groups");
        fs::write(&list, "")?;
        let script = r#"
            read -r _
            for group in $(cat "$1/process-groups"); do kill -s KILL -- "-$group"; done
            [ -z "$2" ] || docker rm --force --volumes "$2"
            # What was killed may still be writing.
            for _ in $(seq 200); do rm -rf "$1" && break; sleep 0.3; done
        "#;
        let shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(data)
            .arg(container.unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Not in the terminal's group: Ctrl-C must not end it before it has cleaned up.
            .process_group(0)
            .spawn()
            .context("could not run sh to watch over the node")?;
        Ok(Watcher { shell, list })
    }

    /// Sets which groups to kill at the end.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn cover<'a>(&self, groups: impl IntoIterator<Item = &'a Group>) -> Result<()> {
        let text: String = groups.into_iter().map(|group| format!("{}\n", group.id())).collect();
        fs::write(&self.list, text).with_context(|| format!("could not write {}", self.list.display()))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Closing the pipe is the signal; waiting makes the clean-up complete when this returns.
        drop(self.shell.stdin.take());
        let _ended = self.shell.wait();
    }
}
