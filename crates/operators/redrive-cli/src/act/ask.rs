//! Asks before anything is done.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::{Result, bail};
use redrive::ops::Plan;

use crate::args::Pace;
use crate::desk::plan::needs_count;
use crate::exit::usage;
use crate::output::{one_line, plural};

/// What the user must answer.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    /// Yes or no: it can be done again.
    Confirm,
    /// The count.
    Count(usize),
}

/// What the user answered.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// Another count, or something that is none.
    OtherCount,
}

/// Returns whether the user agrees.
///
/// # Errors
///
/// If there is no terminal to ask on, or the count does not match.
pub(super) fn agreed(plan: &Plan, pace: &Pace) -> Result<bool> {
    if pace.yes {
        return Ok(true);
    }
    let action = plan.action();
    match question(plan) {
        Question::Confirm => confirmed(&format!("{action} them")),
        Question::Count(count) => counted(count, &action.to_string()),
    }
}

/// Asks yes or no.
///
/// # Errors
///
/// If there is no terminal to ask on.
pub(super) fn confirmed(what: &str) -> Result<bool> {
    answer(&Question::Confirm, &format!("{what}? [y/N] "))
}

/// Asks for the count.
///
/// # Errors
///
/// If there is no terminal to ask on, or the count does not match.
pub(super) fn counted(count: usize, action: &str) -> Result<bool> {
    answer(&Question::Count(count), &format!("type the number of messages, {count}, to {action} them: "))
}

fn answer(question: &Question, text: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(usage("cannot ask for confirmation without a terminal. Pass --yes"));
    }
    let _ = write!(std::io::stderr(), "{text}");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match read(question, &answer) {
        Answer::Yes => Ok(true),
        Answer::No => Ok(false),
        Answer::OtherCount => {
            let count = match question {
                Question::Count(count) => *count,
                Question::Confirm => 0,
            };
            bail!(
                "cancelled: the count did not match. `{}` was typed, for {}",
                one_line(&answer, 40),
                plural(count, "message")
            )
        }
    }
}

fn question(plan: &Plan) -> Question {
    if needs_count(plan) { Question::Count(plan.entries().len()) } else { Question::Confirm }
}

fn read(question: &Question, answer: &str) -> Answer {
    let answer = answer.trim();
    match question {
        Question::Confirm if matches!(answer, "y" | "Y" | "yes") => Answer::Yes,
        Question::Count(count) if answer.parse() == Ok(*count) => Answer::Yes,
        Question::Count(_) if !matches!(answer, "" | "n" | "N" | "no") => Answer::OtherCount,
        _ => Answer::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discard_needs_its_count_and_nothing_else_agrees() {
        let count = Question::Count(13);
        assert_eq!(read(&count, "13\n"), Answer::Yes);
        for answer in ["y", "12", "1 3"] {
            assert_eq!(read(&count, answer), Answer::OtherCount, "{answer}");
        }
        assert_eq!([read(&count, "\n"), read(&count, "n\n")], [Answer::No, Answer::No]);
        assert_eq!(read(&Question::Confirm, "y\n"), Answer::Yes);
        assert_eq!(
            [read(&Question::Confirm, "\n"), read(&Question::Confirm, "13")],
            [Answer::No, Answer::No]
        );
    }
}
