//! The parser.

use super::condition::{
    Comparison, Condition, CountField, FOREIGN, OR, Term, Test, TextField, handle, is_operator,
};
use super::error::ParseFilterError;
use super::scan::Scanner;

/// Maximum number of bytes of a filter.
const MAX_BYTES: usize = 4096;
/// Maximum number of steps of a path.
pub(super) const MAX_STEPS: usize = 32;
/// Maximum number of characters of a word that an error repeats.
const MAX_REPEATED: usize = 40;

type Parsed<T> = Result<T, ParseFilterError>;

/// Parses the alternatives of a filter: terms that must all match.
pub(super) fn alternatives(text: &str) -> Parsed<Vec<Vec<Term>>> {
    if text.len() > MAX_BYTES {
        let message = format!("the filter has {} bytes: at most {MAX_BYTES} are allowed", text.len());
        return Err(ParseFilterError::new(text, 0, 0, &message));
    }
    let mut scanner = Scanner::new(text);
    let mut alternatives = vec![Vec::new()];
    let mut last_or = None;
    loop {
        scanner.skip_spaces();
        let start = scanner.at;
        let is_missing = alternatives.last().is_none_or(Vec::is_empty);
        if scanner.peek().is_none() {
            return match last_or {
                Some(or) if is_missing => {
                    Err(ParseFilterError::new(text, or, or + 2, "a term is missing after `or`"))
                }
                _ => Ok(alternatives),
            };
        }
        if take_or(&mut scanner) {
            if is_missing {
                let advice = r#"a term is missing before `or`: to look for the word, write `"or"`"#;
                return Err(scanner.error(start, advice));
            }
            last_or = Some(start);
            alternatives.push(Vec::new());
            continue;
        }
        let term = term(&mut scanner)?;
        if let Some(terms) = alternatives.last_mut() {
            add(terms, term);
        }
        if scanner.peek().is_some_and(|c| !c.is_whitespace()) {
            let start = scanner.at;
            scanner.word(|_| false);
            return Err(scanner.error(start, "a space is missing between two terms"));
        }
    }
}

/// Adds a term. No entry has two handles: the handles of several entries are one term, which selects all of them.
fn add(terms: &mut Vec<Term>, term: Term) {
    if let Condition::Entries(more) = &term.condition {
        for before in terms.iter_mut().filter(|before| before.negated == term.negated) {
            if let Condition::Entries(handles) = &mut before.condition {
                handles.extend(more.iter().cloned());
                return;
            }
        }
    }
    terms.push(term);
}

fn take_or(scanner: &mut Scanner<'_>) -> bool {
    let word = scanner.rest().split(char::is_whitespace).next().unwrap_or_default();
    OR.contains(&word) && scanner.take(word)
}

