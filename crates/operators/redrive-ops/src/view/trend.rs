//! Number of entries over time. Pure.

use std::time::{Duration, SystemTime};

/// Which times a [`Trend`] counts: a number of spans of equal length, the last of which ends at a given time.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use redrive_ops::TrendOptions;
///
/// // The last day, hour by hour.
/// let options = TrendOptions::until(SystemTime::now()).span(Duration::from_secs(60 * 60)).spans(24);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until a trend is computed with them"]
pub struct TrendOptions {
    until: SystemTime,
    span: Duration,
    spans: usize,
}

impl TrendOptions {
    /// Maximum number of spans.
    pub const MAX_SPANS: usize = 10_000;

    /// Creates the default options, with the end of the last span.
    pub fn until(until: SystemTime) -> Self {
        Self { until, span: Duration::from_secs(60 * 60), spans: 24 }
    }

    /// Sets the length of a span. Default: one hour. At least one nanosecond.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span.max(Duration::from_nanos(1));
        self
    }

    /// Sets the number of spans, at most [`MAX_SPANS`](Self::MAX_SPANS). Default: 24.
    pub fn spans(mut self, spans: usize) -> Self {
        self.spans = spans.min(Self::MAX_SPANS);
        self
    }
}

/// Number of entries over time, by when they were shelved. Each entry is counted once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trend {
    /// Number of entries of each span, oldest first. An entry at the border of two spans belongs to the older one.
    pub counts: Vec<u64>,
    /// Number of entries before the first span.
    pub before: u64,
    /// Number of entries after the last span, for example because of a clock that is ahead.
    pub after: u64,
    /// Number of entries without a time.
    pub untimed: u64,
}

impl Trend {
    pub(super) fn of(times: impl Iterator<Item = Option<SystemTime>>, options: &TrendOptions) -> Self {
        let mut trend = Self { counts: vec![0; options.spans], before: 0, after: 0, untimed: 0 };
        for time in times {
            *trend.count_of(time, options) += 1;
        }
        trend
    }

    fn count_of(&mut self, time: Option<SystemTime>, options: &TrendOptions) -> &mut u64 {
        let Some(time) = time else { return &mut self.untimed };
        let Ok(age) = options.until.duration_since(time) else { return &mut self.after };
        let spans_ago = age.as_nanos() / options.span.as_nanos();
        let from_end = usize::try_from(spans_ago).unwrap_or(usize::MAX);
        match self.counts.len().checked_sub(from_end).and_then(|end| end.checked_sub(1)) {
            Some(index) => &mut self.counts[index],
            None => &mut self.before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn trend(times: &[Option<u64>], span: Duration, spans: usize) -> Trend {
        let options = TrendOptions::until(at(1_000)).span(span).spans(spans);
        Trend::of(times.iter().map(|time| time.map(at)), &options)
    }

    #[test]
    fn each_entry_is_counted_in_its_span() {
        let times =
            [Some(0), Some(970), Some(971), Some(981), Some(990), Some(991), Some(1_000), Some(1_001), None];
        let trend = trend(&times, Duration::from_secs(10), 3);
        assert_eq!((&trend.counts[..], trend.before), (&[1, 2, 2][..], 2));
        assert_eq!((trend.after, trend.untimed), (1, 1));
    }

    #[test]
    fn no_options_panic() {
        for span in [Duration::ZERO, Duration::MAX] {
            for spans in [0, 1, usize::MAX] {
                let trend = trend(&[Some(1), Some(1_000), None], span, spans);
                assert!(trend.counts.len() <= TrendOptions::MAX_SPANS);
                assert_eq!(trend.counts.iter().sum::<u64>() + trend.before, 2);
            }
        }
    }
}
