//! The contract of a transport, on every kind of entity, by both protocols.

mod common;

use common::{Kind, OnEmulator};
use redrive_testkit::contract::conformance;

conformance!(queue, OnEmulator(Kind::Queue));
conformance!(without_transactions, OnEmulator(Kind::Plain));
conformance!(subscription, OnEmulator(Kind::Subscription));
conformance!(sessions, OnEmulator(Kind::Sessions));

/// In a path of its own: these mostly wait, and more of them run at once than there are cores.
#[cfg(feature = "rest")]
mod rest {
    mod contract {
        use redrive_testkit::contract::conformance;

        use crate::common::rest::{ByRest, Kind};

        conformance!(queue, ByRest(Kind::Queue));
        conformance!(subscription, ByRest(Kind::Subscription));
    }
}
