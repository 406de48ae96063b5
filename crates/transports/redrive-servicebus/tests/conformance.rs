//! The transport contract, on every kind of entity, with both protocols.

mod common;

use common::{Kind, OnEmulator};
use redrive_contract::conformance;

conformance!(queue, OnEmulator(Kind::Queue));
// Other links, and another way to receive: everything.
conformance!(sessions, OnEmulator(Kind::Sessions));
// A second entity to receive from, and to redrive to: all but the bytes of a message and the pages of a shelf.
conformance!(
    subscription,
    OnEmulator(Kind::Subscription),
    of [
        removing, rescheduling, shelving, returning, dying, interrupting, losing, counting, refusing, receiving, pausing, closing,
        sharing, publishing, starting, operating, entries
    ]
);
// A move is two steps, and parked messages have a queue: what moves a message, and the queues that are looked at when it starts.
conformance!(
    without_transactions,
    OnEmulator(Kind::Plain),
    of [rescheduling, shelving, counting, refusing, closing, sharing, starting, operating, entries]
);

/// Has its own path for the test runner: these tests mostly wait, so more of them run at the same time than there are cores.
#[cfg(feature = "rest")]
mod rest {
    mod contract {
        use redrive_contract::conformance;

        use crate::common::rest::{ByRest, Kind};

        conformance!(queue, ByRest(Kind::Queue));
        // As by AMQP.
        conformance!(
            subscription,
            ByRest(Kind::Subscription),
            of [
                removing, rescheduling, shelving, returning, dying, interrupting, losing, counting, refusing, receiving, pausing,
                closing, sharing, publishing, starting, operating, entries
            ]
        );
    }
}
