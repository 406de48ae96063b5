//! Worker processes: starts them, watches their log, kills them.

use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redrive_core::fail_point::FailPoint;
use tokio::process::{Child, ChildStdin, Command};

use crate::Combination;
use crate::flow::Flow;
use crate::polling::poll_again;
use crate::servicebus::{self, Setup};
use crate::worker_log::Log;

/// The environment variable that names the point where a process dies.
pub const FAIL_POINT: &str = "REDRIVE_FAIL_POINT";

/// Far longer than a worker gives its handlers and the broker.
const ENDS_WITHIN: Duration = Duration::from_secs(600);
/// Interval of reading the log.
const LOOK: Duration = Duration::from_millis(5);

/// How a worker process handles messages; see `src/bin/worker.rs`.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// As [`Fate`](crate::fate::Fate) says.
    Chaos,
    /// Aborts its process on messages whose id begins with `killer`; it handles alone what a dead process had in flight.
    Killer,
    /// The same with slower handlers and fewer in flight, for several killers and processes.
    Killers,
    /// The same with a ledger.
    KillerWithLedger,
    /// The same without suspects: the neighbours of the killer are charged with it.
    KillerInCompany,
    /// As the beginning of the message's id says; see [`flow`](crate::flow).
    Flows,
    /// Handles nothing: redrives the dead-letter shelf and ends.
    Redrive,
    /// The same, parks it.
    Park,
    /// The same, discards it.
    Discard,
    /// The same, replaces the first entry by an edited message.
    Replace,
}

impl Mode {
    /// That of the process which takes messages this way.
    #[must_use]
    pub fn of(flow: Flow) -> Self {
        match flow {
            Flow::Redrive => Self::Redrive,
            Flow::ParkByHand => Self::Park,
            Flow::Discard => Self::Discard,
            _ => Self::Flows,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Chaos => "chaos",
            Self::Killer => "killer",
            Self::Killers => "killers",
            Self::KillerWithLedger => "killer-with-ledger",
            Self::KillerInCompany => "killer-in-company",
            Self::Flows => "flows",
            Self::Redrive => "redrive",
            Self::Park => "park",
            Self::Discard => "discard",
            Self::Replace => "replace",
        }
    }
}

/// Workers of one queue, one at a time, and their log.
#[derive(Debug)]
pub struct Fleet {
    program: &'static str,
    arguments: Vec<String>,
    folder: PathBuf,
    worker: Option<Worker>,
    /// All that they wrote down.
    pub log: Log,
}

#[derive(Debug)]
struct Worker {
    process: Child,
    /// Closing it asks the worker to end in order, and ends the worker with the test.
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
        Self::with(program, folder, [mode.word(), url, queue, on.type_word(), on.delays.word()])
    }

    /// The same for Service Bus.
    ///
    /// # Panics
    /// When the folder for its log cannot be made.
    #[must_use]
    pub fn on_servicebus(program: &'static str, mode: Mode, setup: Setup, connection_string: &str) -> Self {
        static FLEETS: AtomicU32 = AtomicU32::new(0);
        let number = FLEETS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("redrive-test.servicebus-fleet.{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        Self::with(
            program,
            folder,
            [mode.word(), connection_string, servicebus::QUEUE, "servicebus", setup.word()],
        )
    }

    fn with(program: &'static str, folder: PathBuf, arguments: [&str; 5]) -> Self {
        std::fs::create_dir_all(&folder).expect("a folder for the log");
        let log = Log::create(&folder.join("log")).expect("a log");
        let mut arguments: Vec<_> = arguments.map(str::to_owned).into();
        arguments.push(log.path().display().to_string());
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

    /// Starts a worker that stops when it comes by this point for the first time, until it is told to
    /// [go on](Self::go_on).
    ///
    /// # Panics
    /// When it cannot be started, or one is there already.
    pub fn start_to_stop_at(&mut self, point: FailPoint) {
        self.start_with(Some((FAIL_POINT, format!("{}:1:stop", point.name()))));
    }

    /// Waits until the worker has stopped.
    ///
    /// # Panics
    /// When it does not before `deadline`, or ends.
    pub async fn stopped(&mut self, deadline: Instant, what: &str) {
        while !self.is_stopped() {
            assert!(self.is_alive(), "{what}: the worker ended by itself: {}", self.last_words());
            poll_again(LOOK, deadline, || format!("{what}: the worker stops: {}", self.last_words())).await;
        }
    }

    /// Stops the worker wherever it is, until it is told to [go on](Self::go_on).
    ///
    /// # Panics
    /// When it does not stop before `deadline`, or ends.
    pub async fn halt(&mut self, deadline: Instant, what: &str) {
        self.signal("-STOP").await;
        self.stopped(deadline, what).await;
    }

    /// Lets a worker go on that has stopped.
    ///
    /// # Panics
    /// When it cannot be told to.
    pub async fn go_on(&self) {
        self.signal("-CONT").await;
    }

    async fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.process_id().to_string()]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "the worker cannot be sent {signal}");
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process_id())).unwrap_or_default();
        // Behind the name, which stands in parentheses.
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
    }

    fn process_id(&self) -> u32 {
        self.worker.as_ref().and_then(|worker| worker.process.id()).expect("there is a worker")
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
    /// When it ends with an error, or not at all.
    pub async fn stop(&mut self) {
        let Worker { mut process, leash } = self.worker.take().expect("there is a worker");
        drop(leash);
        let Ok(ended) = tokio::time::timeout(ENDS_WITHIN, process.wait()).await else {
            panic!("the worker does not end: {}", self.last_words());
        };
        let status = ended.expect("the worker can be waited for");
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
            poll_again(LOOK, deadline, || format!("{what}; {}", self.state())).await;
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
