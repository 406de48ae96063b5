//! The report at the end of a run: what ran where, what did not, what failed, and one last line.

use crate::servers::Server;
use crate::step::Step;
use crate::tally::{Counts, Tally};
use redrive_brokers::Version;
use std::process::ExitCode;
use std::time::Duration;

/// Everything the closing report says.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    pub(crate) steps: Vec<Step>,
    /// What is wrong: failed checks, failed tests, crashed binaries. Each counts as one.
    pub(crate) failures: Vec<String>,
    /// What was left out, and why.
    pub(crate) not_run: Vec<String>,
    /// `RabbitMQ 3.10.8 (private node): 214 tests`
    ran_on: Vec<String>,
    /// Lines that tests reported.
    pub(crate) reported: Vec<String>,
    counts: Counts,
}

impl Closing {
    /// Takes what `cargo test` brought.
    pub(crate) fn take_tests(
        &mut self,
        tally: &Tally,
        step: &Step,
        servers: &[Server],
        left_out: &[Version],
    ) {
        let before = self.failures.len();
        self.counts = tally.total();
        self.failures.extend(tally.failed.iter().cloned());
        let lost = self.counts.failed.saturating_sub(tally.failed.len());
        self.failures
            .extend((0..lost).map(|_| "a test whose name was torn: see the output above".to_owned()));
        self.failures.extend(tally.crashed().iter().map(|name| format!("{name}: crashed, no result")));

        for server in servers {
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
            .extend(left_out.iter().map(|version| format!("RabbitMQ {version} (not chosen by --broker)")));
        let clause = |(clause, times): (&String, &usize)| format!("clause {clause} ({times} times)");
        self.not_run.extend(tally.not_applying.iter().map(clause));
        self.not_run.extend(tally.ignored.iter().map(|test| format!("{test} (ignored)")));

        // Whatever else went wrong, such as code that does not compile, or a run that tested nothing.
        if self.counts.passed + self.counts.failed == 0 {
            self.failures.push("cargo test: no test ran".to_owned());
        } else if !step.passed && self.failures.len() == before {
            self.failures.push(step.name.clone());
        }
    }

    /// Prints the report. Its last line is `N passed, N failed`, with `, N skipped` where there are any.
    pub(crate) fn print(&self, took: Duration) -> ExitCode {
        println!();
        for step in &self.steps {
            println!("{step}");
        }
        println!("total: {:.1} s", took.as_secs_f64());
        for (what, lines) in [
            ("ran on ", &self.ran_on),
            ("", &self.reported),
            ("not run: ", &self.not_run),
            ("FAILED: ", &self.failures),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn closing(output: &str, passed: bool) -> Closing {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        let step = Step { name: "cargo test".into(), passed, took: Duration::ZERO };
        let mut closing = Closing::default();
        closing.take_tests(&tally, &step, &[], &[Version::V3_10]);
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
        assert_eq!(closing(skipped, true).not_run, ["RabbitMQ 3.10 (not chosen by --broker)"]);
    }

    #[test]
    fn no_way_to_fail_ends_with_none_failed() {
        assert_eq!(closing("", true).last_line(), "0 passed, 1 failed");
        assert_eq!(
            closing("error: could not compile `redrive-core`", false).last_line(),
            "0 passed, 1 failed"
        );
        let torn =
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s";
        assert_eq!(closing(torn, false).last_line(), "1 passed, 2 failed");
        let ok =
            "test result: ok. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s";
        assert_eq!(closing(ok, false).last_line(), "7 passed, 1 failed");
        let crash =
            format!("{ok}\n     Running tests/a.rs (target/debug/deps/a-6f0e4b1f4a4bd1ae)\nrunning 2 tests");
        assert_eq!(closing(&crash, false).last_line(), "7 passed, 1 failed");
    }
}
