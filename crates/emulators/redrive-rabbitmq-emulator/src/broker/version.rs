use std::fmt;
use std::str::FromStr;

/// How the emulator behaves, and what it says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Version {
    /// RabbitMQ 3.10.8
    V3_10,
    /// RabbitMQ 4.3.6
    #[default]
    V4_3,
}

impl Version {
    /// Returns what `server-properties` say.
    #[must_use]
    pub fn number(self) -> &'static str {
        match self {
            Self::V3_10 => "3.10.8",
            Self::V4_3 => "4.3.6",
        }
    }

    /// Returns the size of the largest message in bytes.
    pub(crate) fn max_message_size(self) -> u64 {
        match self {
            Self::V3_10 => 128 << 20,
            Self::V4_3 => 16 << 20,
        }
    }

    /// Returns the smallest `frame_max` that a client may choose.
    pub(crate) fn min_frame(self) -> u32 {
        match self {
            Self::V3_10 => 4096,
            Self::V4_3 => 8192,
        }
    }

    /// Returns the delivery limit of a quorum queue that has none.
    pub(crate) fn default_delivery_limit(self) -> Option<u32> {
        match self {
            Self::V3_10 => None,
            Self::V4_3 => Some(20),
        }
    }

    pub(crate) fn is_3_10(self) -> bool {
        self == Self::V3_10
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "3.10" => Ok(Self::V3_10),
            "4.3" => Ok(Self::V4_3),
            other => Err(format!("{other} is not emulated: give 3.10 or 4.3")),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V3_10 => "3.10",
            Self::V4_3 => "4.3",
        })
    }
}
