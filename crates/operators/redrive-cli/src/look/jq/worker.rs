//! The process that runs a program of jq: a line of JSON in, and out `true`, `false`, or `?` and why the program fails for this line; as an
//! editor, a line of JSON. `!` and the error end it.

use std::io::{BufRead as _, Write as _};

use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Ctx, Filter, Vars, data, unwrap_valr};
use jaq_json::{Num, Rc, Val, read};
use redrive::ops::same_number;

use crate::exit::Exit;

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Select,
    Edit,
}

/// Before an error: no answer begins with it.
pub(super) const FAILED: char = '!';
/// Before the kind of a problem with one entry, which is selected by nobody: the others go on.
pub(super) const UNDECIDED: char = '?';

const TWO_ANSWERS: &str = "it says more than one thing: `any(…)` or `all(…)` makes one of them";
const ROUNDED: &str =
    "it hangs on digits of a number that jq rounds: compare it by a filter, as `body.price=NUMBER`";
const UNREADABLE: &str = "jq cannot read this message: its JSON has half a character, as `\\ud800` is";
const TWO_MESSAGES: &str = "it gives more than one message: an edit gives one. `.` is the whole message, and `|` joins several changes, as `.body.a = 1 | .body.b = 2`";
const NO_MESSAGE: &str =
    "it gives no message: an edit gives one. `if … then … else . end` leaves a message as it is";

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
    let filter = compiled(program)?;
    for line in lines {
        let Ok(input) = read::parse_single(line.as_bytes()) else {
            match mode {
                Mode::Edit => return Err(UNREADABLE.to_owned()),
                Mode::Select if say(format!("{UNDECIDED}{UNREADABLE}")) => continue,
                Mode::Select => break,
            }
        };
        let run = |input| {
            let ctx = Ctx::<data::JustLut<Val>>::new(&filter.lut, Vars::new([]));
            filter.id.run((ctx, input)).map(unwrap_valr)
        };
        let mut results = run(input.clone());
        let answer = match mode {
            Mode::Select => match selects(results)
                .and_then(|matches| exactly(matches, &input, |input| selects(run(input))))
            {
                Ok(matches) => matches.to_string(),
                Err(why) => format!("{UNDECIDED}{why}"),
            },
            Mode::Edit => {
                let edited = match results.next() {
                    None => return Err(NO_MESSAGE.to_owned()),
                    Some(edited) => edited.map_err(|error| cut(&error.to_string()))?.to_string(),
                };
                if results.next().is_some() {
                    return Err(TWO_MESSAGES.to_owned());
                }
                edited
            }
        };
        if !say(answer) {
            break;
        }
    }
    Ok(())
}

/// Returns the answer, unless it hangs on digits that jq does not keep: it compares a decimal as a float. A number that no float
/// holds is moved to the floats below and above it; if the answer changes with it, nobody knows.
fn exactly(
    matches: bool,
    input: &Val,
    selects: impl Fn(Val) -> Result<bool, String>,
) -> Result<bool, String> {
    let (mut below, mut above) = (input.clone(), input.clone());
    if !move_rounded(&mut below, &f64::next_down) {
        return Ok(matches);
    }
    move_rounded(&mut above, &f64::next_up);
    if selects(below) == Ok(matches) && selects(above) == Ok(matches) {
        Ok(matches)
    } else {
        Err(ROUNDED.to_owned())
    }
}

/// Moves each number in a value that no float holds. Returns true if there is one.
fn move_rounded(value: &mut Val, to: &dyn Fn(f64) -> f64) -> bool {
    match value {
        Val::Num(Num::Dec(digits)) => {
            let float: f64 = digits.parse().unwrap_or(f64::NAN);
            let is_rounded = !same_number(&float.to_string(), digits);
            if is_rounded {
                *value = Val::Num(Num::Float(to(float)));
            }
            is_rounded
        }
        Val::Arr(items) => {
            Rc::make_mut(items).iter_mut().fold(false, |moved, item| move_rounded(item, to) | moved)
        }
        Val::Obj(entries) => {
            Rc::make_mut(entries).values_mut().fold(false, |moved, item| move_rounded(item, to) | moved)
        }
        _ => false,
    }
}

/// Returns whether a program selects an entry: null and nothing do not, as in jq's own `select`.
///
/// # Errors
///
/// If it fails. The error is the kind of the problem, and no value: values are parts of the message, and errors end up in logs.
fn selects(mut results: impl Iterator<Item = Result<Val, jaq_json::Error>>) -> Result<bool, String> {
    let matches = match results.next() {
        None | Some(Ok(Val::Null)) => false,
        Some(Ok(Val::Bool(matches))) => matches,
        Some(Ok(other)) => {
            return Err(format!("it says {}, and not true or false", type_of(&other.to_string())));
        }
        Some(Err(error)) => return Err(kind_of(&error.to_string())),
    };
    if results.next().is_some() { Err(TWO_ANSWERS.to_owned()) } else { Ok(matches) }
}

