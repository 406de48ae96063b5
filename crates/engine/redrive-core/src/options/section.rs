//! Sections of a configuration: a few known keys, each of them optional.

use serde::de::{Error, MapAccess};
use serde::{Deserialize, Deserializer};

use super::OptionsError;

/// Declares a section: a struct of optional values with its `Deserialize`. The derive of `serde` accepts one spelling of each name;
/// this accepts the spelling of every source.
#[doc(hidden)]
#[macro_export]
macro_rules! __section {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $value:ty = $key:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub(super) struct $name {
            $($field: Option<$value>,)*
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;

                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str(concat!("a section with any of the keys" $(, " `", $key, "`")*))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        const KEYS: &[&str] = &[$($key),*];
                        let mut section = $name::default();
                        while let Some(key) = map.next_key::<String>()? {
                            match KEYS.iter().copied().find(|known| $crate::options::section::is_same(&key, known)) {
                                $(Some($key) => $crate::options::section::put(&mut section.$field, $key, &mut map)?,)*
                                _ => return Err(serde::de::Error::unknown_field(&key, KEYS)),
                            }
                        }
                        Ok(section)
                    }
                }

                deserializer.deserialize_map(Visitor)
            }
        }
    };
}
pub use __section as section;

/// Returns true if a name is the known one, ignoring case, `_` and `-`.
pub fn is_same(name: &str, known: &str) -> bool {
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters
        .map(|letter| letter.to_ascii_lowercase())
        .eq(known.chars().map(|letter| letter.to_ascii_lowercase()))
}

/// Reads the value of a key.
pub fn put<'de, T, A>(slot: &mut Option<T>, key: &str, map: &mut A) -> Result<(), A::Error>
where
    T: Deserialize<'de>,
    A: MapAccess<'de>,
{
    // Sources with different spellings of a key are merged as two keys, and nothing shows which one should win.
    if slot.is_some() {
        return Err(A::Error::custom(format_args!(
            "`{key}` is there twice: write it the same way in every source of the configuration"
        )));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

/// Reads a section and checks it. Errors name the path of the wrong value.
pub fn read<'de, Section, Options, D>(deserializer: D) -> Result<Options, OptionsError>
where
    Section: Deserialize<'de>,
    Options: TryFrom<Section, Error = OptionsError>,
    D: Deserializer<'de>,
{
    let section: Section = serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().to_string();
        // `.` is the section itself.
        OptionsError::at(if path == "." { String::new() } else { path }, error.inner().to_string())
    })?;
    Options::try_from(section)
}
