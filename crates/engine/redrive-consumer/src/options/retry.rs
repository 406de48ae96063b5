//! The retry policy of a section.

use std::time::Duration;

use redrive_core::options::OptionsError;
use redrive_core::options::section::section;
use redrive_core::text::plural;
use redrive_core::{Exponential, Fibonacci, Fixed, Jitter, Linear, RetryPolicy};

use super::values::{Named, Number, OneOf, Wait, Waits};

section! {
    /// `Retry` as it was read.
    Retry {
        policy: OneOf<Policy> = "Policy",
        base: Wait = "Base",
        factor: Number = "Factor",
        step: Wait = "Step",
        cap: Wait = "Cap",
        deadline: Wait = "Deadline",
        jitter: OneOf<Jitter> = "Jitter",
        waits: Waits = "Waits",
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Policy {
    #[default]
    Exponential,
    Fibonacci,
    Linear,
    Fixed,
}

impl Named for Policy {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("Exponential", Self::Exponential),
        ("Fibonacci", Self::Fibonacci),
        ("Linear", Self::Linear),
        ("Fixed", Self::Fixed),
    ];
}

impl Named for Jitter {
    const NAMES: &'static [(&'static str, Self)] =
        &[("None", Self::None), ("Full", Self::Full), ("Equal", Self::Equal)];
}

/// Sets the limits that every computed policy has, if the section gives them.
macro_rules! limited {
    ($policy:expr, $retry:ident, $attempts:ident) => {{
        let mut policy = $policy;
        if let Some(attempts) = $attempts {
            policy = policy.attempts(attempts);
        }
        if let Some(Wait(deadline)) = $retry.deadline {
            policy = policy.deadline(deadline);
        }
        if let Some(OneOf(jitter)) = $retry.jitter {
            policy = policy.jitter(jitter);
        }
        Box::new(policy)
    }};
}

impl Retry {
    /// Returns the policy with this total number of attempts.
    pub(super) fn policy(self, attempts: Option<u32>) -> Result<Box<dyn RetryPolicy>, OptionsError> {
        if attempts == Some(0) {
            return Err(OptionsError::at(
                "MaxDeliveryCount",
                "0 attempts would handle no message: it counts the first one too; give 1 for no retry",
            ));
        }
        if self.waits.is_some() {
            return self.schedule(attempts);
        }
        self.check()?;
        let base = self.base();
        let policy: Box<dyn RetryPolicy> = match self.kind() {
            Policy::Exponential => {
                let mut policy = Exponential::from(base);
                if let Some(Number(factor)) = self.factor {
                    policy = policy.factor(factor);
                }
                if let Some(Wait(cap)) = self.cap {
                    policy = policy.cap(cap);
                }
                limited!(policy, self, attempts)
            }
            Policy::Fibonacci => {
                let mut policy = Fibonacci::from(base);
                if let Some(Wait(cap)) = self.cap {
                    policy = policy.cap(cap);
                }
                limited!(policy, self, attempts)
            }
            Policy::Linear => {
                let mut policy = Linear::from(base);
                if let Some(Wait(step)) = self.step {
                    policy = policy.step(step);
                }
                if let Some(Wait(cap)) = self.cap {
                    policy = policy.cap(cap);
                }
                limited!(policy, self, attempts)
            }
            Policy::Fixed => limited!(Fixed::from(base), self, attempts),
        };
        Ok(policy)
    }

    /// Returns the policy whose waits are listed.
    fn schedule(self, attempts: Option<u32>) -> Result<Box<dyn RetryPolicy>, OptionsError> {
        if let Some(key) = self.computed_keys().into_iter().find_map(|(key, given)| given.then_some(key)) {
            return Err(OptionsError::at(
                "Retry.Waits",
                format!(
                    "the waits are given one by one, and `Retry.{key}` has no meaning beside them: leave out one of the two"
                ),
            ));
        }
        let Waits(waits) = self.waits.unwrap_or_default();
        let makes = waits.len() + 1;
        match attempts {
            Some(attempts) if usize::try_from(attempts) != Ok(makes) => Err(OptionsError::at(
                "MaxDeliveryCount",
                format!(
                    "{attempts} contradicts `Retry.Waits`: {} and the first attempt make {makes}. Leave `MaxDeliveryCount` out, or give it \
                     {makes}",
                    plural(waits.len(), "wait")
                ),
            )),
            _ => Ok(Box::new(waits)),
        }
    }

    /// Returns the keys of computed policies, and whether each is given.
    fn computed_keys(&self) -> [(&'static str, bool); 7] {
        [
            ("Policy", self.policy.is_some()),
            ("Base", self.base.is_some()),
            ("Factor", self.factor.is_some()),
            ("Step", self.step.is_some()),
            ("Cap", self.cap.is_some()),
            ("Deadline", self.deadline.is_some()),
            ("Jitter", self.jitter.is_some()),
        ]
    }

    fn check(&self) -> Result<(), OptionsError> {
        let (kind, base) = (self.kind(), self.base());
        let has_meaning = |key| match key {
            "Factor" => kind == Policy::Exponential,
            "Step" => kind == Policy::Linear,
            "Cap" => kind != Policy::Fixed,
            _ => true,
        };
        if let Some((key, _)) =
            self.computed_keys().into_iter().find(|&(key, given)| given && !has_meaning(key))
        {
            let reason = format!(
                "the policy `{kind:?}` has no such setting: leave it out, or choose another `Retry.Policy`"
            );
            return Err(OptionsError::at(format!("Retry.{key}"), reason));
        }
        if let Some(Number(factor)) = self.factor
            && factor < 1.0
        {
            let reason = format!("with a factor of {factor} the waits would become shorter: give at least 1");
            return Err(OptionsError::at("Retry.Factor", reason));
        }
        for (key, wait) in [("Cap", self.cap), ("Deadline", self.deadline)] {
            if let Some(Wait(wait)) = wait
                && wait < base
            {
                let reason = format!(
                    "{} is shorter than the first wait, {} (`Retry.Base`): raise it, or lower `Retry.Base`",
                    humantime::format_duration(wait),
                    humantime::format_duration(base),
                );
                return Err(OptionsError::at(format!("Retry.{key}"), reason));
            }
        }
        Ok(())
    }

    fn kind(&self) -> Policy {
        self.policy.map_or_else(Policy::default, |OneOf(policy)| policy)
    }

    fn base(&self) -> Duration {
        self.base.map_or(Exponential::DEFAULT_BASE, |Wait(base)| base)
    }
}
