//! The plan as a table of at most 100 columns, and the words that the diagram also uses.

use std::fmt::{self, Write as _};

use super::{Case, Course, Resting, RetryPlan, RouteCourses, Setting, Span, Step};
use crate::text::plural;

const WIDTH: usize = 100;
/// Column where the third column of the steps begins.
const STEP_INDENT: usize = 33;
/// Maximum number of steps to show; a longer course is shown without its middle.
const SHOWN: usize = 14;
const SHOWN_FIRST: usize = 8;
const SHOWN_LAST: usize = 3;

impl fmt::Display for RetryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { queue, system, .. } = self;
        let asked = if self.asked { "compared with the broker" } else { "no broker was asked" };
        writeln!(f, "Retry plan of `{queue}` ({system}; {asked})")?;
        for RouteCourses { route, courses } in &self.routes {
            if !route.is_empty() {
                wrapped(f, &format!("\n# Messages with {route}"), 2)?;
            }
            let (long, short): (Vec<_>, Vec<_>) = courses.iter().partition(|course| course.has_more());
            for (index, course) in long.into_iter().enumerate() {
                course.write(f, index == 0)?;
            }
            writeln!(f)?;
            for course in short {
                let then: String = course.steps.first().map(Step::then).unwrap_or_default();
                wrapped(f, &format!("On {}: {then}", course.case_names()), 2)?;
            }
        }
        writeln!(f, "\nSettings")?;
        for Setting { name, value } in &self.settings {
            wrapped(f, &format!("  {name:24}{value}"), 26)?;
        }
        writeln!(f, "\n{:26}{:24}allowed", "Limits", "asked")?;
        for limit in &self.limits {
            let or = |amount: Option<super::Amount>, none: &str| {
                amount.map_or_else(|| none.to_owned(), |amount| amount.to_string())
            };
            let (asked, allowed) = (or(limit.asked, "-"), or(limit.allowed, "no limit known"));
            writeln!(f, "  {:24}{asked:24}{allowed}", limit.name)?;
        }
        if !self.findings.is_empty() {
            writeln!(f, "\nFindings")?;
        }
        for finding in &self.findings {
            wrapped(f, &format!("  {:11}{}", finding.severity.to_string(), finding.text), 13)?;
        }
        Ok(())
    }
}

impl Course {
    fn write(&self, f: &mut fmt::Formatter<'_>, with_head: bool) -> fmt::Result {
        wrapped(f, &format!("\nOn {}:", self.case_names()), 2)?;
        if with_head {
            writeln!(f, "  attempt  begins after          then")?;
        }
        let hidden = self.hidden();
        for (index, step) in self.steps.iter().enumerate() {
            if hidden.start == index && !hidden.is_empty() {
                writeln!(f, "           … {} more …", hidden.len())?;
            }
            if !hidden.contains(&index) {
                let head = format!("  {:>7}  {:<22}", step.attempt, step.begins_after.to_string());
                wrapped(f, &format!("{head}{}", step.then()), STEP_INDENT)?;
            }
        }
        writeln!(f, "  {}", self.worst())
    }

    /// Returns false if it ends with the first attempt.
    fn has_more(&self) -> bool {
        self.steps.len() > 1 || !self.ends
    }

    /// Returns the range of the steps that are not shown.
    pub(super) fn hidden(&self) -> std::ops::Range<usize> {
        let count = self.steps.len();
        if count > SHOWN { SHOWN_FIRST..count - SHOWN_LAST } else { count..count }
    }

    pub(super) fn case_names(&self) -> String {
        let mut names: Vec<_> = self.cases.iter().map(ToString::to_string).collect();
        let last = names.pop().unwrap_or_default();
        if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) }
    }

    /// Returns the upper bounds of the sums.
    pub(super) fn worst(&self) -> String {
        let attempts = plural(self.steps.len(), "attempt");
        let operations = plural(self.operations(), "broker operation");
        if !self.ends {
            return format!("Still retried after {attempts}: as far as was looked, without end.");
        }
        let waited = humantime::format_duration(self.longest());
        format!("At most {attempts}, {waited} of waiting, {operations}.")
    }
}

impl Step {
    fn then(&self) -> String {
        let mut said = self.decision.to_owned();
        if let Some(wait) = &self.wait {
            let _ = write!(said, " after {wait}");
        } else if let Some(reason) = &self.reason {
            let _ = write!(said, " as {reason}");
        }
        if !self.rests.is_empty() {
            let _ = write!(said, ", rests in {}", self.places());
        }
        if !self.operations.is_empty() {
            let _ = write!(said, " ({})", self.operations.join(", "));
        }
        said
    }

    /// Returns where the message rests; with jitter, for the lower and for the upper bound.
    pub(super) fn places(&self) -> String {
        let listed =
            |rests: &[Resting]| rests.iter().map(ToString::to_string).collect::<Vec<_>>().join(", then ");
        match &self.rests_at_least {
            Some(least) if !least.is_empty() => format!("{} … {}", listed(least), listed(&self.rests)),
            _ => listed(&self.rests),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transient => f.write_str("a transient error"),
            Self::Throttled => f.write_str("a throttled error that asks for no longer wait"),
            Self::Panic => f.write_str("a panic"),
            Self::Permanent => f.write_str("a permanent error"),
            Self::Rejected => f.write_str("an argument that cannot be extracted"),
            Self::Expired => f.write_str("a transient error of an expired message"),
            Self::Redriven(times) => write!(f, "a permanent error after {}", plural(times, "redrive")),
            Self::Poison(times) => write!(f, "delivery {times}, when the process died in each before"),
        }
    }
}

impl fmt::Display for Resting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.times {
            1 => f.write_str(&self.place),
            times => write!(f, "{} ({times} times)", self.place),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { least, most } = *self;
        if least < most {
            write!(f, "{} to ", humantime::format_duration(least))?;
        }
        write!(f, "{}", humantime::format_duration(most))
    }
}

/// Writes a line, broken between words; continued lines are indented.
fn wrapped(f: &mut fmt::Formatter<'_>, line: &str, indent: usize) -> fmt::Result {
    let mut column = 0;
    for (index, word) in line.split(' ').enumerate() {
        let width = word.chars().count();
        if index > 0 && column > indent && column + 1 + width > WIDTH {
            write!(f, "\n{:indent$}{word}", "")?;
            column = indent + width;
        } else {
            let space = if index > 0 { " " } else { "" };
            write!(f, "{space}{word}")?;
            column += space.len() + width;
        }
    }
    writeln!(f)
}
