//! Protects the messages of a shelf that redrive did not declare: a quorum queue removes a message that was delivered too often, and each
//! look is a delivery. A stream removes none, whatever is acknowledged.

use redrive_core::TransportError;
use tracing::{debug, warn};

use crate::broker::Version;
use crate::connection::Connection;
use crate::topology::{Found, probe};

/// Minimum delivery limit of a shelf where every read counts.
const MIN_DELIVERY_LIMIT: i64 = 1000;
/// The limit of a quorum queue that sets none, since 4.0.
const DEFAULT_LIMIT: i64 = 20;

/// What reading may do to the messages of a shelf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadEffect {
    /// Nothing, or nothing that is known.
    Safe,
    /// The broker puts what was read behind everything else.
    MovesToTheEnd,
    /// The broker removes a message that has this count already, if the process dies while it reads.
    SafeBelow(i64),
    /// The broker removes messages that are read more often than this.
    Counts(i64),
    /// Nothing, but what is acknowledged stays: each message can be read, and none removed.
    KeepsAll,
}

impl ReadEffect {
    /// Asks the broker about a queue.
    ///
    /// # Errors
    ///
    /// If it cannot be reached.
    pub(super) async fn at(connection: &Connection, queue: &str) -> Result<Self, TransportError> {
        let found = probe(connection, queue).await?;
        if found == Found::Unknown {
            warn!(
                queue,
                "the delivery limit of this shelf is not known: if it is low, the broker may remove messages that are read often"
            );
        }
        debug!(queue, ?found, "this shelf has a custom name");
        Ok(Self::of(found, connection.version))
    }

    fn of(found: Found, version: Option<Version>) -> Self {
        let is_before = |than| version.is_none_or(|version| version < than);
        let limit = match found {
            Found::NoQuorumQueue | Found::AutoDelete | Found::Unknown => return Self::Safe,
            Found::Stream => return Self::KeepsAll,
            Found::Limit(None) if is_before(Version::V4_0) => return Self::MovesToTheEnd,
            Found::Limit(None) => DEFAULT_LIMIT,
            // No limit since 4.0, and 0 before.
            Found::Limit(Some(limit)) if limit < 0 && !is_before(Version::V4_0) => return Self::Safe,
            Found::Limit(Some(limit)) => limit.max(0),
        };
        match limit {
            MIN_DELIVERY_LIMIT.. => Self::Safe,
            limit if is_before(Version::V4_3) => Self::Counts(limit),
            limit => Self::SafeBelow(limit),
        }
    }
}

/// Returns from which count of a message on a shelf is not read any more: some processes may still be killed while they read it, before
/// the broker removes it at the limit.
pub(super) fn refused_from(limit: i64) -> i64 {
    (limit - (limit / 4).max(1)).max(limit.min(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_low_where_looks_count() {
        let (old, middle, new) = (Version::parse("3.9.0"), Version::parse("4.2.0"), Some(Version::V4_3));
        assert!(old < Some(Version::V4_0) && middle > Some(Version::V4_0));
        for (limit, in_old, in_middle, in_new) in [
            (None, ReadEffect::MovesToTheEnd, ReadEffect::Counts(20), ReadEffect::SafeBelow(20)),
            (Some(5), ReadEffect::Counts(5), ReadEffect::Counts(5), ReadEffect::SafeBelow(5)),
            (Some(-1), ReadEffect::Counts(0), ReadEffect::Safe, ReadEffect::Safe),
            (Some(2_000_000_000), ReadEffect::Safe, ReadEffect::Safe, ReadEffect::Safe),
        ] {
            let found = Found::Limit(limit);
            let effects = [old, middle, new].map(|version| ReadEffect::of(found, version));
            assert_eq!(effects, [in_old, in_middle, in_new], "{limit:?}");
        }
        assert_eq!(ReadEffect::of(Found::NoQuorumQueue, middle), ReadEffect::Safe);
        assert_eq!(ReadEffect::of(Found::Stream, middle), ReadEffect::KeepsAll);
    }

    #[test]
    fn a_shelf_is_refused_before_a_killed_process_could_cost_a_message() {
        let refused = [0, 1, 2, 5, 20, 100].map(refused_from);
        assert_eq!(refused, [0, 1, 1, 4, 15, 75]);
    }
}
