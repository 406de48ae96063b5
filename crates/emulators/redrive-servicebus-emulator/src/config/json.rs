//! JSON as the official emulator takes it: it reads its file by the configuration of .NET, where every value is a text, a missing value
//! and `null` are the same, and keys have no case.

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde::de::value::{Error, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::ConfigError;

/// A value of the file.
#[derive(Debug, Clone)]
pub(super) struct Json<'a>(Value<'a>);

/// Comments and commas at the end are all that is allowed beyond JSON.
const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads the text of a file, which may begin with a byte order mark.
///
/// # Errors
/// If it is no JSON, with the line and the column.
pub(super) fn parse(text: &str) -> Result<Json<'_>, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let parsed = parse_to_ast(text, &CollectOptions::default(), &OPTIONS).map_err(|error| ConfigError {
        path: format!("line {}, column {}", error.line_display(), error.column_display()),
        reason: error.kind().to_string(),
    })?;
    let empty = || ConfigError { path: "line 1, column 1".into(), reason: "the file is empty".into() };
    parsed.value.map(Json).ok_or_else(empty)
}

impl<'a> Json<'a> {
    /// Returns the text of a value that is no list and no object.
    fn scalar(&self) -> Option<&str> {
        match &self.0 {
            Value::StringLit(text) => Some(text.value.trim()),
            Value::NumberLit(number) => Some(number.value),
            Value::BooleanLit(truth) => Some(if truth.value { "true" } else { "false" }),
            Value::Object(_) | Value::Array(_) | Value::NullKeyword(_) => None,
        }
    }

    fn number<T: std::str::FromStr>(&self) -> Option<Result<T, Error>> {
        let text = self.scalar()?;
        let most = u128::MAX >> (128 - 8 * size_of::<T>());
        Some(text.parse().map_err(|_| Error::custom(format!("'{text}' is no whole number from 0 to {most}"))))
    }
}

/// Returns the members of an object by the names that are known, without those that are `null`.
fn members<'a>(
    object: Object<'a>,
    known: &'static [&'static str],
) -> impl Iterator<Item = (String, Json<'a>)> {
    let given = object.properties.into_iter().filter(|member| !matches!(member.value, Value::NullKeyword(_)));
    given.map(|member| {
        let name = member.name.into_string();
        let canonical = known.iter().find(|known| known.eq_ignore_ascii_case(&name));
        (canonical.map_or(name, |known| (*known).to_owned()), Json(member.value))
    })
}

impl<'a, 'de> IntoDeserializer<'de, Error> for Json<'a> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Json<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::NullKeyword(_) => visitor.visit_unit(),
            Value::BooleanLit(truth) => visitor.visit_bool(truth.value),
            Value::StringLit(text) => visitor.visit_str(&text.value),
            Value::NumberLit(number) => {
                match (number.value.parse(), number.value.parse(), number.value.parse()) {
                    (Ok(whole), _, _) => visitor.visit_u64(whole),
                    (_, Ok(negative), _) => visitor.visit_i64(negative),
                    (_, _, Ok(number)) => visitor.visit_f64(number),
                    _ => Err(Error::custom(format!("'{}' is no number", number.value))),
                }
            }
            Value::Array(list) => {
                SeqDeserializer::new(list.elements.into_iter().map(Json)).deserialize_any(visitor)
            }
            Value::Object(object) => {
                let members = object
                    .properties
                    .into_iter()
                    .map(|member| (member.name.into_string(), Json(member.value)));
                MapDeserializer::new(members).deserialize_any(visitor)
            }
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(object) => MapDeserializer::new(members(object, fields)).deserialize_any(visitor),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.scalar() {
            Some(text) if text.eq_ignore_ascii_case("true") => visitor.visit_bool(true),
            Some(text) if text.eq_ignore_ascii_case("false") => visitor.visit_bool(false),
            Some(text) => Err(Error::custom(format!("'{text}' is neither true nor false"))),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number::<u32>() {
            Some(number) => visitor.visit_u32(number?),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.number::<u64>() {
            Some(number) => visitor.visit_u64(number?),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.0 {
            Value::NumberLit(_) | Value::BooleanLit(_) => {
                visitor.visit_str(self.scalar().unwrap_or_default())
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::NullKeyword(_) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Some(text) = self.scalar() else { return self.deserialize_any(visitor) };
        let known = variants.iter().find(|known| known.eq_ignore_ascii_case(text)).copied();
        let name: StrDeserializer<'_, Error> = known.unwrap_or(text).into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u128 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct seq tuple tuple_struct map
        identifier ignored_any
    }
}
