//! Ids of groups.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// Id of a group of failures, printed as 16 hexadecimal digits.
///
/// It is the beginning of a hash of the [`Template`](super::Template): the same in every process, for every shelf and on every
/// broker, so that alerts, runbooks and commands can contain it. The hash is the first 8 bytes of SHA-256 over
/// `redrive-group/1`, then the reason, the error type and the text, each as its length in bytes (8 bytes, big endian) followed by
/// its UTF-8. SHA-256, because anybody may publish: a message cannot be crafted to fall into a given group by a hash collision.
///
/// If the masking changes, failures get another template and another id; the changelog says when.
///
/// ```
/// use redrive_ops::{GroupId, Template};
///
/// let id = Template::new("RetryableError", "Timeout", "no answer after 30s").id();
/// assert_eq!(id.to_string(), "ec0c6f7078545fc6");
/// assert_eq!("ec0c6f7078545fc6".parse::<GroupId>(), Ok(id));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId([u8; 8]);

impl GroupId {
    pub(super) fn of(parts: [&str; 3]) -> Self {
        let mut hash = Sha256::new();
        hash.update("redrive-group/1");
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&hash.finalize()[..8]);
        Self(first)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl FromStr for GroupId {
    type Err = ParseGroupIdError;

    /// Accepts only the printed form.
    fn from_str(text: &str) -> Result<Self, ParseGroupIdError> {
        let id = u64::from_str_radix(text, 16).map(|id| Self(id.to_be_bytes()));
        id.ok().filter(|id| id.to_string() == text).ok_or_else(|| ParseGroupIdError(text.to_owned()))
    }
}

/// The text is not a [`GroupId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the id of a group: 16 hexadecimal digits in lower case are expected")]
pub struct ParseGroupIdError(String);

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed id breaks alerts and runbooks: a change of these values goes into the changelog. Python's `hashlib` computed them.
    #[test]
    fn ids_are_these_values() {
        let ids =
            [["", "", ""], ["a", "b", "c"], ["RetryableError", "Timeout", "no answer after <duration>"]];
        let ids = ids.map(|parts| GroupId::of(parts).to_string());
        assert_eq!(ids, ["baa20ea510c81654", "42658b81bda1f030", "ec0c6f7078545fc6"]);
    }

    #[test]
    fn the_parts_are_told_apart() {
        assert_ne!(GroupId::of(["ab", "", "c"]), GroupId::of(["a", "b", "c"]));
        assert_ne!(GroupId::of(["", "a", ""]), GroupId::of(["a", "", ""]));
    }

    #[test]
    fn an_id_is_parsed_as_it_was_printed() {
        for id in [GroupId([0; 8]), GroupId([0, 0, 0, 0, 0, 0, 0, 7]), GroupId([255; 8])] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "7", "+000000000000007", "00000000000000ZZ", "000000000000000A", "00000000000000000"]
        {
            text.parse::<GroupId>().expect_err(text);
        }
    }
}
