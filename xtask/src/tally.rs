//! Reads the output of tests: counts, names, and which binary crashed.
//!
//! Totals come from the `test result:` lines, which libtest prints whatever else is printed in between; names come from the
//! `test … ok` lines. [`Tally::unnamed`] counts the difference.

use crate::servers::Server;
use redrive_brokers::Version;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counts of the tests of one or all binaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
    pub(crate) filtered: usize,
}

/// What was read so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// In the order in which they ran.
    pub(crate) binaries: Vec<Binary>,
    /// Number of tests on each version.
    pub(crate) ran_on: BTreeMap<Version, usize>,
    /// `binary: test` of each failed test.
    pub(crate) failed: Vec<String>,
    /// `binary: test` of each test that was running for over a minute when its program was killed.
    pub(crate) unended: Vec<String>,
    /// Where and why failed tests panicked.
    pub(crate) panics: Vec<String>,
    /// `binary: test: reason` of each ignored test.
    pub(crate) ignored: Vec<String>,
    /// Clauses of the transports' contract that did not apply, with the reason and the number of times.
    pub(crate) not_applying: BTreeMap<String, usize>,
    /// Number of tests with a result but no readable name: [`ran_on`](Self::ran_on) may lack them.
    pub(crate) unnamed: usize,
    /// Duration of each test, in seconds, if it was reported.
    took: Vec<(f64, String)>,
    /// A test whose line was torn by output between its name and its result.
    torn: Option<String>,
    /// True within the output of failed tests, which may look like anything.
    replaying: bool,
    /// The number of lines of a panic that may follow.
    panicking: usize,
    /// The tests named since the last summary.
    named: usize,
}

/// One program, or the doc tests of one crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) name: String,
    /// `None` until it prints a summary; if it never does, it crashed.
    pub(crate) counts: Option<Counts>,
}

/// Results of the test programs.
pub(crate) struct Tested {
    pub(crate) tally: Tally,
    pub(crate) servers: Vec<Server>,
    /// Lines that tests reported.
    pub(crate) reported: Vec<String>,
    pub(crate) took: Duration,
}

/// Returns the versions on which no test runs.
pub(crate) fn left_out(versions: &[Version]) -> Vec<Version> {
    Version::ALL.into_iter().filter(|version| !versions.contains(version)).collect()
}

