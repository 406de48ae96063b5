//! The filter language. Pure.
//!
//! | module | contains |
//! |---|---|
//! | [`condition`] | what a filter consists of, and how it is printed |
//! | [`parse`] | the parser |
//! | [`scan`] | reads words and quoted texts |
//! | [`error`] | the error of the parser |
//! | [`matching`] | compares an entry with a condition |
//! | [`json`] | looks up a path in a JSON body |

mod condition;
mod error;
#[cfg(test)]
mod exact_tests;
mod json;
mod matching;
mod parse;
mod scan;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use redrive_core::shelves::{EntryHandle, Shelved};

use self::condition::{Condition, Term};
pub use self::error::ParseFilterError;
use self::matching::Looked;
use crate::group::GroupId;

/// Selects entries of a shelf.
///
/// ```
/// use std::time::SystemTime;
///
/// use redrive_core::{Message, Shelf, header_names};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::{Filter, Template};
///
/// let message = Message::new(r#"{"order": {"id": 42}}"#)
///     .with_header("tenant", "blue")
///     .with_header(header_names::REASON, "RetryableError")
///     .with_header(header_names::ERROR, "Request timed out");
/// let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
///
/// let filter: Filter = r#"error~"timed out" header.tenant:blue body.order.id=42 -redrives>0"#.parse()?;
/// assert!(filter.matches(&entry, Template::of(&entry).id(), SystemTime::now()));
///
/// let error = "resaon:OutOfStock".parse::<Filter>().unwrap_err();
/// assert_eq!(error.to_string().lines().nth(2), Some("  ^^^^^^"));
/// # Ok::<(), redrive_ops::ParseFilterError>(())
/// ```
///
/// # The language
///
/// | term | matches |
/// |---|---|
/// | `reason:OutOfStock` | the [reason](Shelved::reason), of redrive or of the broker |
/// | `type:Timeout` | the type of the error |
/// | `error~"timed out"`, `error:"exact text"` | the text of the error, or the broker's description |
/// | `source:orders` | the queue whose consumer failed |
/// | `id:order-7` | the message's id |
/// | `kind:order.placed` | the [kind](redrive_core::Properties::kind) of message |
/// | `group:ec0c6f7078545fc6` | the [group](GroupId); a `g` before the digits is allowed |
/// | `age>1h`, `age<=2d12h` | the time since the entry was shelved, or failed last if only that is known |
/// | `attempt>=3`, `redrives>0` | the number of failures, and of redrives; an unreadable number is the largest one |
/// | `header.tenant:blue` | a header of the message |
/// | `body.order.id=42` | a value in a JSON body, also of one that is packed or [encoded](crate::BodyView); a number of the path is a position in an array, any other step takes every element |
/// | `dead-letter/4f1e…` | the entry of this [handle](EntryHandle), written whole; of several handles, any of these entries |
/// | `"no address"`, `timeout` | text of the error, id or body, upper and lower case alike |
///
/// `:` or `=` compares the whole text, `~` looks for a part of it, upper and lower case alike. Numbers are compared with `>`, `>=`,
/// `<`, `<=`, `=`, ages with the first four. An entry whose time is not known, or not [plausible](redrive_core::plausible), has no age:
/// no comparison matches it. A number in a header or in the body is compared by its value, digit by digit: `1.10` is `1.1`, and
/// `12345678901234567890123` is not `12345678901234567890124`. `reason:""`
/// matches entries without a reason; `header.tenant~""` matches entries with any such header.
///
/// - Terms next to each other must all match: `reason:Late age>1h`.
/// - `or` separates alternatives: `reason:Late age>1h or type:Timeout`. There are no parentheses.
/// - `-` before a term negates it: `-reason:Late`.
/// - Values with a space are quoted: `error~"timed out"`. Within quotes, `\"`, `\\`, `\n`, `\r`, `\t` and `\u{1b}` are known. Names can
///   be quoted too: `header."my tenant":blue`, `body."a.b".c:1`.
/// - A text that looks like a handle is quoted: `"dead-letter/box"`.
/// - The empty filter matches every entry.
///
/// A printed filter is parsed as the same filter.
///
/// # Bounds
///
/// A filter has at most 4096 bytes, a path in the body at most 32 steps. Matching takes time proportional to the message and the
/// filter. A body that is no JSON matches no `body.` term. What hangs on a body that nobody can look into, or on a value that is nested
/// more than 128 deep, is [unknown](Verdict::Unknown), and selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    /// At least one of these; all terms of it.
    alternatives: Vec<Vec<Term>>,
}

impl Filter {
    /// Creates the filter that matches every entry.
    #[must_use]
    pub fn all() -> Self {
        Self { alternatives: vec![Vec::new()] }
    }

    /// Creates the filter that matches the entries of a group.
    #[must_use]
    pub fn group(id: GroupId) -> Self {
        Self { alternatives: vec![vec![Term { negated: false, condition: Condition::Group(id) }]] }
    }

    /// Returns the handles of the entries that the filter names. Those that it excludes, as in `-dead-letter/17`, are not among them.
    pub fn handles(&self) -> impl Iterator<Item = &EntryHandle> {
        self.alternatives.iter().flatten().filter(|term| !term.negated).flat_map(|term| {
            match &term.condition {
                Condition::Entries(handles) => &handles[..],
                _ => &[],
            }
        })
    }

    /// Returns true if the entry, which is in this group, matches for sure; its age is counted until `now`.
    #[must_use]
    pub fn matches(&self, entry: &Shelved, group: GroupId, now: SystemTime) -> bool {
        self.judge(entry, group, now) == Verdict::Matches
    }

    /// Returns whether the entry, which is in this group, matches, or that it cannot be told; its age is counted until `now`.
    #[must_use]
    pub fn judge(&self, entry: &Shelved, group: GroupId, now: SystemTime) -> Verdict {
        let looked = Looked::new(entry, group, now);
        let mut verdict = Verdict::Differs;
        for terms in &self.alternatives {
            match all(terms, &looked) {
                Verdict::Matches => return Verdict::Matches,
                Verdict::Unknown => verdict = Verdict::Unknown,
                Verdict::Differs => {}
            }
        }
        verdict
    }
}

/// What a [`Filter`] says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It matches.
    Matches,
    /// It does not match.
    Differs,
    /// It hangs on the body, into which nobody can [look](crate::BodyView::problem): it is packed in an unknown way, damaged, too large
    /// when unpacked, or nested too deeply. The entry is not selected, also not by the negation.
    Unknown,
}

/// Returns whether all terms hold. One that does not is sure, whatever is unknown of the others.
fn all(terms: &[Term], looked: &Looked<'_>) -> Verdict {
    let mut verdict = Verdict::Matches;
    for term in terms {
        match term.condition.holds(looked) {
            Some(holds) if holds == term.negated => return Verdict::Differs,
            Some(_) => {}
            None => verdict = Verdict::Unknown,
        }
    }
    verdict
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, terms) in self.alternatives.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            for (index, term) in terms.iter().enumerate() {
                let space = if index > 0 { " " } else { "" };
                write!(f, "{space}{term}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Filter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<Self, ParseFilterError> {
        parse::alternatives(text).map(|alternatives| Self { alternatives })
    }
}
