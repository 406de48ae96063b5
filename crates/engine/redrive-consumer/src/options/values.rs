//! The values of a section. Environment variables contain only text, so numbers and `true` may be text too.

use std::fmt;
use std::time::Duration;

use redrive_core::options::section::is_same;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A whole number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Scalar")]
pub(super) struct Count(pub(super) u32);

/// A time.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Scalar")]
pub(super) struct Wait(pub(super) Duration);

/// Times: a list, or a text with commas between them.
#[derive(Debug, Default)]
pub(super) struct Waits(pub(super) Vec<Duration>);

/// Any number.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Scalar")]
pub(super) struct Number(pub(super) f64);

/// `true` or `false`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Scalar")]
pub(super) struct Flag(pub(super) bool);

/// One of a few named values.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Scalar", bound = "T: Named")]
pub(super) struct OneOf<T>(pub(super) T);

/// Values that have names in a configuration.
pub(super) trait Named: Copy + 'static {
    /// Each value with its name.
    const NAMES: &'static [(&'static str, Self)];
}

/// A value as it was read.
enum Scalar {
    Flag(bool),
    Whole(u64),
    /// Finite; negative or with a fraction.
    Number(f64),
    Text(String),
}

impl Scalar {
    fn of_text(text: &str) -> Self {
        let text = text.trim();
        if let Ok(whole) = text.parse() {
            return Self::Whole(whole);
        }
        // `inf` and `nan` are no numbers here.
        if let Some(number) = text.parse().ok().filter(|number: &f64| number.is_finite()) {
            return Self::Number(number);
        }
        match text {
            _ if text.eq_ignore_ascii_case("true") => Self::Flag(true),
            _ if text.eq_ignore_ascii_case("false") => Self::Flag(false),
            _ => Self::Text(text.to_owned()),
        }
    }

    fn is_no(&self, expected: &str) -> String {
        format!("{self} is not {expected}")
    }
}

impl TryFrom<Scalar> for Count {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        let count = if let Scalar::Whole(whole) = read { u32::try_from(whole).ok() } else { None };
        count.map(Self).ok_or_else(|| read.is_no("a whole number from 0 to 4294967295"))
    }
}

impl TryFrom<Scalar> for Wait {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        let wait = match &read {
            Scalar::Whole(seconds) => Some(Duration::from_secs(*seconds)),
            Scalar::Number(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            Scalar::Text(text) => of_clock(text).or_else(|| humantime::parse_duration(text).ok()),
            Scalar::Flag(_) => None,
        };
        wait.map(Self).ok_or_else(|| {
            read.is_no("a time: give seconds as a number, or a text such as `30s`, `1m 30s` or `00:01:30`")
        })
    }
}

/// Reads a time as .NET writes it: `[days.]hours:minutes:seconds[.fraction]`.
fn of_clock(text: &str) -> Option<Duration> {
    let number = |text: &str, most: u64| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|number| digits && *number <= most)
    };
    let (hours, rest) = text.split_once(':')?;
    let (minutes, seconds) = rest.split_once(':').unwrap_or((rest, "0"));
    let (days, hours) = hours.split_once('.').unwrap_or(("0", hours));
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let whole = [
        (number(days, MAX_DAYS)?, 86_400),
        (number(hours, 23)?, 3600),
        (number(minutes, 59)?, 60),
        (number(seconds, 59)?, 1),
    ];
    let nanos = number(fraction, u64::MAX).filter(|_| fraction.len() <= 9)?;
    let nanos = nanos * 10_u64.pow(9 - u32::try_from(fraction.len()).ok()?);
    let seconds = whole.into_iter().map(|(count, length)| count * length).sum();
    Some(Duration::new(seconds, u32::try_from(nanos).ok()?))
}

/// The days of .NET's longest time.
const MAX_DAYS: u64 = 10_675_199;

impl TryFrom<Scalar> for Waits {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        let Scalar::Text(text) = read else { return Ok(Self(vec![Wait::try_from(read)?.0])) };
        let waits = text.split(',').map(|text| Wait::try_from(Scalar::of_text(text)));
        waits.map(|wait| wait.map(|Wait(wait)| wait)).collect::<Result<_, _>>().map(Self)
    }
}

impl TryFrom<Scalar> for Number {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        match read {
            Scalar::Whole(whole) => Ok(Self(whole as f64)),
            Scalar::Number(number) => Ok(Self(number)),
            other => Err(other.is_no("a number")),
        }
    }
}

impl TryFrom<Scalar> for Flag {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        match read {
            Scalar::Flag(flag) => Ok(Self(flag)),
            other => Err(other.is_no("`true` or `false`")),
        }
    }
}

impl<T: Named> TryFrom<Scalar> for OneOf<T> {
    type Error = String;

    fn try_from(read: Scalar) -> Result<Self, String> {
        let named = |text: &str| T::NAMES.iter().find(|(name, _)| is_same(text, name));
        let found = if let Scalar::Text(text) = &read { named(text) } else { None };
        found.map(|(_, value)| Self(*value)).ok_or_else(|| {
            let names: Vec<_> = T::NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
            read.is_no(&format!("one of {}", names.join(", ")))
        })
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(f, "`{flag}`"),
            Self::Whole(whole) => write!(f, "`{whole}`"),
            Self::Number(number) => write!(f, "`{number}`"),
            Self::Text(text) => write!(f, "`{text}`"),
        }
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;

        impl Visitor<'_> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text, `true` or `false`")
            }

            fn visit_bool<E: de::Error>(self, flag: bool) -> Result<Scalar, E> {
                Ok(Scalar::Flag(flag))
            }

            fn visit_u64<E: de::Error>(self, whole: u64) -> Result<Scalar, E> {
                Ok(Scalar::Whole(whole))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(u64::try_from(number).map_or(Scalar::Number(number as f64), Scalar::Whole))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
                if number.is_finite() {
                    Ok(Scalar::Number(number))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(number), &self))
                }
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar::of_text(text))
            }
        }

        deserializer.deserialize_any(ScalarVisitor)
    }
}

impl<'de> Deserialize<'de> for Waits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WaitsVisitor;

        impl WaitsVisitor {
            fn of<E: de::Error>(scalar: Scalar) -> Result<Waits, E> {
                Waits::try_from(scalar).map_err(E::custom)
            }
        }

        impl<'de> Visitor<'de> for WaitsVisitor {
            type Value = Waits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("times: a list, or a text with commas between them")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Waits, A::Error> {
                let mut waits = Vec::new();
                while let Some(Wait(wait)) = list.next_element()? {
                    waits.push(wait);
                }
                Ok(Waits(waits))
            }

            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Waits, E> {
                Self::of(Scalar::Whole(seconds))
            }

            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Waits, E> {
                Self::of(u64::try_from(seconds).map_or(Scalar::Number(seconds as f64), Scalar::Whole))
            }

            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Waits, E> {
                Self::of(Scalar::Number(seconds))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Waits, E> {
                Self::of(Scalar::of_text(text))
            }
        }

        deserializer.deserialize_any(WaitsVisitor)
    }
}