/// What jq expects of a value, in its errors.
const EXPECTED: [&str; 6] =
    ["integer", "number", "string", "array", "iterable (array or object)", "rangeable (array or string)"];

/// Returns the kind of an error of jq, whose text repeats values: only words of this program.
fn kind_of(error: &str) -> String {
    let error = error.trim_start_matches('"');
    for what in ["cannot index", "cannot use", "cannot parse", "cannot convert"] {
        let Some(value) = error.strip_prefix(what) else { continue };
        let expected =
            value.rsplit_once(" as ").and_then(|(_, end)| EXPECTED.iter().find(|word| **word == end));
        let expected = expected.filter(|_| what == "cannot use").map(|word| format!(" as {word}"));
        return format!("{what} {}{}", type_of(value.trim_start()), expected.unwrap_or_default());
    }
    let kinds = [
        ("cannot calculate", "cannot calculate with values of these types"),
        ("invalid path expression", "invalid path expression"),
        ("invalid regex", "invalid regular expression"),
    ];
    let kind = kinds.into_iter().find(|(begins, _)| error.starts_with(begins));
    kind.map_or("it raises an error, whose text may contain parts of the message", |(_, kind)| kind)
        .to_owned()
}

/// Returns the type of a value, by how its JSON begins.
fn type_of(json: &str) -> &'static str {
    match json.trim_start_matches('\\').chars().next() {
        Some('"' | 'b') => "a string",
        Some('[') => "an array",
        Some('{') => "an object",
        Some('0'..='9' | '-') => "a number",
        Some('t' | 'f') => "a boolean",
        Some('n') => "null",
        _ => "a value",
    }
}

/// Reads a program, and runs nothing of it.
///
/// # Errors
///
/// What is wrong with the program, and where.
pub(super) fn compiled(program: &str) -> Result<Filter<data::JustLut<Val>>, String> {
    let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs());
    let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs());
    let (loader, arena) = (Loader::new(defs), Arena::default());
    let modules =
        loader.load(&arena, File { code: program, path: () }).map_err(|errors| wrong(program, &errors))?;
    Compiler::default().with_funs(funs).compile(modules).map_err(|errors| {
        let unknown = errors.iter().flat_map(|(_, errors)| errors);
        let unknown = unknown
            .map(|(name, kind)| format!("unknown {} `{name}` at {}", kind.as_str(), position(program, name)));
        unknown.collect::<Vec<_>>().join(", ")
    })
}

