//! The process that runs a program of jq: a line of JSON in, `true`, `false` or an error out.

use std::io::{BufRead as _, Write as _};

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Vars, data, unwrap_valr};
use jaq_json::{Val, read};

use crate::exit::Exit;

/// The first argument of the process.
pub(crate) const NAME: &str = "__jq";

/// Answers each line of the standard input, and ends with the first error.
pub(crate) fn run(program: &str) -> anyhow::Result<Exit> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let answered = answer(program, input.lines().map_while(Result::ok), |line| {
        // Nobody reads it any more.
        writeln!(output, "{line}").is_ok() && output.flush().is_ok()
    });
    if let Err(error) = answered {
        writeln!(output, "{}", error.replace('\n', " "))?;
    }
    Ok(Exit::Ok)
}

/// Passes the answer for each line on, as long as `say` says so.
fn answer(
    program: &str,
    lines: impl Iterator<Item = String>,
    mut say: impl FnMut(bool) -> bool,
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
        let matches = match results.next() {
            None => false,
            Some(Ok(Val::Bool(matches))) => matches,
            Some(Ok(other)) => {
                return Err(format!("it says {}, and not true or false", cut(&other.to_string())));
            }
            Some(Err(error)) => return Err(cut(&error.to_string())),
        };
        if results.next().is_some() {
            return Err("it says more than one thing: `any(…)` or `all(…)` makes one of them".to_owned());
        }
        if !say(matches) {
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

    fn answers(program: &str, lines: &[&str]) -> Result<Vec<bool>, String> {
        let mut answers = Vec::new();
        answer(program, lines.iter().map(|line| (*line).to_owned()), |matches| {
            answers.push(matches);
            true
        })?;
        Ok(answers)
    }

    #[test]
    fn each_entry_gets_true_or_false() {
        let lines = [r#"{"body":{"lines":[1,2]},"attempt":3}"#, r#"{"body":"text","attempt":1}"#];
        assert_eq!(answers(".attempt > 2", &lines).unwrap(), [true, false]);
        assert_eq!(answers("select(.attempt > 2) | true", &lines).unwrap(), [true, false]);
        assert_eq!(answers("(.body | type) == \"string\"", &lines).unwrap(), [false, true]);
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
