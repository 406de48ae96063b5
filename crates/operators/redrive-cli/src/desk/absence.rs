//! Reads a shelf to judge by what is not on it. The rule, in one place: nobody else may hold entries meanwhile, as far as the broker tells,
//! and where a connection died, the shelf is read twice.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, bail};
use redrive::Shelf;
use redrive::shelves::{Holder, Leased, Shelved};
use redrive::{TransportError, TransportErrorKind};
use tokio::time::Instant;

use super::Desk;

/// Minimum time between two looks at a shelf: what a dead connection or another client held during the first one is back then.
const BETWEEN_LOOKS: Duration = Duration::from_secs(2);

/// For how long whoever has the lease of a shelf tries again while others have it: less than the default `--timeout`, whose end says
/// nothing of them.
const TURN_WITHIN: Duration = Duration::from_secs(60);
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

/// A shelf whose lease was taken, if it has one: no run and no edit holds entries of it.
pub(crate) struct Alone<'a> {
    desk: &'a Desk,
    shelf: Shelf,
    leased: Option<Leased>,
}

impl<'a> Alone<'a> {
    /// Takes the lease.
    ///
    /// # Errors
    ///
    /// If a run or an edit has it, or the broker cannot be reached.
    pub(crate) async fn on(desk: &'a Desk, shelf: Shelf) -> Result<Self, TransportError> {
        Ok(Self { desk, shelf, leased: desk.shelves.lease(shelf).await? })
    }

    /// Reads the shelf once. Returns who may have held entries all the same.
    ///
    /// # Errors
    ///
    /// If the broker cannot be read.
    pub(crate) async fn look(
        &self,
        mut each: impl FnMut(Shelved) + Send,
    ) -> Result<Option<Holder>, TransportError> {
        let shelves = self.leased.as_ref().map_or(&*self.desk.shelves, |leased| &*leased.shelves);
        let mut each = |entry| {
            each(entry);
            ControlFlow::Continue(())
        };
        let began = Instant::now();
        loop {
            match shelves.scan(self.shelf, &mut each).await {
                Err(error) if may_try_again(&error, began).await => {}
                looked => return looked,
            }
        }
    }

    /// Keeps the lease, for the work that follows.
    pub(crate) fn into_leased(self) -> Option<Leased> {
        self.leased
    }

    /// Gives the lease back.
    pub(crate) async fn end(self) {
        if let Some(leased) = self.leased {
            leased.lease.end().await;
        }
    }
}

/// Reads a shelf once, under its lease. What is not seen was not there.
///
/// # Errors
///
/// If the lease is taken, somebody else may hold entries, or the broker cannot be read.
pub(crate) async fn look_alone(desk: &Desk, shelf: Shelf, each: impl FnMut(Shelved) + Send) -> Result<()> {
    let alone = Alone::on(desk, shelf).await?;
    let holder = alone.look(each).await;
    alone.end().await;
    match holder? {
        None => Ok(()),
        Some(holder) => {
            let end = if holder == Holder::Unknown { "Grant it" } else { "Stop it" };
            bail!("the {shelf} shelf may have messages that cannot be seen: {holder}. {end}, then try again")
        }
    }
}

/// Waits a moment if the error is that others have the shelf, and they have not had it for too long. Returns true if it was: nothing was
/// done, and it can be tried again. Whoever has the lease does not wait for long by itself.
pub(crate) async fn may_try_again(error: &TransportError, since: Instant) -> bool {
    let may = error.kind() == TransportErrorKind::Busy && since.elapsed() < TURN_WITHIN;
    if may {
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    may
}

/// Returns when a shelf may be read again, of which a look began then and has just ended.
pub(crate) fn again_at(began: Instant) -> Instant {
    // Others take about as long to read it.
    Instant::now() + BETWEEN_LOOKS.max(began.elapsed() * 2)
}
