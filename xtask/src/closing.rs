//! The report at the end of a run: what ran where, what did not, what failed, and one last line.

use crate::step::Step;
use crate::tally::{Counts, Tested, left_out};
use redrive_brokers::Version;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Number of the slowest tests to name.
const SLOWEST: usize = 20;
/// Number of lines of each broker's log to repeat at the very end, where a reader of a long output looks first.
const LOGGED: usize = 8;
/// The longest line that is repeated there, in letters.
const LETTERS: usize = 300;

/// The content of the closing report.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    pub(crate) steps: Vec<Step>,
    /// Failed checks, failed tests and crashed binaries. Each counts as one failure.
    pub(crate) failures: Vec<String>,
    /// Where and why failed tests panicked.
    panics: Vec<String>,
    /// What was left out, and why.
    pub(crate) not_run: Vec<String>,
    /// `RabbitMQ 3.10.8 (private node): 214 tests`
    ran_on: Vec<String>,
    /// Lines that tests reported.
    reported: Vec<String>,
    slowest: Vec<String>,
    /// The state of the machine, and what a broker logged last that no test provokes: the cause, if all tests on it fail from some
    /// moment on.
    logged: Vec<String>,
    /// Duration of the tests.
    tested: Option<Duration>,
    counts: Counts,
}

impl Closing {
    /// Adds a step that has ended.
    pub(crate) fn take(&mut self, step: Step) {
        if !step.passed {
            self.failures.push(step.name.clone());
        }
        self.steps.push(step);
    }

    /// Adds the results of the tests.
    pub(crate) fn take_tests(&mut self, tested: Tested, versions: &[Version]) {
        let Tested { tally, servers, reported, took } = tested;
        self.counts = tally.total();
        self.tested = Some(took);
        self.reported.extend(reported);
        self.failures.extend(tally.failed.iter().cloned());
        self.failures.extend(tally.unended.iter().map(|test| format!("{test}: did not end")));
        self.panics.extend(tally.panics.iter().map(|line| short(line)));
        let lost = self.counts.failed.saturating_sub(tally.failed.len());
        self.failures
            .extend((0..lost).map(|_| "a test whose name was torn: see the output above".to_owned()));
        self.failures.extend(tally.crashed().iter().map(|name| format!("{name}: crashed, no result")));
        let line = |(took, name): (f64, &str)| format!("{took:.1} s {name}");
        self.slowest.extend(tally.slowest(SLOWEST).into_iter().map(line));

        if !self.failures.is_empty() {
            self.logged.push(format!("the machine: {}", machine()));
        }
        for server in servers.iter().filter(|_| !self.failures.is_empty()) {
            println!("==> what {} logged", server.describe());
            let lines = server.unusual_log_lines();
            lines.iter().for_each(|line| println!("{line}"));
            let last = lines.iter().rev().take(LOGGED).rev();
            self.logged.extend(last.map(|line| format!("{}: {}", server.version, short(line))));
        }
        for server in &servers {
            let ran = tally.ran_on.get(&server.version).copied().unwrap_or(0);
            self.ran_on.push(format!("{}: {ran} tests", server.describe()));
            if ran == 0 {
                self.failures.push(format!("no test ran on RabbitMQ {}", server.version));
            }
        }
        if tally.unnamed > 0 {
            self.ran_on
                .push(format!("unknown brokers, or none: {} tests (names torn by output)", tally.unnamed));
        }
        self.not_run
            .extend(left_out(versions).iter().map(|version| format!("RabbitMQ {version} (not chosen)")));
        let clause = |(clause, times): (&String, &usize)| format!("clause {clause} ({times} times)");
        self.not_run.extend(tally.not_applying.iter().map(clause));
        self.not_run.extend(tally.ignored.iter().map(|test| format!("{test} (ignored)")));

        // A run that tested nothing has failed.
        if self.counts.passed + self.counts.failed == 0 {
            self.failures.push("no test ran".to_owned());
        }
    }

    /// Prints the report. Its last line is `N passed, N failed`, with `, N skipped` if there are any.
    pub(crate) fn print(&self, took: Duration) -> ExitCode {
        println!();
        for step in &self.steps {
            println!("{step}");
        }
        if let Some(tested) = self.tested {
            println!("tests: {:.1} s, beside the other steps", tested.as_secs_f64());
        }
        println!("total: {:.1} s", took.as_secs_f64());
        for (what, lines) in [
            ("ran on ", &self.ran_on),
            ("", &self.reported),
            ("slowest: ", &self.slowest),
            ("not run: ", &self.not_run),
            ("beside: ", &self.logged),
            ("FAILED: ", &self.failures),
            ("why: ", &self.panics),
        ] {
            lines.iter().for_each(|line| println!("{what}{line}"));
        }
        println!("{}", self.last_line());
        if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn last_line(&self) -> String {
        let skipped = self.counts.ignored + self.counts.filtered;
        let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        format!("{} passed, {} failed{skipped}", self.counts.passed, self.failures.len())
    }
}

/// What is left of the machine: brokers fail in strange ways where the disk is full or nothing runs in time.
fn machine() -> String {
    let folder = std::env::temp_dir();
    let disk = Command::new("df").args(["-h", "--output=avail"]).arg(&folder).output();
    let disk = disk.map(|output| {
        String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().trim().to_owned()
    });
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{} free in {}, load {}", disk.unwrap_or_default(), folder.display(), load.trim())
}

fn short(line: &str) -> String {
    line.chars().take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::Tally;

    fn closing(output: &str, passed: bool) -> Closing {
        let mut tally = Tally::default();
        tally.read_program(output, passed);
        let mut closing = Closing::default();
        let (servers, reported, took) = (Vec::new(), Vec::new(), Duration::ZERO);
        closing.take_tests(Tested { tally, servers, reported, took }, &[Version::V4_3]);
        closing
    }

    #[test]
    fn the_last_line_is_alone_in_its_form() {
        let ok =
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        assert_eq!(closing(ok, true).last_line(), "7 passed, 0 failed");
        let skipped =
            "test result: ok. 7 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 1.00s";
        assert_eq!(closing(skipped, true).last_line(), "7 passed, 0 failed, 3 skipped");
        assert_eq!(closing(skipped, true).not_run, ["RabbitMQ 3.10 (not chosen)"]);
    }

    #[test]
    fn no_way_to_fail_ends_with_none_failed() {
        assert_eq!(closing("", true).last_line(), "0 passed, 1 failed");
        let mut uncompiled = closing("", true);
        uncompiled.take(Step { name: "cargo test".into(), passed: false, took: Duration::ZERO });
        assert_eq!(uncompiled.last_line(), "0 passed, 2 failed");
        let torn =
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(closing(torn, false).last_line(), "1 passed, 2 failed");
        let ok =
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        assert_eq!(closing(ok, false).last_line(), "7 passed, 1 failed");
        let crash = format!("{ok}\n     Running core tests/a.rs (target/debug/deps/a-6f)\nrunning 2 tests");
        assert_eq!(closing(&crash, false).last_line(), "7 passed, 1 failed");
    }
}
