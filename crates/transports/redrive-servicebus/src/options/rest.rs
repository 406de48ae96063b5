//! The options of the REST API, and the facts of a transport that uses it.

use std::time::Duration;

use redrive_core::TransportError;
use redrive_core::transport::{Facts, HeaderLimit, NativeDeadLetter, UnmetNeed};
use redrive_transport::header_size;

use super::preflight::refused;
use super::{Backend, Options};

/// The most bytes that properties and headers of a copy may take: in HTTP they are header lines, and quoting makes them longer.
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// The options that only the REST API has.
#[derive(Clone, Debug)]
pub(crate) struct RestOptions {
    pub(crate) poll_wait: Duration,
    pub(crate) polls: usize,
}

impl Default for RestOptions {
    fn default() -> Self {
        Self { poll_wait: Duration::from_secs(10), polls: 8 }
    }
}

impl Options {
    /// Sets the queue that dead letters are moved to, and also parked messages if there is no parking queue. Only for
    /// [`Backend::Rest`], which cannot dead-letter. The queue must exist, and nobody may consume it. Set its `MaxDeliveryCount`
    /// to the largest value, because browsing counts deliveries, and set no time to live.
    pub fn dead_letter_queue(mut self, name: impl Into<String>) -> Self {
        self.dead_letter_queue = Some(name.into());
        self
    }

    /// Sets how long one request of [`Backend::Rest`] waits for a message, in whole seconds, at least 1 s. It is shorter if the
    /// consumer needs less ([`Needs::max_wait_time`](redrive_core::transport::Needs::max_wait_time)). Default: 10 s. An empty queue costs
    /// one request in this time. A pause and the close wait for a running request.
    pub fn poll_wait(mut self, wait: Duration) -> Self {
        self.rest.poll_wait = wait.clamp(Duration::from_secs(1), Duration::from_secs(60));
        self
    }

    /// Sets the most requests of [`Backend::Rest`] that wait at the same time, each for one message. Default: 8. Responses can
    /// overtake each other: with 1, messages arrive in order, one per response.
    pub fn concurrent_polls(mut self, most: u32) -> Self {
        self.rest.polls = usize::try_from(most.max(1)).unwrap_or(usize::MAX);
        self
    }

    /// Refuses options of the REST API that contradict each other.
    pub(crate) fn check_rest(&self) -> Result<(), TransportError> {
        if self.backend == Backend::Rest && self.sessions.is_some() {
            return Err(refused(format!(
                "the REST API cannot accept sessions of `{}`: use `Backend::Amqp`",
                self.entity
            )));
        }
        let Some(queue) = &self.dead_letter_queue else { return Ok(()) };
        let read = self.sources().into_iter().any(|source| source.path().eq_ignore_ascii_case(queue));
        if read || self.parking_queue.as_ref().is_some_and(|parking| parking.eq_ignore_ascii_case(queue)) {
            return Err(refused(format!(
                "the queue `{queue}` is used for the dead letters of `{}` and for something else: name a separate queue",
                self.entity
            )));
        }
        Ok(())
    }

    /// Returns what the REST API cannot do for a consumer, with what to do.
    pub(crate) fn unmet_by_rest(&self) -> Option<UnmetNeed> {
        let missing = self.backend == Backend::Rest && self.dead_letter_queue.is_none();
        missing.then(|| {
            let sentence = format!(
                "the REST API cannot dead-letter a message of `{}`: name an ordinary queue that dead letters are moved to, \
                 with `Options::dead_letter_queue`, or use `Backend::Amqp`",
                self.entity
            );
            self.ruled_out_by("Options::dead_letter_queue", sentence)
        })
    }

    pub(crate) fn limit_to_rest(&self, facts: &mut Facts) {
        if self.backend == Backend::Rest {
            facts.dead_letter = NativeDeadLetter::No;
            facts.counting.releases = true;
            facts.polls = true;
            facts.limits.headers = Some(HeaderLimit::new(MAX_HEADER_BYTES, header_size));
        }
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::transport::Needs;

    use super::*;

    fn check(options: &Options) -> Result<(), TransportError> {
        options.check(None)
    }

    #[test]
    fn without_a_queue_for_dead_letters_it_does_not_open() {
        let options = Options::new("orders").backend(Backend::Rest);
        let error = options.check_needs(&Needs::none()).expect_err("nowhere to go").to_string();
        assert!(error.contains("dead_letter_queue") && error.contains("orders"), "{error}");
        assert!(options.dead_letter_queue("dead").check_needs(&Needs::none()).is_ok());
    }

    #[test]
    fn the_queue_for_dead_letters_is_for_nothing_else() {
        let options = Options::new("orders").backend(Backend::Rest);
        assert!(check(&options.clone().dead_letter_queue("dead")).is_ok());
        for options in [
            options.clone().dead_letter_queue("Orders"),
            options.clone().retry_queue("back").dead_letter_queue("back"),
            options.parking_queue("parking").dead_letter_queue("parking"),
        ] {
            let error = check(&options).expect_err("it is used twice").to_string();
            assert!(error.contains("a separate queue"), "{error}");
        }
    }

    #[test]
    fn what_it_can_do_is_declared() {
        let options = Options::new("orders");
        let (amqp, rest) = (options.facts(), options.backend(Backend::Rest).facts());
        assert_eq!((amqp.dead_letter.is_possible(), rest.dead_letter.is_possible()), (true, false));
        assert_eq!((amqp.counting.releases, rest.counting.releases), (false, true));
        assert_eq!((amqp.polls, rest.polls), (false, true));
    }
}
