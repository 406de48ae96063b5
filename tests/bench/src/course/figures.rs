//! What was measured, and what follows from it.

use serde::{Deserialize, Serialize};

use crate::task::{QueueType, Work};

/// All figures of one kind of work on one kind of queue.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Course {
    pub(super) work: Work,
    /// The exact release of RabbitMQ.
    pub(super) broker: String,
    pub(super) queue_type: QueueType,
    pub(super) prefetch: u16,
    pub(super) entries: Vec<Entry>,
}

/// One contestant on one course.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Entry {
    pub(super) variant: String,
    pub(super) count: u64,
    /// One for each round.
    pub(super) samples: Vec<Sample>,
    /// Why it did not do what it should. Then its figures are worth nothing.
    pub(super) failure: Option<String>,
}

/// One round of one contestant.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(super) struct Sample {
    pub(super) messages_per_second: f64,
    /// CPU time of the contestant, in µs per message.
    pub(super) client_us: f64,
    /// CPU time of the broker, in µs per message.
    pub(super) broker_us: Option<f64>,
}

impl Course {
    pub(super) fn title(&self) -> String {
        let Course { work, broker, queue_type, prefetch, .. } = self;
        format!("{}, RabbitMQ {broker}, {}, prefetch {prefetch}", work.name(), queue_type.name())
    }

    pub(super) fn entry(&self, variant: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.variant == variant)
    }

    /// How many times as fast `variant` is as `other`: the median of the rounds, each compared with itself.
    pub(super) fn ratio(&self, variant: &str, other: &str) -> Option<f64> {
        let (one, other) = (self.entry(variant)?, self.entry(other)?);
        let pairs = one.samples.iter().zip(&other.samples);
        median(pairs.map(|(one, other)| one.messages_per_second / other.messages_per_second))
    }
}

impl Entry {
    pub(super) fn rates(&self) -> impl Iterator<Item = f64> + '_ {
        self.samples.iter().map(|sample| sample.messages_per_second)
    }

    pub(super) fn median_rate(&self) -> Option<f64> {
        median(self.rates())
    }

    pub(super) fn client_us(&self) -> Option<f64> {
        median(self.samples.iter().map(|sample| sample.client_us))
    }

    pub(super) fn broker_us(&self) -> Option<f64> {
        median(self.samples.iter().filter_map(|sample| sample.broker_us))
    }
}

/// The middle one; of an even number the mean of the two in the middle.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// The value below which this share of all lies; 1.0 is the greatest.
pub(crate) fn percentile(values: &[f64], share: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.clamp(1, values.len().max(1)) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(variant: &str, rates: &[f64]) -> Entry {
        let sample = |&messages_per_second| Sample { messages_per_second, client_us: 1.0, broker_us: None };
        let samples = rates.iter().map(sample).collect();
        Entry { variant: variant.to_owned(), count: 1, samples, failure: None }
    }

    #[test]
    fn a_ratio_compares_each_round_with_itself() {
        let entries = vec![entry("fast", &[200.0, 20.0, 400.0]), entry("slow", &[100.0, 10.0, 100.0])];
        let course = Course {
            work: Work::Consume,
            broker: "4.3.6".to_owned(),
            queue_type: QueueType::Classic,
            prefetch: 200,
            entries,
        };
        assert_eq!(course.ratio("fast", "slow"), Some(2.0));
        assert_eq!(course.ratio("fast", "unknown"), None);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&values, 1.0), Some(100.0));
        assert_eq!(percentile(&[], 0.5), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
