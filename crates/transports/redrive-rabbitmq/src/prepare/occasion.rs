//! Decides what a queue or an exchange that does not fit, or could not be checked, means for the intake. Pure.

use redrive_core::{TransportError, TransportErrorKind};

use crate::error;

/// When the queues are prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// When the transport is opened, or after a copy found a queue missing. All must exist.
    Open,
    /// Before a subscription that is not the first.
    Again,
}

/// Consequence of a part that does not fit, or could not be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Consequence {
    Fail,
    /// The queue may belong to an earlier connection of this transport that the broker still considers open.
    TryAgainLater,
    /// A queue whose node is down is not missing, and loses nothing: a copy for it stays in flight. If an exchange of the application
    /// is gone, the messages in the work queue are still handled.
    Ignore,
    /// Fail after the other parts are prepared: waiting messages come back even if the intake cannot start.
    FailAtLast,
}

/// Owner of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The work queue itself.
    Work,
    Redrive,
    /// An exchange of the application that leads into the work queue or takes its dead letters, and its binding.
    Application,
}

impl Occasion {
    pub(super) fn after(self, failed: &TransportError, owner: Owner, is_up: bool) -> Consequence {
        match (self, failed.kind()) {
            // The error names all missing parts, for the person who declares them.
            (Self::Open, _) if error::is_missing(failed) => Consequence::FailAtLast,
            (Self::Open, _) => Consequence::Fail,
            (Self::Again, _) if !is_up => Consequence::Fail,
            (Self::Again, _) if error::is_held_by_another(failed) => Consequence::TryAgainLater,
            (Self::Again, TransportErrorKind::Unreachable) if owner == Owner::Work => Consequence::Fail,
            (Self::Again, TransportErrorKind::Unreachable) => Consequence::Ignore,
            (Self::Again, _) if error::is_missing(failed) && owner == Owner::Application => {
                Consequence::Ignore
            }
            (Self::Again, _) => Consequence::FailAtLast,
        }
    }
}

#[cfg(test)]
mod tests {
    use lapin::protocol::{AMQPError, AMQPSoftError};

    use super::*;

    fn after(occasion: Occasion, kind: TransportErrorKind, is_work: bool) -> Consequence {
        let owner = if is_work { Owner::Work } else { Owner::Redrive };
        occasion.after(&TransportError::new(kind, "as the test wants it"), owner, true)
    }

    #[test]
    fn an_exchange_of_the_application_that_is_deleted_ends_no_intake() {
        let gone = AMQPError::new(AMQPSoftError::NOTFOUND.into(), "NOT_FOUND - no exchange 'shop'".into());
        let gone = error::verifying_exchange("shop", lapin::ErrorKind::ProtocolError(gone).into());
        assert_eq!(Occasion::Open.after(&gone, Owner::Application, true), Consequence::FailAtLast);
        assert_eq!(Occasion::Again.after(&gone, Owner::Application, true), Consequence::Ignore);
        assert_eq!(Occasion::Again.after(&gone, Owner::Redrive, true), Consequence::FailAtLast);
    }

    #[test]
    fn all_must_exist_when_the_transport_is_opened() {
        for kind in [TransportErrorKind::Unreachable, TransportErrorKind::Topology] {
            assert_eq!(after(Occasion::Open, kind, false), Consequence::Fail);
        }
    }

    #[test]
    fn a_queue_out_of_reach_is_not_missing() {
        let unreachable = TransportErrorKind::Unreachable;
        assert_eq!(after(Occasion::Again, unreachable, false), Consequence::Ignore);
        assert_eq!(after(Occasion::Again, unreachable, true), Consequence::Fail, "it is waited for");
        let lost = TransportError::new(unreachable, "the connection ended");
        assert_eq!(Occasion::Again.after(&lost, Owner::Redrive, false), Consequence::Fail);
    }

    #[test]
    fn what_does_not_fit_ends_it_after_all_others_were_prepared() {
        for kind in [TransportErrorKind::Topology, TransportErrorKind::Unauthorized] {
            assert_eq!(after(Occasion::Again, kind, true), Consequence::FailAtLast);
        }
    }
}
