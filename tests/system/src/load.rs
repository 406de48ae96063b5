//! Messages that come for as long as a fault lasts, and how long work stood still meanwhile.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::rabbitmq::RabbitMq;
use redrive::{Message, TransportErrorKind};
use tokio::task::JoinHandle;

/// A producer that publishes one message after the other, each until it is confirmed, until told to stop.
#[derive(Debug)]
pub struct Load {
    state: Arc<Mutex<State>>,
    publishing: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    ids: Vec<String>,
    twice: usize,
    pulse: Pulse,
    stop_at: Option<usize>,
    done: bool,
}

/// Between two messages, when nothing else is said.
const PAUSE: Duration = Duration::from_millis(8);

impl Load {
    /// Publishes messages with the ids `m-0`, `m-1`, …
    #[must_use]
    pub fn start(through: RabbitMq) -> Self {
        Self::with_pause(through, PAUSE)
    }

    /// The same with so much time between two messages.
    #[must_use]
    pub fn with_pause(through: RabbitMq, pause: Duration) -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let publishing = tokio::spawn(async move {
            for number in 0.. {
                if shared.lock().unwrap().stop_at.is_some_and(|messages| number >= messages) {
                    break;
                }
                publish(&through, &shared, format!("m-{number}")).await;
                tokio::time::sleep(pause).await;
            }
            shared.lock().unwrap().done = true;
        });
        Self { state, publishing }
    }

    /// Stops it when it has published at least this many messages: at once, if it has.
    ///
    /// # Panics
    /// When the producer panicked.
    pub fn stop_at(&self, messages: usize) {
        self.state.lock().unwrap().stop_at = Some(messages);
    }

    /// How many are published so far.
    ///
    /// # Panics
    /// When the producer panicked.
    #[must_use]
    pub fn published(&self) -> usize {
        self.state.lock().unwrap().ids.len()
    }

    /// The ids of all messages once they are published.
    ///
    /// # Panics
    /// When the producer panicked.
    #[must_use]
    pub fn done(&self) -> Option<Vec<String>> {
        let state = self.state.lock().unwrap();
        assert!(state.done || !self.publishing.is_finished(), "the producer panicked");
        state.done.then(|| state.ids.clone())
    }

    /// How many were published again, because it was not known whether they were stored.
    #[must_use]
    pub fn twice(&self) -> usize {
        self.state.lock().unwrap().twice
    }

    /// The longest time without a confirm.
    #[must_use]
    pub fn longest_pause(&self) -> Duration {
        self.state.lock().unwrap().pulse.longest()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

async fn publish(through: &RabbitMq, state: &Mutex<State>, id: String) {
    let mut tries = 0;
    loop {
        match through.publish(Message::new("an order").with_id(&id)).await {
            Ok(()) => break,
            Err(error) if error.kind() == TransportErrorKind::Closed => panic!("{error}"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut state = state.lock().unwrap();
    state.ids.push(id);
    state.twice += usize::from(tries > 0);
    let confirmed = state.ids.len();
    state.pulse.beat(confirmed);
}

/// The longest time in which a count did not grow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pulse {
    last: Option<(usize, Instant)>,
    longest: Duration,
}

impl Pulse {
    /// The count is this now.
    pub fn beat(&mut self, count: usize) {
        match self.last {
            Some((before, _)) if before == count => {}
            Some((_, since)) => {
                self.longest = self.longest.max(since.elapsed());
                self.last = Some((count, Instant::now()));
            }
            None => self.last = Some((count, Instant::now())),
        }
    }

    /// As far as it is over: a count that has reached its end stands still for ever.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pauses_between_two_beats_count() {
        let mut pulse = Pulse::default();
        pulse.beat(1);
        std::thread::sleep(Duration::from_millis(20));
        pulse.beat(1);
        assert_eq!(pulse.longest(), Duration::ZERO);
        pulse.beat(2);
        assert!(pulse.longest() >= Duration::from_millis(20));
    }
}
