//! What a transport and its receipts share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_core::fail_point::{FailPoint, fail_point};
use tracing::warn;

use crate::connection::Link;
use crate::error::{Refusal, WireError};
use crate::listener::Listener;
use crate::locks::Locks;
use crate::options::Options;
use crate::settler::Settler;
use crate::swapper::Swapper;
use crate::wire::{Disposal, Swap};

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) options: Options,
    pub(crate) link: Arc<Link>,
    pub(crate) locks: Arc<Locks>,
    pub(crate) settler: Settler,
    swapper: Swapper,
    without_transactions: AtomicBool,
    /// Who is told what happens beside the deliveries.
    pub(crate) signals: Arc<Listener>,
}

/// How far replacing a message came, where it failed.
#[derive(Debug)]
pub(crate) struct NotReplaced {
    pub(crate) error: WireError,
    /// The copy is stored; only its original may still be there.
    pub(crate) copy_stored: bool,
}

impl Broker {
    pub(crate) fn new(options: Options, link: Arc<Link>) -> Self {
        let without_transactions = !options.has_transactions();
        let signals = Arc::<Listener>::default();
        Self {
            settler: Settler::start(Arc::clone(&link)),
            swapper: Swapper::start(Arc::clone(&link)),
            options,
            link,
            locks: Arc::new(Locks::telling(Arc::clone(&signals))),
            signals,
            without_transactions: AtomicBool::new(without_transactions),
        }
    }

    /// The path of what is consumed.
    pub(crate) fn entity(&self) -> String {
        self.options.entity.path()
    }

    /// Stores a copy and completes its original, in one transaction where there are any.
    pub(crate) async fn replace(&self, swap: Swap) -> Result<(), NotReplaced> {
        let not_stored = |error| NotReplaced { error, copy_stored: false };
        if !self.without_transactions.load(Ordering::Relaxed) {
            match self.swapper.replace(swap.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if error.refusal == Refusal::NoTransactions => {
                    if !self.without_transactions.swap(true, Ordering::Relaxed) {
                        warn!(
                            entity = %swap.entity, %error,
                            "this namespace has no transactions (Basic tier): copies are stored first and their originals \
                             completed then; a crash in between leaves two"
                        );
                    }
                }
                Err(error) => return Err(not_stored(error)),
            }
        }
        let wire = self.link.live().await.map_err(not_stored)?;
        wire.send(&swap.target, swap.message).await.map_err(not_stored)?;
        fail_point(FailPoint::CopyConfirmed);
        fail_point(FailPoint::AckHandedOver);
        let completed = Disposal::complete().within(swap.session.as_ref());
        let completed = wire.settle(&swap.entity, &[swap.lock], &completed).await;
        fail_point(FailPoint::AckWritten);
        completed.map_err(|error| NotReplaced { error, copy_stored: true })
    }

    /// Deliveries in hand were lost, with their connection or with their session.
    pub(crate) fn tell_interruption(&self) {
        self.signals.tell_interruption();
    }
}
