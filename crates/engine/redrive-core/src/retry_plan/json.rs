//! The plan as a JSON document. Times are numbers of milliseconds.

use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use super::{RetryPlan, Span};

impl RetryPlan {
    /// Returns the plan as a JSON document, indented. Times are in milliseconds.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Contains only strings, numbers and lists: serialization cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut span = serializer.serialize_struct("Span", 2)?;
        span.serialize_field("least_ms", &whole_millis(self.least))?;
        span.serialize_field("most_ms", &whole_millis(self.most))?;
        span.end()
    }
}

pub(super) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(whole_millis(*time))
}

fn whole_millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
