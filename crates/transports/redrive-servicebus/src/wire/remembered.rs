//! What the broker answered about entities, for a while. Pure.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The time for which an answer holds. An entity may be changed meanwhile, and nothing tells: a shelf whose queue forwards its messages
/// from now on looks empty.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// The answers about entities that are still to be relied on.
#[derive(Debug, Default)]
pub(super) struct Remembered(HashMap<String, (bool, Instant)>);

impl Remembered {
    /// Returns the answer about an entity, if it is not too old.
    pub(super) fn get(&self, entity: &str) -> Option<bool> {
        let (answer, since) = self.0.get(entity)?;
        (since.elapsed() < REMEMBERED_FOR).then_some(*answer)
    }

    /// Remembers an answer from now on.
    pub(super) fn insert(&mut self, entity: &str, answer: bool) {
        self.0.insert(entity.to_owned(), (answer, Instant::now()));
    }

    /// Forgets the answer about an entity.
    pub(super) fn remove(&mut self, entity: &str) {
        self.0.remove(entity);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_holds_for_a_minute_from_when_it_was_given() {
        let mut remembered = Remembered::default();
        assert_eq!(remembered.get("orders"), None);
        remembered.insert("orders", true);
        advance(REMEMBERED_FOR - Duration::from_secs(1)).await;
        assert_eq!((remembered.get("orders"), remembered.get("parked")), (Some(true), None));
        advance(Duration::from_secs(1)).await;
        assert_eq!(remembered.get("orders"), None, "asked meanwhile, and too old nevertheless");
        remembered.insert("orders", false);
        assert_eq!(remembered.get("orders"), Some(false));
        remembered.remove("orders");
        assert_eq!(remembered.get("orders"), None);
    }
}
