//! Refusals of messages whose quorum queue is new.

use std::fmt::Display;
use std::time::Duration;

use crate::emulated_on_rabbitmq;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(10);
/// The most refusals of one message: a queue is new for a second, and for longer on a machine that stalls.
const MOST: u32 = 1000;

/// Counts how often a message was refused (`basic.nack`) because its quorum queue is new. Only RabbitMQ 3.10 does that.
#[derive(Debug, Default)]
pub struct Refusals(u32);

impl Refusals {
    /// Counts a refusal, and resolves when the message may be tried again.
    ///
    /// # Panics
    /// If the broker of this test refuses no message for a new queue, as RabbitMQ 4.3, the emulator, or any broker for a classic queue;
    /// and if the message was refused too often. The path of a test says where it runs, and is the name of its thread.
    pub async fn try_again(&mut self, error: impl Display) {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or_default();
        let known = is_known(test, emulated_on_rabbitmq);
        assert!(known, "refused, and not because a quorum queue of RabbitMQ 3.10 is new: {error}");
        self.0 += 1;
        assert!(self.0 <= MOST, "refused {MOST} times: {error}");
        tokio::time::sleep(PAUSE).await;
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        if self.0 > 0 {
            eprintln!("a message for a new queue was refused {} times", self.0);
        }
    }
}

fn is_known(test: &str, emulated_on_rabbitmq: impl FnOnce() -> bool) -> bool {
    let on_3_10 = test.contains("v3_10") || (test.contains("as_3_10") && emulated_on_rabbitmq());
    on_3_10 && !test.contains("classic")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_quorum_queues_of_rabbitmq_3_10_refuse_when_they_are_new() {
        for (test, on_emulator, on_rabbitmq) in [
            ("settling::v3_10::quorum::a_message_is_retried", true, true),
            ("alarm::v3_10::a_disk_alarm", true, true),
            ("settling::v3_10::classic::a_message_is_retried", false, false),
            ("settling::v4_3::quorum::a_message_is_retried", false, false),
            ("emulator::modes::as_3_10::quorum::a_message_waits", false, true),
            ("emulator::modes::as_3_10::classic::a_message_waits", false, false),
            ("emulator::modes::as_4_3::quorum::a_message_waits", false, false),
            ("memory::killed_in_the_middle", false, false),
            ("tokio-rt-worker", false, false),
        ] {
            assert_eq!(is_known(test, || false), on_emulator, "{test}");
            assert_eq!(is_known(test, || true), on_rabbitmq, "{test}");
        }
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "refused, and not because")]
    async fn a_refusal_elsewhere_fails() {
        Refusals::default().try_again("full").await;
    }

    mod v3_10 {
        use super::*;

        #[tokio::test(start_paused = true)]
        #[should_panic(expected = "refused 1000 times: full")]
        async fn a_message_that_is_always_refused_fails() {
            let mut refusals = Refusals::default();
            loop {
                refusals.try_again("full").await;
            }
        }
    }
}
