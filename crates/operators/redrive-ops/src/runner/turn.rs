//! Waits for a shelf that others have: a run must not stop for the long look of somebody else.

use std::ops::ControlFlow;
use std::time::Duration;

use redrive_core::{TransportError, TransportErrorKind};
use tokio::time::Instant;

use super::{Activity, Runner};
use crate::run::Event;

/// For how long a run waits for a shelf that others have.
const TURN_WITHIN: Duration = Duration::from_secs(300);
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// What came of waiting for a shelf that others have.
pub(super) enum Waited {
    /// Try again.
    Again,
    /// A person said this meanwhile.
    Heard(Event),
    /// It is another error, or they have had it for too long.
    GivenUp(TransportError),
}

impl Runner<'_> {
    /// Waits a moment after an error if it is that others have the shelf, and they have not had it for too long. Cancel safe.
    pub(super) async fn waits_for_turn(&mut self, error: TransportError, since: Instant) -> Waited {
        if error.kind() != TransportErrorKind::Busy {
            return Waited::GivenUp(error);
        }
        if since.elapsed() >= TURN_WITHIN {
            let minutes = TURN_WITHIN.as_secs() / 60;
            let text = format!(
                "others had the shelf for {minutes} minutes, and a run waits no longer. At last: {error}"
            );
            return Waited::GivenUp(TransportError::new(TransportErrorKind::Busy, text));
        }
        self.show(Activity::WaitingForTurn);
        match tokio::time::timeout(BETWEEN_TRIES, self.events.recv()).await {
            Ok(Some(event)) => Waited::Heard(event),
            _ => Waited::Again,
        }
    }

    /// Does the same for a step that has begun, and tells the run what a person said meanwhile. `Break`: the step is to end, because of
    /// this error, or because a person wants it.
    pub(super) async fn may_try_again(
        &mut self,
        error: TransportError,
        since: Instant,
    ) -> ControlFlow<Option<TransportError>> {
        match self.waits_for_turn(error, since).await {
            Waited::Again => ControlFlow::Continue(()),
            Waited::GivenUp(error) => ControlFlow::Break(Some(error)),
            Waited::Heard(event) => {
                let ends_step = matches!(event, Event::Pause | Event::Abort);
                self.run.on(event, self.now());
                if ends_step { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
            }
        }
    }
}
