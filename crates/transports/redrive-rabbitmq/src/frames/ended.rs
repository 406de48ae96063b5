//! Why a channel or a connection has ended.

use std::io;

use lapin::protocol::{AMQPError, AMQPErrorKind, AMQPHardError, AMQPSoftError};

/// Why a channel or a connection has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Ended {
    /// This side ended it, or the other without a word.
    #[default]
    Silently,
    /// The broker's code and text.
    ByTheBroker(u16, String),
    /// The socket, or what came from it, cannot be used.
    Failed(io::ErrorKind, String),
}

impl From<&io::Error> for Ended {
    fn from(error: &io::Error) -> Self {
        Self::Failed(error.kind(), error.to_string())
    }
}

/// As the library says it.
impl From<Ended> for lapin::Error {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Silently => {
                io::Error::new(io::ErrorKind::ConnectionAborted, "the channel or its connection ended").into()
            }
            Ended::Failed(kind, text) => io::Error::new(kind, text).into(),
            Ended::ByTheBroker(code, text) => {
                let soft = AMQPSoftError::from_id(code).map(AMQPErrorKind::Soft);
                match soft.or_else(|| AMQPHardError::from_id(code).map(AMQPErrorKind::Hard)) {
                    Some(kind) => lapin::ErrorKind::ProtocolError(AMQPError::new(kind, text.into())).into(),
                    None => io::Error::other(format!("RabbitMQ ended the channel: {code} {text}")).into(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_kept() {
        let broker = |code| lapin::Error::from(Ended::ByTheBroker(code, "why".into()));
        for code in [406, 320] {
            assert_eq!(crate::error::refusal(&broker(code)), Some((code, "why".into())));
        }
        assert!(broker(299).to_string().contains("299 why"));
        let reset = Ended::from(&io::Error::new(io::ErrorKind::ConnectionReset, "reset by peer"));
        assert!(lapin::Error::from(reset).to_string().contains("reset by peer"));
    }
}
