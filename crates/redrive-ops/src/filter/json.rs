//! Looks up a path in a JSON body, without a copy of the body.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::condition::Test;

/// Returns true if the body is JSON and a value at the path passes the test.
pub(super) fn any(body: &[u8], path: &[String], test: &Test) -> bool {
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = Seek { path, test }.deserialize(&mut json);
    // The end too: half a document is no JSON.
    matches!(found, Ok(true)) && json.end().is_ok()
}

/// Reads a value: true if it passes the test, or one below it at the rest of the path.
#[derive(Clone, Copy)]
struct Seek<'a> {
    path: &'a [String],
    test: &'a Test,
}

impl Seek<'_> {
    fn is_at_end(self) -> bool {
        self.path.is_empty()
    }

    fn text<E>(self, text: &str) -> Result<bool, E> {
        Ok(self.is_at_end() && self.test.holds(text))
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        self.text(if value { "true" } else { "false" })
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        self.text("null")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        self.text(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        self.text(&value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        self.text(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        // One number has many forms: 1.50 is 1.5, and 1e3 is 1000.
        let is_same = matches!(self.test, Test::Is(wanted) if wanted.parse() == Ok(value));
        Ok(self.is_at_end() && is_same || self.text(&value.to_string())?)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        let mut found = false;
        match self.path.split_first() {
            None => while seq.next_element::<IgnoredAny>()?.is_some() {},
            Some((step, rest)) => match step.parse::<usize>() {
                Ok(wanted) => {
                    let mut index = 0;
                    loop {
                        let element = if index == wanted {
                            seq.next_element_seed(Seek { path: rest, ..self })?
                        } else {
                            seq.next_element::<IgnoredAny>()?.map(|_| false)
                        };
                        match element {
                            Some(holds) => found |= holds,
                            None => break,
                        }
                        index += 1;
                    }
                }
                Err(_) => {
                    while let Some(holds) = seq.next_element_seed(self)? {
                        found |= holds;
                    }
                }
            },
        }
        Ok(found)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            match self.path.split_first() {
                Some((step, rest)) if *step == name => {
                    found |= map.next_value_seed(Seek { path: rest, ..self })?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}
