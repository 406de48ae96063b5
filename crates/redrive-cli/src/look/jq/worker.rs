//! The process that runs a program of jq: a line of JSON in, and out `true` or `false`, or, as an editor, a line of JSON. `!` and the error end it.

use std::io::{BufRead as _, Write as _};

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read};

use crate::exit::Exit;

/// The first argument of the process.
pub(crate) const NAME: &str = "__jq";

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Select,
    Edit,
}

/// Before an error: no answer begins with it.
pub(super) const FAILED: char = '!';

/// Answers each line of the standard input, and ends with the first error.
pub(crate) fn run(program: &str, mode: Mode) -> anyhow::Result<Exit> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let answered = answer(program, mode, input.lines().map_while(Result::ok), |line| {
        // Nobody reads it any more.
        writeln!(output, "{line}").is_ok() && output.flush().is_ok()
    });
    if let Err(error) = answered {
        writeln!(output, "{FAILED}{}", error.replace('\n', " "))?;
    }
    Ok(Exit::Ok)
}

/// Passes the answer for each line on, as long as `say` says so.
fn answer(
    program: &str,
    mode: Mode,
    lines: impl Iterator<Item = String>,
    mut say: impl FnMut(String) -> bool,
) -> Result<(), String> {
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let (loader, arena) = (Loader::new(defs), Arena::default());
    let modules = loader.load(&arena, File { code: program, path: () }).map_err(|errors| wrong(&errors))?;
    let filter = Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
        let unknown = errors.iter().flat_map(|(_, errors)| errors);
        let unknown: Vec<_> =
            unknown.map(|(name, kind)| format!("unknown {} `{name}`", kind.as_str())).collect();
        unknown.join(", ")
    })?;
    for line in lines {
        let input = read::parse_single(line.as_bytes()).map_err(|error| error.to_string())?;
        let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
        let mut results = filter.id.run((ctx, input)).map(unwrap_valr);
        let answer = match results.next() {
            None if mode == Mode::Select => "false".to_owned(),
            None => return Err("it says nothing: the edited message is missing".to_owned()),
            Some(Ok(edited)) if mode == Mode::Edit => edited.to_string(),
            Some(Ok(Val::Bool(matches))) => matches.to_string(),
            Some(Ok(other)) => {
                return Err(format!("it says {}, and not true or false", cut(&other.to_string())));
            }
            Some(Err(error)) => return Err(cut(&error.to_string())),
        };
        if results.next().is_some() {
            return Err("it says more than one thing: `any(…)` or `all(…)` makes one of them".to_owned());
        }
        if !say(answer) {
            break;
        }
    }
    Ok(())
}

/// Returns what is wrong with a program that cannot be read.
fn wrong(errors: &load::Errors<&str, ()>) -> String {
    let at =
        |found: &str| if found.is_empty() { "at the end".to_owned() } else { format!("at `{}`", cut(found)) };
    let texts = errors.iter().flat_map(|(_, error)| match error {
        load::Error::Io(errors) => {
            errors.iter().map(|(path, error)| format!("{path}: {error}")).collect::<Vec<_>>()
        }
        load::Error::Lex(errors) => errors
            .iter()
            .map(|(expected, found)| format!("expected {} {}", expected.as_str(), at(found)))
            .collect(),
        load::Error::Parse(errors) => errors
            .iter()
            .map(|(expected, found)| format!("expected {} {}", expected.as_str(), at(found)))
            .collect(),
    });
    texts.collect::<Vec<_>>().join(", ")
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(program: &str, lines: &[&str]) -> Result<Vec<String>, String> {
        answers_of(program, Mode::Select, lines)
    }

    fn answers_of(program: &str, mode: Mode, lines: &[&str]) -> Result<Vec<String>, String> {
        let mut answers = Vec::new();
        answer(program, mode, lines.iter().map(|line| (*line).to_owned()), |answer| {
            answers.push(answer);
            true
        })?;
        Ok(answers)
    }

    #[test]
    fn each_entry_gets_true_or_false() {
        let lines = [r#"{"body":{"lines":[1,2]},"attempt":3}"#, r#"{"body":"text","attempt":1}"#];
        assert_eq!(answers(".attempt > 2", &lines).unwrap(), ["true", "false"]);
        assert_eq!(answers("select(.attempt > 2) | true", &lines).unwrap(), ["true", "false"]);
        assert_eq!(answers("(.body | type) == \"string\"", &lines).unwrap(), ["false", "true"]);
    }

    #[test]
    fn an_edit_keeps_the_order_of_names_and_long_numbers() {
        let line = r#"{"headers":{},"body":{"b":12345678901234567890123,"a":1.50}}"#;
        let edited = |program| answers_of(program, Mode::Edit, &[line]);
        let expected = r#"{"headers":{},"body":{"b":12345678901234567890123,"a":"x"}}"#;
        assert_eq!(edited(r#".body.a = "x""#).unwrap(), [expected]);
        for (program, expected) in
            [("empty", "it says nothing"), (".,.", "more than one"), (".body.a.b = 1", "cannot")]
        {
            let error = edited(program).expect_err(program);
            assert!(error.contains(expected), "{program}: {error}");
        }
    }

    #[test]
    fn a_wrong_program_says_what_is_wrong() {
        for (program, expected) in [
            (".a ==", "expected"),
            ("nothing(.)", "unknown filter `nothing`"),
            (".attempt", "it says 3, and not true or false"),
            (".body.x", "cannot index"),
            ("true, false", "more than one"),
            ("import \"a\" as a; true", ""),
        ] {
            let error = answers(program, &[r#"{"body":"text","attempt":3}"#]).expect_err(program);
            assert!(error.contains(expected), "{program}: {error}");
        }
    }
}
