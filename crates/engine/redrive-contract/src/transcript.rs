//! Records what a clause did until it failed.

use std::fmt;

use parking_lot::Mutex;
use redrive_core::Delivery;
use tokio::time::Instant;

/// Number of the last steps that are shown.
const MAX_STEPS_SHOWN: usize = 100;

/// Steps of one clause, for the reader of a failed test: an assertion names only the last one.
pub(crate) struct Transcript {
    begun: Instant,
    steps: Mutex<Vec<String>>,
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), steps: Mutex::default() }
    }

    pub(crate) fn note(&self, step: impl fmt::Display) {
        let line = format!("{:9.3} s  {step}", self.begun.elapsed().as_secs_f64());
        self.steps.lock().push(line);
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.steps.lock();
        let left_out = steps.len().saturating_sub(MAX_STEPS_SHOWN);
        if left_out > 0 {
            writeln!(f, "   ({left_out} earlier steps)")?;
        }
        steps.iter().skip(left_out).try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// Describes a delivery in a step.
pub(crate) fn describe(delivery: &Delivery) -> String {
    let redelivered = if delivery.redelivered() { ", redelivered" } else { "" };
    format!(
        "`{}` (attempt {}, handed out {}{redelivered})",
        delivery.id(),
        delivery.attempt(),
        delivery.broker_delivery_count()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_steps_are_told_with_their_times() {
        let transcript = Transcript::new();
        transcript.note("too early to be told");
        tokio::time::advance(std::time::Duration::from_millis(1500)).await;
        for step in 1..=MAX_STEPS_SHOWN {
            transcript.note(format_args!("step {step}"));
        }
        let text = transcript.to_string();
        assert!(text.starts_with("   (1 earlier steps)\n    1.500 s  step 1\n"), "{text}");
        assert!(text.ends_with("    1.500 s  step 100\n"), "{text}");
    }
}
