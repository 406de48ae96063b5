//! Worker processes: started, watched through their log, killed.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use redrive_core::fail_point::FailPoint;
use tokio::process::{Child, ChildStdin, Command};

use crate::Combination;
use crate::worker_log::Log;

/// The environment variable that names the point where a process dies.
pub const FAIL_POINT: &str = "REDRIVE_FAIL_POINT";

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// How a worker process handles messages; see `src/bin/worker.rs`.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// As [`Fate`](crate::fate::Fate) says.
    Chaos,
    /// Aborts its process on the message with the id `killer`; it handles alone what a dead process had in hand.
    Killer,
    /// The same with a ledger.
    KillerWithLedger,
    /// The same without looking for suspects: what is in hand beside the killer is counted down with it.
    KillerInCompany,
    /// As the beginning of the message's id says; see [`flow`](crate::flow).
    Flows,
    /// Handles nothing: redrives the dead-letter shelf and ends.
    Redrive,
}

/// Workers of one queue, one at a time, and their log.
#[derive(Debug)]
pub struct Fleet {
    program: &'static str,
    arguments: [String; 6],
    folder: PathBuf,
    worker: Option<Worker>,
    /// All that they wrote down.
    pub log: Log,
}

#[derive(Debug)]
struct Worker {
    process: Child,
    /// Closed, it asks the worker to end in order; and the worker cannot outlive the test.
    leash: ChildStdin,
}

impl Fleet {
    /// A fleet without a worker; `program` is the path of the worker.
    ///
    /// # Panics
    /// When the folder for its log cannot be made.
    #[must_use]
    pub fn new(program: &'static str, mode: Mode, on: Combination, url: &str, queue: &str) -> Self {
        let folder = std::env::temp_dir().join(on.unique("fleet"));
        std::fs::create_dir_all(&folder).expect("a folder for the log");
        let log = Log::create(&folder.join("log")).expect("a log");
        let mode = match mode {
            Mode::Chaos => "chaos",
            Mode::Killer => "killer",
            Mode::KillerWithLedger => "killer-with-ledger",
            Mode::KillerInCompany => "killer-in-company",
            Mode::Flows => "flows",
            Mode::Redrive => "redrive",
        };
        let path = log.path().display().to_string();
        let arguments = [mode, url, queue, on.type_word(), on.delays.word(), &path];
        let arguments = arguments.map(str::to_owned);
        Self { program, arguments, folder, worker: None, log }
    }

    /// Another fleet, that writes to the same log: of the same queue, at this address.
    ///
    /// # Panics
    /// When the log cannot be opened.
    #[must_use]
    pub fn beside(&self, url: &str) -> Self {
        let mut arguments = self.arguments.clone();
        url.clone_into(&mut arguments[1]);
        let log = Log::create(self.log.path()).expect("the log of the first");
        Self { program: self.program, arguments, folder: self.folder.clone(), worker: None, log }
    }

    /// Starts a worker.
    ///
    /// # Panics
    /// When it cannot be started, or one is there already.
    pub fn start(&mut self) {
        self.start_with(None);
    }

    /// Starts a worker that dies when it comes by this point, the `pass`th time.
    ///
    /// # Panics
    /// When it cannot be started, or one is there already.
    pub fn start_to_die_at(&mut self, point: FailPoint, pass: u32) {
        self.start_with(Some((FAIL_POINT, format!("{}:{pass}", point.name()))));
    }

    fn start_with(&mut self, variable: Option<(&str, String)>) {
        assert!(self.worker.is_none(), "there is a worker already");
        let mut process = Command::new(self.program)
            .args(&self.arguments)
            .envs(variable)
            // The chaos panics on purpose.
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(self.errors())
            .kill_on_drop(true)
            .spawn()
            .expect("the worker can be started");
        let leash = process.stdin.take().expect("its input is piped");
        self.worker = Some(Worker { process, leash });
    }

    /// SIGKILL to the worker; returns when it is dead.
    ///
    /// # Panics
    /// When there is none, or it died before.
    pub async fn kill(&mut self) {
        let mut worker = self.worker.take().expect("there is a worker");
        let ended = worker.process.try_wait().expect("the worker can be asked");
        assert!(ended.is_none(), "the worker ended by itself: {}", self.last_words());
        worker.process.kill().await.expect("the worker can be killed");
    }

    /// How much memory the worker has, in bytes; 0 where the system does not tell.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let Some(id) = self.worker.as_ref().and_then(|worker| worker.process.id()) else { return 0 };
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = resident.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kilobytes.unwrap_or_default() * 1024
    }

    /// Asks the worker to end in order, and waits for it.
    ///
    /// # Panics
    /// When it ends with an error.
    pub async fn stop(&mut self) {
        let Worker { mut process, leash } = self.worker.take().expect("there is a worker");
        drop(leash);
        let status = process.wait().await.expect("the worker can be waited for");
        assert!(status.success(), "the worker ended with {status}: {}", self.last_words());
        self.log.catch_up();
    }

    /// Waits until the worker ends by itself.
    ///
    /// # Panics
    /// When there is none.
    pub async fn ended(&mut self) -> ExitStatus {
        let worker = self.worker.as_mut().expect("there is a worker");
        let status = worker.process.wait().await.expect("the worker can be waited for");
        self.worker = None;
        self.log.catch_up();
        status
    }

    /// Waits until the log says so.
    ///
    /// # Panics
    /// When it does not before `deadline`, or when the worker ends by itself.
    pub async fn until(&mut self, deadline: Instant, what: &str, says: impl Fn(&Log) -> bool) {
        if !self.lives_until(deadline, what, says).await {
            let status = self.ended().await;
            panic!("the worker ended by itself with {status}, before {what}: {}", self.last_words());
        }
    }

    /// Waits until the log says so, or the worker ends by itself: then false.
    ///
    /// # Panics
    /// When neither happens before `deadline`.
    pub async fn lives_until(&mut self, deadline: Instant, what: &str, says: impl Fn(&Log) -> bool) -> bool {
        loop {
            let alive = self.is_alive();
            // After asking: a worker that is dead writes no more.
            self.log.catch_up();
            if says(&self.log) || !alive {
                return alive;
            }
            assert!(Instant::now() < deadline, "not in time: {what}; {}", self.state());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How many ids the log knows, and the end of what workers printed: for messages.
    #[must_use]
    pub fn state(&self) -> String {
        let Log { started, runs, ref records, .. } = self.log;
        format!("{started} starts, {runs} runs of {} messages; {}", records.len(), self.last_words())
    }

    fn is_alive(&mut self) -> bool {
        let worker = self.worker.as_mut().expect("there is a worker");
        worker.process.try_wait().expect("the worker can be asked").is_none()
    }

    fn errors(&self) -> File {
        let path = self.folder.join("stderr");
        OpenOptions::new().append(true).create(true).open(path).expect("a file for the worker's errors")
    }

    /// What the workers printed last.
    #[must_use]
    pub fn last_words(&self) -> String {
        let printed = std::fs::read(self.folder.join("stderr")).unwrap_or_default();
        let end = &printed[printed.len().saturating_sub(3000)..];
        format!("the workers' last words: {}", String::from_utf8_lossy(end))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // What a failed test leaves is worth a look.
        if !std::thread::panicking() && std::env::var_os("REDRIVE_KEEP_LOGS").is_none() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
