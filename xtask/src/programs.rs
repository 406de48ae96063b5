//! The test programs of the workspace, and a pool that runs them concurrently: most tests wait for a broker or a clock and leave the
//! processors idle.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::overtime::Overtime;

/// Programs with many tests that mostly wait, and how many of these tests run at once. Where tests start brokers of their own, more at once
/// starve each other.
const WAITING: [(&str, usize); 3] =
    [("conformance", 32), ("broker/main", 6), ("system tests/rabbitmq/main", 4)];
/// This program compiles its tests with the unmodified toolchain, so unstable features must stay locked.
const COMPILES: &str = "compile-fail";
/// Starts the longest programs first: otherwise the end of the run would wait for them alone. The others follow in any order. The
/// output shows the time of each program.
const LONGEST_FIRST: [&str; 12] = [
    "redrive-rabbitmq tests/broker/main.rs",
    "redrive-rabbitmq tests/conformance.rs",
    "system tests/rabbitmq/main.rs",
    "system tests/chaos.rs",
    "system tests/cluster.rs",
    "rabbitmq-differential tests/differential.rs",
    "brokers tests/node.rs",
    "system tests/fail_points.rs",
    "redrive-cli tests/task/main.rs",
    "system tests/soak.rs",
    "redrive-servicebus tests/conformance.rs",
    "redrive-servicebus tests/emulator/main.rs",
];

/// Time limit of a program: far more than any takes. That of each of its tests is [`TEST_HANGS_AFTER`](crate::overtime::TEST_HANGS_AFTER).
const HANGS_AFTER: Duration = Duration::from_secs(40 * 60);
/// Time limit of all programs together: less than the 90 minutes of CI, which ends a run without a word of what failed.
pub(crate) const RUN_ENDS_AFTER: Duration = Duration::from_secs(80 * 60);
/// The system's text for a program that succeeded.
const PASSED: &str = "exit status: 0";

/// A program made of tests, as cargo built it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// `redrive-rabbitmq tests/logs.rs`
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Folder of its package, in which cargo would run it.
    pub(crate) folder: PathBuf,
}

/// Result of one program.
pub(crate) struct Ended {
    /// Its whole output, after a line that names it as cargo does.
    pub(crate) output: String,
    pub(crate) passed: bool,
    /// Tests of a program that was killed which had run for over a minute and had not ended.
    pub(crate) unended: Vec<String>,
    /// Summary in one line.
    pub(crate) summary: String,
}

impl Program {
    /// Runs the program to its end, or kills it at `deadline`.
    pub(crate) fn run(
        &self,
        arguments: &[String],
        environment: &[(String, Option<String>)],
        deadline: Instant,
    ) -> Result<Ended> {
        let began = Instant::now();
        let deadline = deadline.min(began + HANGS_AFTER);
        // One pipe for both streams: only their order shows which lines belong together.
        let (mut output, input) = std::io::pipe()?;
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
        if let Some((_, tests)) = WAITING.iter().find(|(name, _)| self.name.contains(name)) {
            command.arg(format!("--test-threads={tests}"));
        }
        if !self.name.starts_with(COMPILES) {
            // A stable toolchain reports the time of each test only with unstable features unlocked.
            command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
        }
        for (variable, value) in environment {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        let mut child = command.spawn().with_context(|| format!("could not run {}", self.path.display()))?;
        // The command holds the writing ends of the pipe: otherwise the output would never end.
        drop(command);
        // In the background: a process that the program left behind may keep the pipe open.
        let printed = Arc::new(Mutex::new(Vec::new()));
        let (reading, read) = mpsc::channel::<()>();
        std::thread::spawn({
            let printed = Arc::clone(&printed);
            move || {
                let mut piece = [0; 8192];
                while let Ok(length @ 1..) = output.read(&mut piece) {
                    lock(&printed).extend_from_slice(&piece[..length]);
                }
                drop(reading);
            }
        });
        let mut overtime = Overtime::default();
        let mut parsed = 0;
        let (status, unended) = loop {
            if let Some(status) = child.try_wait()? {
                break (status.to_string(), Vec::new());
            }
            let now = Instant::now();
            parsed += overtime.read_lines(&lock(&printed)[parsed..], now);
            if now > deadline || overtime.is_over(now) {
                child.kill()?;
                child.wait()?;
                let unended = overtime.into_names();
                break (format!("killed: its time was over; still running: {unended:?}"), unended);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let _ = read.recv_timeout(Duration::from_secs(10));
        let printed = std::mem::take(&mut *lock(&printed));
        let (name, path) = (&self.name, self.path.display());
        let printed = String::from_utf8_lossy(&printed);
        let took = began.elapsed().as_secs_f64();
        let output = format!("     Running {name} ({path})\n{printed}");
        let passed = status == PASSED;
        let result = if passed { "ok" } else { "FAILED" };
        Ok(Ended {
            output,
            passed,
            unended,
            summary: format!("<== {result}: {name} ({took:.1} s, {status})"),
        })
    }
}

/// Programs that wait to run, while cargo may still build more.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    programs: Vec<Program>,
    complete: bool,
}

/// Adds programs to the pool. Dropping it closes the pool.
pub(crate) struct Filling<'a>(&'a Pool);

impl Filling<'_> {
    pub(crate) fn add(&self, program: Program) {
        self.0.lock().programs.push(program);
        self.0.changed.notify_all();
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.0.lock().complete = true;
        self.0.changed.notify_all();
    }
}

impl Pool {
    pub(crate) fn filling(&self) -> Filling<'_> {
        Filling(self)
    }

    /// Waits for the next program. Returns `None` when all have been taken. A worker that does not run beside the build gets none before
    /// the pool is closed.
    pub(crate) fn next(&self, beside_the_build: bool) -> Option<Program> {
        let mut waiting = self.lock();
        loop {
            if (beside_the_build || waiting.complete)
                && let Some(next) = turn(&waiting.programs)
            {
                return Some(waiting.programs.swap_remove(next));
            }
            if waiting.complete {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn turn(programs: &[Program]) -> Option<usize> {
    let place = |program: &Program| LONGEST_FIRST.iter().position(|&name| name == program.name);
    let first = programs.iter().enumerate().min_by_key(|(_, it)| place(it).unwrap_or(usize::MAX));
    first.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_longest_begins_first() {
        let pool = Pool::default();
        let filling = pool.filling();
        for name in ["xtask src/main.rs", LONGEST_FIRST[1], LONGEST_FIRST[0]] {
            filling.add(Program { name: name.to_owned(), path: PathBuf::new(), folder: PathBuf::new() });
        }
        drop(filling);
        let order: Vec<_> = std::iter::from_fn(|| pool.next(false)).map(|it| it.name).collect();
        assert_eq!(order, [LONGEST_FIRST[0], LONGEST_FIRST[1], "xtask src/main.rs"]);
    }
}
