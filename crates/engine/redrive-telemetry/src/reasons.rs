//! Bounds the number of values of the label `reason`.

use std::collections::HashSet;

use parking_lot::RwLock;
use redrive_core::Reason;

/// Number of the application's own reasons with their own label value.
const MOST_CUSTOM: usize = 20;
/// The value for all others.
const OTHER: &str = "other";

/// The application's own reasons that were seen so far.
#[derive(Debug, Default)]
pub(crate) struct Reasons(RwLock<HashSet<String>>);

impl Reasons {
    /// Returns the value of the label for this reason.
    pub(crate) fn label<'a>(&self, reason: &'a Reason) -> &'a str {
        let Reason::Custom(word) = reason else { return reason.as_str() };
        if self.0.read().contains(word) {
            return word;
        }
        let mut seen = self.0.write();
        let known = seen.contains(word) || (seen.len() < MOST_CUSTOM && seen.insert(word.clone()));
        if known { word } else { OTHER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_reasons_of_the_application_get_a_value() {
        let reasons = Reasons::default();
        let custom = |number: usize| Reason::Custom(format!("Reason{number}"));
        let labels: Vec<_> = (0..50).map(|number| reasons.label(&custom(number)).to_owned()).collect();
        assert_eq!(labels[MOST_CUSTOM - 1], "Reason19");
        assert!(labels[MOST_CUSTOM..].iter().all(|label| label == OTHER), "{labels:?}");
        assert_eq!(reasons.label(&custom(3)), "Reason3", "the first ones keep theirs");
        assert_eq!(reasons.label(&Reason::PoisonMessage), "PoisonMessage");
    }
}
