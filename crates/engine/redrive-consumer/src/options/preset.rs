//! The preset of a section.

use redrive_core::{
    DeadLetterBackoff, ErrorClass, Expired,
    options::{OptionsError, section::section},
};

use super::retry::Retry;
use super::values::{Count, Flag, Named, OneOf, Wait};
use crate::rate_limit::RateLimit;

impl Named for Expired {
    const NAMES: &'static [(&'static str, Self)] =
        &[("DeadLetter", Self::DeadLetter), ("Discard", Self::Discard), ("RetryAnyway", Self::RetryAnyway)];
}

/// The classes that a panic may have.
impl Named for ErrorClass {
    const NAMES: &'static [(&'static str, Self)] =
        &[("Transient", Self::Transient), ("Permanent", Self::Permanent)];
}

section! {
    /// `Throttled` as it was read.
    Throttled {
        max_delivery_count: Count = "MaxDeliveryCount",
        retry: Retry = "Retry",
    }
}

section! {
    /// `RateLimit` as it was read.
    Rate {
        messages: Count = "Messages",
        per: Wait = "Per",
        burst: Count = "Burst",
    }
}

/// The keys that change the preset, beside the retry policy.
#[derive(Debug, Default)]
pub(super) struct Preset {
    pub(super) poison_after: Option<Count>,
    pub(super) park_after_redrives: Option<Count>,
    pub(super) park_exhausted: Option<Flag>,
    pub(super) expired: Option<OneOf<Expired>>,
    pub(super) panics: Option<OneOf<ErrorClass>>,
    pub(super) throttled: Option<Throttled>,
}

impl Preset {
    pub(super) fn apply(self, mut preset: DeadLetterBackoff) -> Result<DeadLetterBackoff, OptionsError> {
        match self.poison_after {
            Some(Count(0)) => {
                let reason = "0 deliveries would handle no message: give at least 1, or leave the key out";
                return Err(OptionsError::at("PoisonAfter", reason));
            }
            Some(Count(deliveries)) => preset = preset.poison_after(deliveries),
            None => {}
        }
        if let Some(Count(redrives)) = self.park_after_redrives {
            preset = preset.park_after_redrives(redrives);
        }
        if let Some(Flag(true)) = self.park_exhausted {
            preset = preset.park_exhausted();
        }
        if let Some(OneOf(expired)) = self.expired {
            preset = preset.expired(expired);
        }
        if let Some(OneOf(class)) = self.panics {
            preset = preset.panics(class);
        }
        if let Some(throttled) = self.throttled {
            let attempts = throttled.max_delivery_count.map(|Count(attempts)| attempts);
            let policy = throttled.retry.unwrap_or_default().policy(attempts);
            preset = preset.throttled(policy.map_err(below_throttled)?);
        }
        Ok(preset)
    }
}

/// Moves an error of the retry policy to where it was read.
fn below_throttled(error: OptionsError) -> OptionsError {
    OptionsError::at(format!("Throttled.{}", error.path), error.reason)
}

impl Rate {
    /// # Errors
    /// If a number or the period is missing or 0.
    pub(super) fn limit(self) -> Result<RateLimit, OptionsError> {
        let missing = |key| OptionsError::at(format!("RateLimit.{key}"), "it is needed, and above 0");
        let Some(Count(messages @ 1..)) = self.messages else { return Err(missing("Messages")) };
        let Some(Wait(per)) = self.per.filter(|Wait(per)| !per.is_zero()) else { return Err(missing("Per")) };
        let limit = RateLimit::new(messages, per);
        match self.burst {
            Some(Count(0)) => {
                Err(OptionsError::at("RateLimit.Burst", "0 would let no message pass: give at least 1"))
            }
            Some(Count(burst)) => Ok(limit.burst(burst)),
            None => Ok(limit),
        }
    }
}
