//! Users, their passwords, and what they may do.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redrive_amqp091::ShortStr;
use regex_lite::Regex;
use sha2::{Digest as _, Sha256, Sha512};

use super::Version;
use super::failure::{Failure, Outcome};

/// A user.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: Password,
    pub(crate) tags: Vec<String>,
    /// By virtual host.
    pub(crate) permissions: HashMap<String, Permission>,
}

/// A password, as it is compared.
#[derive(Clone)]
pub(crate) enum Password {
    Plain(String),
    /// Salt and hash in base64, as RabbitMQ exports them.
    Hashed {
        hash: String,
        algorithm: Algorithm,
    },
}

/// Never shows the password.
impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Sha256,
    Sha512,
}

/// Number of bytes of the salt before the hash.
const SALT: usize = 4;

impl Password {
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        match self {
            Self::Plain(password) => password.as_bytes() == given,
            Self::Hashed { hash, algorithm } => {
                let Ok(bytes) = STANDARD.decode(hash) else { return false };
                let Some((salt, hash)) = bytes.split_at_checked(SALT) else { return false };
                match algorithm {
                    Algorithm::Sha256 => {
                        Sha256::new().chain_update(salt).chain_update(given).finalize()[..] == *hash
                    }
                    Algorithm::Sha512 => {
                        Sha512::new().chain_update(salt).chain_update(given).finalize()[..] == *hash
                    }
                }
            }
        }
    }

    /// Returns salt and hash in base64, and the name of the algorithm, as RabbitMQ exports them. The salt is the beginning of the
    /// password's own hash, so that an export is the same each time.
    pub(crate) fn exported(&self) -> (String, &'static str) {
        match self {
            Self::Hashed { hash, algorithm: Algorithm::Sha256 } => {
                (hash.clone(), "rabbit_password_hashing_sha256")
            }
            Self::Hashed { hash, algorithm: Algorithm::Sha512 } => {
                (hash.clone(), "rabbit_password_hashing_sha512")
            }
            Self::Plain(password) => {
                let salt = &Sha256::digest(password)[..SALT];
                let hash = Sha256::new().chain_update(salt).chain_update(password).finalize();
                let bytes: Vec<u8> = salt.iter().chain(&hash[..]).copied().collect();
                (STANDARD.encode(bytes), "rabbit_password_hashing_sha256")
            }
        }
    }
}

/// What a user may do in a virtual host.
#[derive(Debug, Clone)]
pub(crate) struct Permission {
    pub(crate) configure: Pattern,
    pub(crate) write: Pattern,
    pub(crate) read: Pattern,
}

impl Permission {
    pub(crate) fn all() -> Self {
        Self { configure: Pattern::any(), write: Pattern::any(), read: Pattern::any() }
    }
}

/// The names that a permission is for.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    /// `None`: any name.
    regex: Option<Regex>,
}

impl Pattern {
    pub(crate) fn any() -> Self {
        Self { text: ".*".to_owned(), regex: None }
    }

    /// # Errors
    /// If it is no regular expression.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let regex = match text {
            ".*" => None,
            "" => Some("^$"),
            other => Some(other),
        };
        let regex =
            regex.map(|text| Regex::new(text).map_err(|error| format!("'{text}': {error}"))).transpose()?;
        Ok(Self { text: text.to_owned(), regex })
    }

    pub(crate) fn matches(&self, name: &ShortStr) -> bool {
        self.regex.as_ref().is_none_or(|regex| regex.is_match(&name.to_str()))
    }
}

/// What a method needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Configure,
    Write,
    Read,
}

impl Right {
    fn name(self) -> &'static str {
        match self {
            Self::Configure => "configure",
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// The name of the default exchange in permissions and texts.
pub(crate) const DEFAULT_EXCHANGE: ShortStr = ShortStr::from_static("amq.default");

impl User {
    pub(crate) fn check(
        &self,
        vhost: &ShortStr,
        right: Right,
        what: &str,
        name: &ShortStr,
        version: Version,
    ) -> Outcome {
        let named = if what == "exchange" && name.is_empty() { &DEFAULT_EXCHANGE } else { name };
        let permitted = self.permissions.get(&*vhost.to_str()).is_some_and(|permission| match right {
            Right::Configure => permission.configure.matches(named),
            Right::Write => permission.write.matches(named),
            Right::Read => permission.read.matches(named),
        });
        if permitted {
            return Ok(());
        }
        let (right, user) = (right.name(), &self.name);
        Err(Failure::refused(&if version.is_3_10() {
            format!("access to {what} '{named}' in vhost '{vhost}' refused for user '{user}'")
        } else {
            format!("{right} access to {what} '{named}' in vhost '{vhost}' refused for user '{user}'")
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_passwords_are_those_of_rabbitmq() {
        // From RabbitMQ's documentation: the password test12 with the salt 908DC60A.
        let hash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR".to_owned();
        let password = Password::Hashed { hash, algorithm: Algorithm::Sha256 };
        assert!(password.is(b"test12"));
        assert!(!password.is(b"test13"));
        let (hash, _) = Password::Plain("secret".to_owned()).exported();
        assert!(Password::Hashed { hash, algorithm: Algorithm::Sha256 }.is(b"secret"));
        assert_eq!(format!("{:?}", Password::Plain("secret".to_owned())), "Password(..)");
    }

    #[test]
    fn an_empty_pattern_permits_nothing_but_the_empty_name() {
        let matches = |pattern: &str, name: &'static str| {
            Pattern::parse(pattern).unwrap().matches(&ShortStr::from_static(name))
        };
        assert!(!matches("", "orders"));
        assert!(matches(".*", "orders"));
        assert!(matches("^orders", "orders.retry"));
        assert!(!matches("^orders$", "orders.retry"));
        assert!(Pattern::parse("(").is_err());
    }
}
