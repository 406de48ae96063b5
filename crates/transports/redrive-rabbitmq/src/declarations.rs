//! Shares one declaration among all messages that found the same queue missing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive_core::TransportError;
use tokio::sync::Mutex;

use crate::topology::Route;

/// The declarations of missing queues, counted. A thousand messages that come back at once cause one.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    ended: AtomicU64,
    /// The last declaration for each target, and its result. One caller at a time.
    last: Mutex<HashMap<Route, Declared>>,
}

/// The number of a declaration, and its result.
type Declared = (u64, Result<(), TransportError>);

impl Declarations {
    /// Returns how many have ended: to be asked before a message is sent that may find its queue missing.
    pub(crate) fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Declares the target of a message, unless this has ended since the message was sent: then the result is that of the other
    /// caller. Returns true if this call declared it. Cancel safe.
    pub(crate) async fn share(
        &self,
        target: &Route,
        since: u64,
        declaring: impl Future<Output = Result<(), TransportError>>,
    ) -> Result<bool, TransportError> {
        let mut last = self.last.lock().await;
        if let Some((number, result)) = last.get(target)
            && *number > since
        {
            return result.clone().map(|()| false);
        }
        let result = declaring.await;
        let number = self.ended.fetch_add(1, Ordering::AcqRel) + 1;
        last.insert(target.clone(), (number, result.clone()));
        result.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures::future::join_all;
    use redrive_core::TransportErrorKind;

    use super::*;

    #[tokio::test]
    async fn many_messages_to_a_missing_queue_cause_one_declaration() {
        let (declarations, declared) = (Declarations::default(), Cell::new(0));
        let orders = Route::queue("orders");
        let declaring = async || {
            declared.set(declared.get() + 1);
            tokio::task::yield_now().await;
            Ok(())
        };
        let sent = declarations.ended();
        // Some are sent while the queue is being declared.
        let share = async || declarations.share(&orders, declarations.ended(), declaring()).await;
        let all = join_all((0..500).map(|_| share())).await;
        assert_eq!(all.iter().filter(|did| matches!(did, Ok(true))).count(), 1);
        // An answer that comes later is an answer to the same state of the broker.
        assert!(!declarations.share(&orders, sent, declaring()).await.unwrap());
        assert_eq!(declared.get(), 1);
        // Another queue, or one that is deleted afterwards, is declared.
        assert!(declarations.share(&Route::queue("bills"), sent, declaring()).await.unwrap());
        assert!(declarations.share(&orders, declarations.ended(), declaring()).await.unwrap());
    }

    #[tokio::test]
    async fn a_refusal_is_shared_too() {
        let (declarations, orders) = (Declarations::default(), Route::queue("orders"));
        let refused =
            || async { Err(TransportError::new(TransportErrorKind::Unauthorized, "no permission")) };
        let sent = declarations.ended();
        for _ in 0..3 {
            let error = declarations.share(&orders, sent, refused()).await.unwrap_err();
            assert_eq!(error.kind(), TransportErrorKind::Unauthorized);
        }
        assert_eq!(declarations.ended(), 1);
    }
}
