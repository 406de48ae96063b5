//! What a filter consists of, and how it is printed.

use std::fmt;
use std::time::Duration;

use redrive_core::shelves::EntryHandle;

use crate::group::GroupId;

/// A condition, or its negation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) negated: bool,
    pub(super) condition: Condition,
}

/// What an entry is compared with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Condition {
    Text(TextField, Test),
    Header(String, Test),
    /// The steps of the path, at least one.
    Body(Vec<String>, Test),
    Count(CountField, Comparison, u32),
    /// Never with [`Comparison::Equal`]: no age is met to the nanosecond.
    Age(Comparison, Duration),
    Group(GroupId),
    /// One of these entries. Not empty.
    Entries(Vec<EntryHandle>),
    /// Part of the text of the error, of the id or of the body. Never empty.
    Anywhere(String),
}

/// How a text is compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Test {
    Is(String),
    Contains(String),
}

/// Declares an enum of words that are printed and parsed.
macro_rules! words {
    ($(#[$attribute:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(super) enum $name { $($variant),+ }

        impl $name {
            pub(super) const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub(super) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            pub(super) fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|it| it.word() == word)
            }
        }
    };
}

words! {
    /// A field with a text.
    TextField { Reason = "reason", Type = "type", Error = "error", Source = "source", Id = "id", Kind = "kind" }
}

words! {
    /// A field with a count.
    CountField { Attempt = "attempt", Redrives = "redrives" }
}

words! {
    /// How a number is compared.
    Comparison { Greater = ">", GreaterOrEqual = ">=", Less = "<", LessOrEqual = "<=", Equal = "=" }
}

impl Comparison {
    pub(super) fn holds<T: Ord + Copy>(self, one: T, other: T) -> bool {
        match self {
            Self::Greater => one > other,
            Self::GreaterOrEqual => one >= other,
            Self::Less => one < other,
            Self::LessOrEqual => one <= other,
            Self::Equal => one == other,
        }
    }
}

/// Words between terms. As a text they are quoted.
pub(super) const OR: [&str; 2] = ["or", "OR"];
/// Words of other filter languages, refused with advice. As a text they are quoted.
pub(super) const FOREIGN: [&str; 5] = ["and", "AND", "not", "NOT", "&&"];

/// Returns true for a character that separates a field from its value.
pub(super) fn is_operator(c: char) -> bool {
    ":=~<>".contains(c)
}

/// Returns true for characters that must not reach a terminal: they are invisible, or change the order of what is visible.
pub(super) fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negated { "-" } else { "" };
        match &self.condition {
            Condition::Entries(handles) => write_handles(f, sign, handles),
            condition => write!(f, "{sign}{condition}"),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(field, test) => write!(f, "{}{test}", field.word()),
            Self::Header(name, test) => write!(f, "header.{}{test}", Step(name)),
            Self::Body(path, test) => {
                f.write_str("body")?;
                path.iter().try_for_each(|step| write!(f, ".{}", Step(step)))?;
                test.fmt(f)
            }
            Self::Count(field, comparison, count) => {
                write!(f, "{}{}{count}", field.word(), comparison.word())
            }
            Self::Age(comparison, age) => {
                let age = humantime::format_duration(*age).to_string().replace(' ', "");
                write!(f, "age{}{age}", comparison.word())
            }
            Self::Group(id) => write!(f, "group:{id}"),
            Self::Entries(handles) => write_handles(f, "", handles),
            Self::Anywhere(text) if is_plain_text(text) => f.write_str(text),
            Self::Anywhere(text) => write_quoted(f, text),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operator, value) = match self {
            Self::Is(value) => (':', value),
            Self::Contains(value) => ('~', value),
        };
        write!(f, "{operator}")?;
        // A second operator would be read as a part of the first one, or as a mistake.
        if is_plain(value) && !value.starts_with(is_operator) {
            f.write_str(value)
        } else {
            write_quoted(f, value)
        }
    }
}

/// A step of a path, or the name of a header.
struct Step<'a>(&'a str);

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_bare =
            is_plain(self.0) && !self.0.ends_with('!') && !self.0.contains(|c| c == '.' || is_operator(c));
        if is_bare { f.write_str(self.0) } else { write_quoted(f, self.0) }
    }
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c == '"' || c.is_whitespace() || is_unprintable(c))
}

fn is_plain_text(text: &str) -> bool {
    let is_field = text.starts_with("header.") || text.starts_with("body.");
    let is_reserved =
        is_field || text.starts_with(['-', '(']) || OR.contains(&text) || FOREIGN.contains(&text);
    is_plain(text) && !is_reserved && handle(text).is_none() && !text.contains(is_operator)
}

/// Parses a word that names an entry, as entries are printed. As a text it is quoted.
pub(super) fn handle(word: &str) -> Option<EntryHandle> {
    word.parse().ok().filter(|_| is_plain(word))
}

fn write_handles(f: &mut fmt::Formatter<'_>, sign: &str, handles: &[EntryHandle]) -> fmt::Result {
    for (index, handle) in handles.iter().enumerate() {
        let space = if index > 0 { " " } else { "" };
        write!(f, "{space}{sign}{handle}")?;
    }
    Ok(())
}

fn write_quoted(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if is_unprintable(c) => write!(f, "{}", c.escape_unicode())?,
            c => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}