/// Returns what is wrong with a program that cannot be read.
fn wrong(program: &str, errors: &load::Errors<&str, ()>) -> String {
    let at = |found: &str| match found {
        "" => "at the end".to_owned(),
        found => format!("at {}, before `{}`", position(program, found), cut(found)),
    };
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

/// Returns where a part of the program begins: its line, if there are several, and its character, from 1.
fn position(program: &str, part: &str) -> String {
    let start = (part.as_ptr() as usize).wrapping_sub(program.as_ptr() as usize);
    let before = program.get(..start).unwrap_or(program);
    let (lines, column) =
        (before.matches('\n').count(), before.chars().rev().take_while(|c| *c != '\n').count());
    match program.contains('\n') {
        true => format!("line {}, character {}", lines + 1, column + 1),
        false => format!("character {}", column + 1),
    }
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
    fn half_a_character_concerns_its_message_alone() {
        for half in [r#""\ud800""#, r#""\udc00""#, r#"{"\ud800":1}"#] {
            let line = format!(r#"{{"body":{half},"attempt":1}}"#);
            let said = answers("true", &[r#"{"attempt":1}"#, &line, r#"{"attempt":2}"#]).unwrap();
            assert_eq!(said, ["true", &format!("{UNDECIDED}{UNREADABLE}"), "true"], "{half}");
            assert_eq!(answers_of(".", Mode::Edit, &[&line]), Err(UNREADABLE.to_owned()));
        }
    }

    #[test]
    fn a_number_is_compared_with_all_its_digits_or_not_at_all() {
        let line = r#"{"body":{"id":12345678901234567890123,"price":1.10,"count":1e2,"long":0.12345678901234567891,"far":1e400}}"#;
        for (program, answer) in [
            (".body.id == 12345678901234567890123", "true"),
            (".body.id == 12345678901234567890124", "false"),
            (".body.id > 12345678901234567890122", "true"),
            (".body.price == 1.1 and .body.count == 100", "true"),
            (".body.price > 1.1", "false"),
            (".body.long > 0.1 and .body.long < 0.2 and .body.far > 1", "true"),
            (".body.long == 0.5", "false"),
            (".body.long == 0.12345678901234567891", "?it hangs on digits"),
            (".body.long == 0.12345678901234567892", "?it hangs on digits"),
            (".body.long >= 0.12345678901234567892", "?it hangs on digits"),
        ] {
            let answers = answers(program, &[line]).unwrap();
            assert!(answers[0].starts_with(answer), "{program}: {answers:?}");
        }
    }

    #[test]
    fn an_edit_keeps_the_order_of_names_and_long_numbers() {
        let line = r#"{"headers":{},"body":{"b":12345678901234567890123,"a":1.50,"c":1.10,"d":1e2,"e":-0.0,"f":1e400}}"#;
        let edited = |program| answers_of(program, Mode::Edit, &[line]);
        let expected = r#"{"headers":{},"body":{"b":12345678901234567890123,"a":"x","c":1.10,"d":1e2,"e":-0.0,"f":1e400}}"#;
        assert_eq!(edited(r#".body.a = "x""#).unwrap(), [expected]);
        for (program, expected) in
            [("empty", "it gives no message"), (".,.", "more than one message"), (".body.a.b = 1", "cannot")]
        {
            let error = edited(program).expect_err(program);
            assert!(error.contains(expected), "{program}: {error}");
            assert!(!error.contains("any("), "that is for --where: {error}");
        }
    }

    #[test]
    fn null_selects_nothing_and_a_failure_concerns_one_entry() {
        let lines =
            [r#"{"headers":{},"body":"text"}"#, r#"{"headers":{"flag":true},"body":{"lines":[1,2]}}"#];
        assert_eq!(answers(".headers.flag", &lines).unwrap(), ["false", "true"]);
        let failed = answers(".body.lines | length > 1", &lines).unwrap();
        assert_eq!(failed, ["?cannot index a string", "true"]);
    }

    #[test]
    fn a_failure_repeats_no_value_of_a_message() {
        let line = r#"{"headers":{"authorization":"Bearer hunter2","n":7},"body":{"a":["hunter2"]}}"#;
        for (program, expected) in [
            (".headers.authorization", "it says a string, and not true or false"),
            (".headers.n", "it says a number, and not true or false"),
            (".body", "it says an object, and not true or false"),
            (".headers.authorization.x", "cannot index a string"),
            (".headers.authorization[]", "cannot use a string as iterable (array or object)"),
            (".headers.authorization - 1", "cannot calculate with values of these types"),
            (".headers.authorization | fromjson", "cannot parse a string"),
            (".headers.authorization | tonumber", "cannot parse a string"),
            (".headers.authorization | strptime(\"%Y\")", "it raises an error"),
            ("error(.headers.authorization)", "it raises an error"),
            ("error(\"cannot use it as \" + .headers.authorization)", "cannot use a value"),
            ("error(.)", "it raises an error"),
            ("true, false", "it says more than one thing"),
        ] {
            let answer = answers(program, &[line]).expect(program).remove(0);
            assert!(answer.starts_with(&format!("?{expected}")), "{program}: {answer}");
            assert!(!answer.contains("hunter2") && !answer.contains('7'), "{program}: {answer}");
        }
    }

    #[test]
    fn a_program_that_cannot_be_read_says_where() {
        for (program, expected) in [
            (".body ==", "at the end"),
            (".body = = 1", "at character 9, before `=`"),
            (".body = bdoy", "unknown filter `bdoy` at character 9"),
            (r#".["größe"] = $x"#, "unknown variable `$x` at character 14"),
            (".body = 1\n| ]", "at line 2, character 3"),
        ] {
            let error = compiled(program).err().expect(program);
            assert!(error.contains(expected), "{program}: {error}");
        }
        assert!(compiled(".body.a = 1 | .headers.b |= 2").is_ok());
    }

    #[test]
    fn a_wrong_program_says_what_is_wrong() {
        for (program, expected) in [
            (".a ==", "expected"),
            ("nothing(.)", "unknown filter `nothing`"),
            ("import \"a\" as a; true", ""),
        ] {
            let error = answers(program, &[r#"{"body":"text","attempt":3}"#]).expect_err(program);
            assert!(error.contains(expected), "{program}: {error}");
        }
    }
}
