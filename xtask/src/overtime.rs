//! The tests of a program that run for long, read from what libtest prints.

use std::time::{Duration, Instant};

/// Time limit of a test: far more than any takes. Many have a shorter one of their own, which says more.
pub(crate) const TEST_HANGS_AFTER: Duration = Duration::from_secs(30 * 60);
/// The age of a test of which libtest says that it "has been running for over 60 seconds".
const NOTED_AFTER: Duration = Duration::from_secs(60);

/// The tests that have run for over a minute and have not ended, with the moment at which libtest named them.
#[derive(Debug, Default)]
pub(crate) struct Overtime(Vec<(String, Instant)>);

impl Overtime {
    /// Reads the complete lines of a piece of the output, which was printed `now`. Returns their length.
    pub(crate) fn read_lines(&mut self, printed: &[u8], now: Instant) -> usize {
        let length = printed.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        String::from_utf8_lossy(&printed[..length]).lines().for_each(|line| self.read(line, now));
        length
    }

    fn read(&mut self, line: &str, now: Instant) {
        if let Some((before, _)) = line.split_once(" has been running for over ")
            && let Some((_, name)) = before.rsplit_once("test ")
        {
            self.0.push((name.to_owned(), now));
        } else {
            // Output of a test may come before its result on the line.
            self.0.retain(|(name, _)| !line.contains(&format!("test {name} ... ")));
        }
    }

    /// Returns true if a test has exceeded its limit.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.0.iter().any(|(_, noted)| now.duration_since(*noted) > TEST_HANGS_AFTER - NOTED_AFTER)
    }

    /// Returns the names of the tests that have not ended.
    pub(crate) fn into_names(self) -> Vec<String> {
        self.0.into_iter().map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: &str = "test v4_3::hangs has been running for over 60 seconds";

    fn after(lines: &[&str]) -> Overtime {
        let mut overtime = Overtime::default();
        lines.iter().for_each(|line| overtime.read(line, Instant::now()));
        overtime
    }

    #[test]
    fn a_test_that_did_not_end_is_named() {
        let overtime = after(&[
            "test quick ... ok <0.001s>",
            NOTED,
            "test slow has been running for over 60 seconds",
            "test v4_3::hangs_not ... ok <61.000s>",
            "printed by a test: test slow ... FAILED <75.210s>",
        ]);
        assert_eq!(overtime.into_names(), ["v4_3::hangs"]);
    }

    #[test]
    fn a_result_that_is_torn_from_its_name_ends_a_test() {
        assert!(after(&[NOTED, "test v4_3::hangs ... "]).into_names().is_empty());
    }

    #[test]
    fn a_line_that_is_not_complete_is_read_later() {
        let mut overtime = Overtime::default();
        let printed = format!("running 2 tests\n{NOTED}\ntest other ... ok\n");
        let cut = printed.find("has been").expect("it is there");
        let read = overtime.read_lines(&printed.as_bytes()[..cut], Instant::now());
        assert_eq!(&printed[..read], "running 2 tests\n");
        assert_eq!(read + overtime.read_lines(&printed.as_bytes()[read..], Instant::now()), printed.len());
        assert_eq!(overtime.into_names(), ["v4_3::hangs"]);
    }

    #[test]
    fn the_time_of_a_test_counts_from_its_beginning() {
        let noted = Instant::now();
        let mut overtime = Overtime::default();
        overtime.read(NOTED, noted);
        let limit = noted + (TEST_HANGS_AFTER - Duration::from_secs(60));
        assert!(!overtime.is_over(limit));
        assert!(overtime.is_over(limit + Duration::from_secs(1)));
        overtime.read("test v4_3::hangs ... ok <1799.000s>", limit);
        assert!(!overtime.is_over(limit + Duration::from_secs(1)));
    }
}
