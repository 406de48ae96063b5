//! The transport contract, on every kind of entity, with both protocols.

mod common;

use common::{Kind, OnEmulator};
use redrive_contract::conformance;

conformance!(queue, OnEmulator(Kind::Queue));
conformance!(without_transactions, OnEmulator(Kind::Plain));
conformance!(subscription, OnEmulator(Kind::Subscription));
conformance!(sessions, OnEmulator(Kind::Sessions));

/// Has its own path for the test runner: these tests mostly wait, so more of them run at the same time than there are cores.
#[cfg(feature = "rest")]
mod rest {
    mod contract {
        use redrive_contract::conformance;

        use crate::common::rest::{ByRest, Kind};

        conformance!(queue, ByRest(Kind::Queue));
        conformance!(subscription, ByRest(Kind::Subscription));
    }
}