fn term(scanner: &mut Scanner<'_>) -> Parsed<Term> {
    let start = scanner.at;
    let negated = scanner.take("-");
    if scanner.peek().is_none_or(char::is_whitespace) {
        return Err(
            scanner.error(start, r#"a term is missing after `-`: to look for the character, write `"-"`"#)
        );
    }
    let start = scanner.at;
    if scanner.take("(") {
        let advice =
            "parentheses are not known: write alternatives in full, as in `a b or a c`, and quote texts";
        return Err(scanner.error(start, advice));
    }
    if scanner.take("-") {
        return Err(scanner.error(start, "one `-` is enough: quote a text that begins with it"));
    }
    Ok(Term { negated, condition: condition(scanner)? })
}

fn condition(scanner: &mut Scanner<'_>) -> Parsed<Condition> {
    let start = scanner.at;
    if scanner.peek() == Some('"') {
        return match scanner.quoted()? {
            text if text.is_empty() => {
                Err(scanner.error(start, "the text is empty: write the text to look for"))
            }
            text => Ok(Condition::Anywhere(text)),
        };
    }
    if let Some(handle) = handle(scanner.rest().split(char::is_whitespace).next().unwrap_or_default()) {
        scanner.word(|_| false);
        return Ok(Condition::Entries(vec![handle]));
    }
    let field = scanner.word(|c| c == '"' || c == '.' || is_operator(c));
    match (field, scanner.peek()) {
        ("header", Some('.')) => {
            let (path, test) = (path(scanner)?, test(scanner, start)?);
            Ok(Condition::Header(path.join("."), test))
        }
        ("body", Some('.')) => Ok(Condition::Body(path(scanner)?, test(scanner, start)?)),
        (_, Some(operator)) if is_operator(operator) => field_condition(scanner, field, start),
        _ => {
            scanner.word(|c| c == '"' || is_operator(c));
            let word = &scanner.text[start..scanner.at];
            match scanner.peek() {
                Some('"') => Err(scanner.error(start, "a quote within a word: quote the whole text")),
                Some(c) if is_operator(c) => Err(unknown_field(scanner, word, start)),
                _ if FOREIGN.contains(&word) => Err(scanner.error(start, foreign_advice(word))),
                _ => Ok(Condition::Anywhere(word.to_owned())),
            }
        }
    }
}

fn field_condition(scanner: &mut Scanner<'_>, field: &str, start: usize) -> Parsed<Condition> {
    if let Some(field) = TextField::parse(field) {
        return Ok(Condition::Text(field, test(scanner, start)?));
    }
    if let Some(field) = CountField::parse(field) {
        let comparison = comparison(scanner);
        let (at, value) = value(scanner)?;
        let Some(comparison) = comparison else {
            return Err(
                scanner.error(start, format!("`{0}` is a number: write for example `{0}>=3`", field.word()))
            );
        };
        let count = value.parse().map_err(|_| {
            scanner.error(
                at,
                format!("`{}` is not a count: write for example `{}>=3`", repeated(&value), field.word()),
            )
        })?;
        return Ok(Condition::Count(field, comparison, count));
    }
    match field {
        "age" => age(scanner, start),
        "group" => group(scanner, start),
        "header" => {
            Err(scanner
                .error(start, "the name of the header is missing: write for example `header.tenant:blue`"))
        }
        "body" => {
            Err(scanner.error(start, "the path in the body is missing: write for example `body.order.id=42`"))
        }
        _ => Err(unknown_field(scanner, field, start)),
    }
}

fn age(scanner: &mut Scanner<'_>, start: usize) -> Parsed<Condition> {
    let comparison = comparison(scanner);
    let (at, value) = value(scanner)?;
    let Some(comparison) = comparison.filter(|it| *it != Comparison::Equal) else {
        return Err(scanner
            .error(start, "an age is compared with `>`, `>=`, `<` or `<=`: write for example `age>1h`"));
    };
    let age = humantime::parse_duration(&value).map_err(|_| {
        let value = repeated(&value);
        scanner.error(at, format!("`{value}` is not a duration: write for example `age>1h` or `age>2d12h`"))
    })?;
    Ok(Condition::Age(comparison, age))
}

fn group(scanner: &mut Scanner<'_>, start: usize) -> Parsed<Condition> {
    let comparison = comparison(scanner);
    let (at, value) = value(scanner)?;
    if comparison != Some(Comparison::Equal) {
        return Err(
            scanner.error(start, "a group is named by its id: write `group:` and 16 hexadecimal digits")
        );
    }
    let id = value.strip_prefix('g').unwrap_or(&value).parse().map_err(|_| {
        let value = repeated(&value);
        scanner.error(
            at,
            format!("`{value}` is not the id of a group: it has 16 hexadecimal digits in lower case"),
        )
    })?;
    Ok(Condition::Group(id))
}

/// Takes an operator between a field and a number; `None`: it does not compare numbers.
fn comparison(scanner: &mut Scanner<'_>) -> Option<Comparison> {
    let longest_first = ["<=", ">=", "<", ">", "=", ":", "~"];
    let operator = longest_first.into_iter().find(|operator| scanner.take(operator))?;
    Comparison::parse(if operator == ":" { "=" } else { operator })
}

/// Takes the operator and the value of a text.
fn test(scanner: &mut Scanner<'_>, start: usize) -> Parsed<Test> {
    let operator = scanner.peek().unwrap_or(' ');
    if !is_operator(operator) {
        return Err(
            scanner.error(start, "a value is missing: write `:` and the whole text, or `~` and a part of it")
        );
    }
    scanner.take(operator.encode_utf8(&mut [0; 4]));
    if operator == '<' || operator == '>' {
        let field = repeated(&scanner.text[start..scanner.at - 1]);
        let advice = format!("`{field}` is a text: write `:` and the whole text, or `~` and a part of it");
        return Err(scanner.error(start, advice));
    }
    let (_, value) = value(scanner)?;
    Ok(if operator == '~' { Test::Contains(value) } else { Test::Is(value) })
}

/// Takes a value, with its position.
fn value(scanner: &mut Scanner<'_>) -> Parsed<(usize, String)> {
    let at = scanner.at;
    if scanner.peek() == Some('"') {
        return Ok((at, scanner.quoted()?));
    }
    let word = scanner.word(|c| c == '"');
    if scanner.peek() == Some('"') {
        return Err(scanner.error(at, "a quote within a value: quote the whole value"));
    }
    if word.is_empty() {
        return Err(scanner.error(at, r#"a value is missing: for an empty one, write `""`"#));
    }
    if word.starts_with(is_operator) {
        return Err(scanner.error(at, "two operators: quote a value that begins with one"));
    }
    Ok((at, word.to_owned()))
}

/// Takes the steps of a path, each after a dot.
fn path(scanner: &mut Scanner<'_>) -> Parsed<Vec<String>> {
    let start = scanner.at;
    let mut steps = Vec::new();
    while scanner.take(".") {
        let at = scanner.at;
        let step = match scanner.peek() {
            Some('"') => scanner.quoted()?,
            _ => scanner.word(|c| c == '.' || c == '"' || is_operator(c)).to_owned(),
        };
        if step.is_empty() {
            return Err(scanner.error(at, "a name is missing after the dot"));
        }
        if step.ends_with('!') && scanner.text[at..scanner.at].ends_with('!') {
            let advice = "there is no `!=`: put a `-` before it for those that are not so, as in `-body.id:1`. A name that ends with `!` is \
                          quoted";
            return Err(scanner.error(scanner.at - 1, advice));
        }
        steps.push(step);
        if steps.len() > MAX_STEPS {
            return Err(scanner.error(start, format!("the path is too long: it may have {MAX_STEPS} steps")));
        }
    }
    Ok(steps)
}

fn unknown_field(scanner: &Scanner<'_>, field: &str, start: usize) -> ParseFilterError {
    let texts = TextField::ALL.iter().map(|field| field.word());
    let counts = CountField::ALL.iter().map(|field| field.word());
    let known: Vec<_> = texts.chain(counts).chain(["age", "group", "header.NAME", "body.PATH"]).collect();
    let known = known.join(", ");
    let field = repeated(field);
    let end = scanner.at;
    let message = format!("`{field}` is not a field: write one of {known}; or quote the text to look for it");
    ParseFilterError::new(scanner.text, start, end, &message)
}

fn foreign_advice(word: &str) -> String {
    match word {
        "not" | "NOT" => {
            format!(r#"a term is negated by `-` before it: to look for the word, write `"{word}"`"#)
        }
        _ => format!(
            r#"all terms must match anyway, leave `{word}` out: to look for the word, write `"{word}"`"#
        ),
    }
}

/// Returns the word as an error repeats it.
fn repeated(word: &str) -> String {
    let mut repeated: String = word.chars().take(MAX_REPEATED).collect();
    if repeated.len() < word.len() {
        repeated.push('…');
    }
    repeated
}
