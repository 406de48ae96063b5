//! Looks up a path in a JSON body, without a copy of the body.

use super::condition::Test;
use crate::json::{DEEPEST, Found, Scan, TooDeep, is_json, same_number, unquoted};

/// Returns true if the body is JSON and a value at the path passes the test.
///
/// # Errors
///
/// If no value passes it, and one on the way lies too deep to be looked at.
pub(super) fn any(body: &str, path: &[String], test: &Test) -> Result<bool, TooDeep> {
    // The end too: half a document is no JSON.
    if !is_json(body) {
        return Ok(false);
    }
    let mut seek = Seek { scan: Scan::new(body), test, found: false, is_too_deep: false };
    seek.value(path, 0);
    if seek.is_too_deep && !seek.found { Err(TooDeep) } else { Ok(seek.found) }
}

struct Seek<'a> {
    scan: Scan<'a>,
    test: &'a Test,
    found: bool,
    is_too_deep: bool,
}

impl Seek<'_> {
    /// Takes a value, and looks for the rest of the path in it.
    fn value(&mut self, path: &[String], depth: usize) {
        if depth > DEEPEST {
            self.is_too_deep = true;
            self.scan.skip();
            return;
        }
        match (self.scan.value(), path.split_first()) {
            (Found::Object, step) => self.object(step, depth),
            (Found::Array, step) => self.array(step, path, depth),
            (Found::Text(quoted), None) => {
                self.found |= unquoted(quoted).is_some_and(|text| self.test.holds(&text));
            }
            (Found::Number(number), None) => self.found |= self.test.holds_for_number(number),
            (Found::Word(word), None) => self.found |= self.test.holds(word),
            (Found::Text(_) | Found::Number(_) | Found::Word(_), Some(_)) => {}
        }
    }

    fn object(&mut self, step: Option<(&String, &[String])>, depth: usize) {
        while let Some(key) = self.scan.key() {
            match step {
                Some((step, rest)) if unquoted(key).is_some_and(|key| *step == key) => {
                    self.value(rest, depth + 1);
                }
                _ => {
                    self.scan.skip();
                }
            }
        }
    }

    fn array(&mut self, step: Option<(&String, &[String])>, path: &[String], depth: usize) {
        let wanted = step.and_then(|(step, rest)| Some((step.parse::<usize>().ok()?, rest)));
        let mut index = 0;
        while self.scan.element() {
            match (step, wanted) {
                (Some(_), Some((wanted, rest))) if index == wanted => self.value(rest, depth + 1),
                (Some(_), None) => self.value(path, depth + 1),
                _ => {
                    self.scan.skip();
                }
            }
            index += 1;
        }
    }
}

impl Test {
    /// Compares a number: as a whole by its value, in part by its digits as they are written.
    pub(super) fn holds_for_number(&self, number: &str) -> bool {
        match self {
            Self::Is(wanted) => number == wanted || same_number(number, wanted),
            Self::Contains(_) => self.holds(number),
        }
    }
}
