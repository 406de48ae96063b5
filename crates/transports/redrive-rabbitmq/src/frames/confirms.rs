//! Copies that wait for the broker's answer.
//!
//! A message that no queue takes comes back before its confirm. Confirms of several messages may come as one, so the order alone does not
//! tell which one came back: its content does. Copies of the same content are as good as each other: whichever of them was stored, one was.

use parking_lot::{Mutex, MutexGuard};
use redrive_core::Bytes;
use tokio::sync::Notify;

use super::ended::Ended;

/// The broker's answer for one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Stored,
    /// No queue received it.
    Returned(String),
    /// The broker could not store it: most often the queue is full.
    Refused,
}

/// A message as it is written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// The payload of its content header.
    pub(crate) header: Bytes,
    pub(crate) body: Bytes,
}

/// What the broker has answered on one channel.
#[derive(Debug, Default)]
pub(super) struct Confirms {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    unconfirmed: Unconfirmed,
    ended: Option<Ended>,
}

impl Confirms {
    /// Begins a batch; that before it is over.
    pub(super) fn begin(&self, messages: Vec<Written>) {
        self.state().unconfirmed.begin(messages);
    }

    /// Waits for all answers of the batch, in the order of its messages.
    ///
    /// # Errors
    /// If the channel ends first.
    pub(super) async fn answers(&self) -> lapin::Result<Vec<Answer>> {
        loop {
            if let Some(result) = self.result() {
                return result;
            }
            self.changed.notified().await;
        }
    }

    pub(super) fn confirm(&self, tag: u64, multiple: bool, stored: bool) {
        self.state().unconfirmed.confirm(tag, multiple, stored);
    }

    pub(super) fn came_back(&self, header: &[u8], body: &[u8], text: &str) {
        self.state().unconfirmed.came_back(header, body, text);
    }

    /// Wakes the caller if nothing is missing.
    pub(super) fn wake(&self) {
        if self.state().unconfirmed.missing == 0 {
            self.changed.notify_one();
        }
    }

    pub(super) fn end(&self, why: Ended) {
        self.state().ended.get_or_insert(why);
        self.changed.notify_one();
    }

    fn result(&self) -> Option<lapin::Result<Vec<Answer>>> {
        let mut state = self.state();
        if state.unconfirmed.missing == 0 {
            return Some(Ok(state.unconfirmed.answers()));
        }
        state.ended.clone().map(|ended| Err(ended.into()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// The messages of one batch and their answers. Pure.
#[derive(Debug, Default)]
struct Unconfirmed {
    /// Number of messages of earlier batches. The broker numbers the messages of a channel from 1.
    before: u64,
    copies: Vec<Copy>,
    /// All before this one are confirmed.
    confirmed_to: usize,
    /// Number of messages that are not confirmed.
    missing: usize,
}

#[derive(Debug)]
struct Copy {
    written: Written,
    confirmed: bool,
    answer: Answer,
}

impl Unconfirmed {
    /// Begins a batch; that before it is over.
    fn begin(&mut self, messages: Vec<Written>) {
        self.before += self.copies.len() as u64;
        self.confirmed_to = 0;
        self.missing = messages.len();
        let copy = |written| Copy { written, confirmed: false, answer: Answer::Stored };
        self.copies = messages.into_iter().map(copy).collect();
    }

    /// The broker has answered for the message of this number, and for all before it if `multiple`.
    fn confirm(&mut self, tag: u64, multiple: bool, stored: bool) {
        let Some(last) = tag.checked_sub(self.before + 1).and_then(|at| usize::try_from(at).ok()) else {
            return;
        };
        if last >= self.copies.len() {
            return;
        }
        let first = if multiple { self.confirmed_to } else { last };
        for copy in &mut self.copies[first.min(last + 1)..=last] {
            if std::mem::replace(&mut copy.confirmed, true) {
                continue;
            }
            self.missing -= 1;
            if !stored && copy.answer == Answer::Stored {
                copy.answer = Answer::Refused;
            }
        }
        while self.copies.get(self.confirmed_to).is_some_and(|copy| copy.confirmed) {
            self.confirmed_to += 1;
        }
    }

    /// No queue took the message of this content. If none has it, all that may be it count as returned: each is stored possibly twice,
    /// never zero times.
    fn came_back(&mut self, header: &[u8], body: &[u8], text: &str) {
        let open = |copy: &&mut Copy| !copy.confirmed && copy.answer == Answer::Stored;
        let is_it = |copy: &&mut Copy| copy.written.header == header && copy.written.body == body;
        let returned = || Answer::Returned(text.to_owned());
        let mut candidates = self.copies[self.confirmed_to..].iter_mut().filter(open);
        match candidates.find(is_it) {
            Some(copy) => copy.answer = returned(),
            None => {
                let candidates = self.copies[self.confirmed_to..].iter_mut().filter(open);
                candidates.for_each(|copy| copy.answer = returned());
            }
        }
    }

    fn answers(&mut self) -> Vec<Answer> {
        self.before += self.copies.len() as u64;
        self.confirmed_to = 0;
        std::mem::take(&mut self.copies).into_iter().map(|copy| copy.answer).collect()
    }
}

#[cfg(test)]
#[path = "confirms_tests.rs"]
mod tests;
