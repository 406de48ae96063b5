//! Recently seen message ids, for duplicate detection.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use redrive_emulator_host::Timestamp;

/// The message ids within the window. Its memory depends only on the window's ids.
#[derive(Debug)]
pub(super) struct Seen {
    window: Duration,
    ids: HashMap<Arc<str>, Timestamp>,
    oldest_first: VecDeque<(Timestamp, Arc<str>)>,
}

impl Seen {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, ids: HashMap::new(), oldest_first: VecDeque::new() }
    }

    pub(super) fn contains(&self, id: &str, now: Timestamp) -> bool {
        self.ids.get(id).is_some_and(|&at| now.since(at) < self.window)
    }

    pub(super) fn insert(&mut self, id: Arc<str>, at: Timestamp) {
        self.ids.insert(Arc::clone(&id), at);
        self.oldest_first.push_back((at, id));
    }

    /// Removes and returns the ids that left the window.
    pub(super) fn forget(&mut self, now: Timestamp) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        while let Some((at, _)) = self.oldest_first.front()
            && now.since(*at) >= self.window
        {
            let Some((at, id)) = self.oldest_first.pop_front() else { break };
            // The same id may have arrived again after it left the window and before this call.
            if self.ids.get(&id) == Some(&at) {
                self.ids.remove(&id);
                gone.push(id);
            }
        }
        gone
    }

    /// Removes an id that the state file says was forgotten.
    pub(super) fn remove(&mut self, id: &str) {
        self.ids.remove(id);
    }

    /// Returns all ids, in any order.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Timestamp)> {
        self.ids.iter().map(|(id, at)| (id, *at))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn an_id_is_known_within_the_window_and_not_after() {
        let mut seen = Seen::new(Duration::from_secs(10));
        seen.insert("a".into(), at(0));
        assert!(seen.contains("a", at(9)));
        assert!(!seen.contains("a", at(10)));
        assert!(!seen.contains("b", at(0)));
    }

    #[test]
    fn what_fell_out_of_the_window_takes_no_memory() {
        let mut seen = Seen::new(Duration::from_secs(10));
        seen.insert("a".into(), at(0));
        seen.insert("b".into(), at(5));
        assert_eq!(seen.forget(at(12)), vec![Arc::from("a")]);
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn an_id_that_came_again_is_kept_for_its_second_coming() {
        let mut seen = Seen::new(Duration::from_secs(10));
        seen.insert("a".into(), at(0));
        seen.insert("a".into(), at(11));
        assert_eq!(seen.forget(at(12)), Vec::<Arc<str>>::new());
        assert!(seen.contains("a", at(20)));
    }
}