impl Tally {
    /// Reads one line of the output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let text = line.trim();
        if let Some((_, clause)) =
            text.split_once("conformance: `").filter(|(_, rest)| rest.contains("does not apply"))
        {
            *self.not_applying.entry(format!("`{clause}")).or_default() += 1;
        }
        if let Some(name) = started(text) {
            (self.torn, self.replaying) = (None, false);
            self.binaries.push(Binary { name, counts: None });
        } else if let Some(counts) = summary(text) {
            self.finish(counts);
        } else if text == "failures:" || self.replaying {
            self.replaying = true;
            self.read_panic(text);
        } else if let Some((name, result)) =
            text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            if !self.record(name, result) {
                self.torn = Some(name.to_owned());
            }
        } else if let Some(name) = text.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ...")) {
            self.torn = Some(name.to_owned());
        } else if let Some(name) = self.torn.take()
            && !self.record(&name, text)
        {
            self.torn = Some(name);
        }
    }

    /// Keeps the beginning of what a failed test panicked with.
    fn read_panic(&mut self, text: &str) {
        const MOST_LINES: usize = 5;
        if text.starts_with("thread '") && text.contains(" panicked at ") {
            self.panicking = MOST_LINES;
        } else if text.is_empty() || text == "stack backtrace:" || text.starts_with("note: ") {
            self.panicking = 0;
        }
        if self.panicking > 0 {
            self.panicking -= 1;
            self.panics.push(text.to_owned());
        }
    }

    /// Reads the whole output of one program. `passed`: its own exit status.
    pub(crate) fn read_program(&mut self, output: &str, passed: bool) {
        output.lines().for_each(|line| self.read(line));
        if let Some(Binary { name, counts: Some(Counts { failed: 0, .. }) }) = self.binaries.last()
            && !passed
        {
            self.failed.push(format!("{name}: ended with an error, although no test failed"));
        }
    }

    /// Returns the sum over all binaries.
    pub(crate) fn total(&self) -> Counts {
        self.binaries.iter().filter_map(|binary| binary.counts).fold(Counts::default(), Counts::plus)
    }

    /// Returns the slowest tests with their seconds.
    pub(crate) fn slowest(&self, count: usize) -> Vec<(f64, &str)> {
        let mut slowest: Vec<_> = self.took.iter().map(|(took, name)| (*took, name.as_str())).collect();
        slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        slowest.truncate(count);
        slowest
    }

    /// Returns the binaries that started and never reported a result.
    pub(crate) fn crashed(&self) -> Vec<&str> {
        self.binaries
            .iter()
            .filter(|binary| binary.counts.is_none())
            .map(|binary| binary.name.as_str())
            .collect()
    }

    /// Records the result of a test. Returns false if `result` is none.
    fn record(&mut self, name: &str, result: &str) -> bool {
        let binary = self.binaries.last().map_or("?", |binary| binary.name.as_str());
        match result.split([' ', ',']).next() {
            Some("ok") if result == "ok" => {}
            Some("ok") if let Some(took) = seconds(result) => {
                self.took.push((took, format!("{binary}: {name}")));
            }
            Some("FAILED") => self.failed.push(format!("{binary}: {name}")),
            Some("ignored") => {
                let reason =
                    result.strip_prefix("ignored").unwrap_or_default().trim_start_matches([',', ' ']);
                let colon = if reason.is_empty() { "" } else { ": " };
                self.ignored.push(format!("{binary}: {name}{colon}{reason}"));
                self.named += 1;
                return true;
            }
            _ => return false,
        }
        self.named += 1;
        for version in Version::ALL {
            if name.contains(version.mark()) {
                *self.ran_on.entry(version).or_default() += 1;
            }
        }
        true
    }

    fn finish(&mut self, counts: Counts) {
        let results = counts.passed + counts.failed + counts.ignored;
        self.unnamed += results.saturating_sub(self.named);
        self.named = 0;
        (self.torn, self.replaying) = (None, false);
        if self.binaries.is_empty() {
            self.binaries.push(Binary { name: "?".into(), counts: None });
        }
        // Doc tests of one crate may print several summaries: those run together and those run alone.
        if let Some(binary) = self.binaries.last_mut() {
            binary.counts = Some(binary.counts.unwrap_or_default().plus(counts));
        }
    }
}

impl Counts {
    fn plus(self, other: Counts) -> Counts {
        Counts {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
            filtered: self.filtered + other.filtered,
        }
    }
}

/// Reads the time from `ok <0.012s>`, which libtest prints with `--report-time`.
fn seconds(result: &str) -> Option<f64> {
    result.strip_prefix("ok <")?.strip_suffix("s>")?.parse().ok()
}

/// Returns the name of the program that starts: from `     Running redrive-core tests/a.rs (/target/debug/deps/a-6f0e4b1f4a4bd1ae)`.
fn started(text: &str) -> Option<String> {
    if let Some(crate_name) = text.strip_prefix("Doc-tests ") {
        return Some(format!("doc tests of {crate_name}"));
    }
    let (name, _) = text.strip_prefix("Running ")?.strip_suffix(')')?.split_once(" (")?;
    Some(name.to_owned())
}

/// `test result: ok. 4 passed; 2 failed; 0 ignored; 0 measured; 1 filtered out; finished in 14.15s`
fn summary(text: &str) -> Option<Counts> {
    let (_, numbers) = text.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| {
        let part = numbers.split("; ").find_map(|part| part.strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Counts {
        passed: count("passed")?,
        failed: count("failed")?,
        ignored: count("ignored")?,
        filtered: count("filtered out")?,
    })
}

fn without_colours(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.find(|c: char| c.is_ascii_alphabetic()).map_or("", |end| &after[end + 1..]);
    }
    plain + rest
}

#[cfg(test)]
mod tests;
