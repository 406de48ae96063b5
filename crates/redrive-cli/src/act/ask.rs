//! Asks before anything is done.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::Result;
use redrive::ops::Plan;

use crate::args::Pace;
use crate::desk::plan::needs_count;
use crate::exit::usage;

/// What the user must answer.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    /// Yes or no: it can be done again.
    Confirm,
    /// The count.
    Count(usize),
}

/// Returns whether the user agrees.
///
/// # Errors
///
/// If there is no terminal to ask on.
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
/// If there is no terminal to ask on.
pub(super) fn counted(count: usize, action: &str) -> Result<bool> {
    answer(&Question::Count(count), &format!("type the number of messages, {count}, to {action} them: "))
}

fn answer(question: &Question, text: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(usage("nobody can be asked: there is no terminal. Pass --yes"));
    }
    eprint!("{text}");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(is_agreement(question, &answer))
}

fn question(plan: &Plan) -> Question {
    if needs_count(plan) { Question::Count(plan.entries().len()) } else { Question::Confirm }
}

fn is_agreement(question: &Question, answer: &str) -> bool {
    let answer = answer.trim();
    match question {
        Question::Confirm => matches!(answer, "y" | "Y" | "yes"),
        Question::Count(count) => answer.parse() == Ok(*count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discard_needs_its_count_and_nothing_else_agrees() {
        assert!(is_agreement(&Question::Count(13), "13\n"));
        for answer in ["y", "", "12", "1 3"] {
            assert!(!is_agreement(&Question::Count(13), answer), "{answer}");
        }
        assert!(is_agreement(&Question::Confirm, "y\n") && !is_agreement(&Question::Confirm, "\n"));
    }
}
