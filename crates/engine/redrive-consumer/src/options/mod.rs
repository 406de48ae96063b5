//! The options of a consumer as a section of a configuration, with the key names that other clients use.

mod existing;
mod preset;
mod retry;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use redrive_core::options::OptionsError;
use redrive_core::options::section::{self, section};
use redrive_core::{ByPattern, DeadLetterBackoff, ErrorClass, Expired, Transport};
use serde::{Deserialize, Deserializer};
use tower_layer::Stack;

pub use existing::ConnectionString;

use self::existing::{ReceiveMode, check_receive_mode, queue_name};
use self::preset::{Preset, Rate, Throttled};
use self::retry::Retry;
use self::values::{Count, Flag, OneOf, Wait};
use crate::consumer::{Consumer, DEFAULT_CONCURRENCY};
use crate::rate_limit::RateLimit;
use crate::service::StageLayer;

/// The options of a consumer, read by `serde` from a section of a configuration. [`Consumer::configured`] takes them.
///
/// | key | sets | default |
/// |---|---|---|
/// | `MaxConcurrentCalls` | [`Consumer::concurrency`] | 16 |
/// | `MaxDeliveryCount` | the attempts of the retry policy, the first one included | 6 |
/// | `MaxWaitTime` | [`Consumer::max_wait_time`] | none |
/// | `GiveUpAfter` | [`Consumer::give_up_after`] | never |
/// | `PrefetchCount` | [`Consumer::prefetch`]; 0: nothing is fetched ahead | twice the concurrency |
/// | `AutoComplete` | nothing: `false` is the only value | `false` |
/// | `Retry` | the retry policy: `Policy`, `Base`, `Factor`, `Step`, `Cap`, `Deadline`, `Jitter`, or `Waits` | `Exponential`, from 50 ms to 1 min |
/// | `PermanentPatterns` | the words of [`ByPattern`] | none |
/// | `PoisonAfter` | [`DeadLetterBackoff::poison_after`] | 10, less where the broker's own limit is lower |
/// | `ParkAfterRedrives` | [`DeadLetterBackoff::park_after_redrives`] | 3 |
/// | `ParkExhausted` | [`DeadLetterBackoff::park_exhausted`] | `false` |
/// | `Expired` | [`DeadLetterBackoff::expired`]: `DeadLetter`, `Discard`, `RetryAnyway` | `DeadLetter` |
/// | `Panics` | [`DeadLetterBackoff::panics`]: `Transient`, `Permanent` | `Transient` |
/// | `Throttled` | [`DeadLetterBackoff::throttled`]: `Retry` and `MaxDeliveryCount` of its own | as other errors |
/// | `RateLimit` | [`RateLimit`] inside the preset: `Messages`, `Per`, `Burst` | none |
/// | `Grace` | [`Consumer::grace`] | 30 s |
/// | `LongestHandling` | [`Consumer::longest_handling`] | none |
/// | `HeaderBudget` | [`Consumer::header_budget`] | 4096 |
/// | `Remember` | [`Consumer::remember`] | 10 000 |
/// | `Ledger` | [`Consumer::ledger`] | none |
/// | `QueueName`, `ConnectionString` | nothing: they are there for connecting the transport | none |
/// | `ReceiveMode` | nothing: `PeekLock` is the only value | `PeekLock` |
///
/// Names are read in any case, with or without `_` and `-`: `MaxWaitTime`, `max_wait_time`, `MAX_WAIT_TIME`. Times are seconds as a
/// number, or a text such as `30s` or `00:00:30`. Numbers may be text, as in environment variables. An unknown key is refused, and so is a
/// section that contradicts itself.
///
/// ```
/// use redrive_consumer::{Consumer, ConsumerOptions};
///
/// # async fn ship() {}
/// # fn example<T: redrive_core::Transport>(transport: T) -> Result<(), redrive_core::BoxError> {
/// let section = r#"{
///     "MaxConcurrentCalls": 5,
///     "MaxDeliveryCount": 3,
///     "Retry": { "Policy": "Exponential", "Base": 1, "Cap": "1m" },
///     "PermanentPatterns": ["invalid format", "no such item"]
/// }"#;
/// let options: ConsumerOptions = serde_json::from_str(section)?;
/// let consumer = Consumer::new(transport).configured(options).handler(ship);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Section")]
#[non_exhaustive]
pub struct ConsumerOptions {
    /// `MaxConcurrentCalls`: how many deliveries are handled at the same time; at least 1.
    pub concurrency: usize,
    /// `PrefetchCount`: how many deliveries may be in flight, those being handled included; `None`: twice the concurrency.
    pub prefetch: Option<u32>,
    /// `MaxWaitTime`: the longest wait of one request for messages.
    pub max_wait_time: Option<Duration>,
    /// `GiveUpAfter`: the time without being able to receive after which the consumer ends with an error; `None`: it never does.
    pub give_up_after: Option<Duration>,
    /// `Grace`: how long handlers may take to finish after a shutdown request.
    pub grace: Option<Duration>,
    /// `LongestHandling`: how long handling one delivery takes at most.
    pub longest_handling: Option<Duration>,
    /// `HeaderBudget`: how many bytes redrive's own headers may take.
    pub header_budget: Option<usize>,
    /// `Remember`: how many settled deliveries are remembered.
    pub remember: Option<usize>,
    /// `Ledger`: the file of the ledger.
    pub ledger: Option<PathBuf>,
    /// `RateLimit`: how many messages are handled in a period.
    pub rate_limit: Option<RateLimit>,
    /// `QueueName`, for the transport.
    pub queue_name: Option<String>,
    /// `ConnectionString`, for the transport.
    pub connection_string: Option<ConnectionString>,
    /// `Retry`, `MaxDeliveryCount` and `PermanentPatterns` as the preset. Settings without a key can be changed here.
    ///
    /// ```
    /// # use redrive_consumer::ConsumerOptions;
    /// # fn example(mut options: ConsumerOptions) {
    /// options.preset = options.preset.poison_after(5).park_exhausted();
    /// # }
    /// ```
    pub preset: DeadLetterBackoff,
    /// `PermanentPatterns`, which are the preset's classifier. A classifier that replaces it can continue with these patterns.
    ///
    /// ```
    /// use redrive_consumer::ConsumerOptions;
    /// use redrive_core::ByType;
    ///
    /// # fn example(mut options: ConsumerOptions) {
    /// let by_type = ByType::new().permanent::<std::num::ParseIntError>().or_else(options.patterns.clone());
    /// options.preset = options.preset.classifier(by_type);
    /// # }
    /// ```
    pub patterns: ByPattern,
}

section! {
    /// The section as it was read.
    Section {
        max_concurrent_calls: Count = "MaxConcurrentCalls",
        max_delivery_count: Count = "MaxDeliveryCount",
        max_wait_time: Wait = "MaxWaitTime",
        give_up_after: Wait = "GiveUpAfter",
        prefetch_count: Count = "PrefetchCount",
        auto_complete: Flag = "AutoComplete",
        retry: Retry = "Retry",
        permanent_patterns: Vec<String> = "PermanentPatterns",
        poison_after: Count = "PoisonAfter",
        park_after_redrives: Count = "ParkAfterRedrives",
        park_exhausted: Flag = "ParkExhausted",
        expired: OneOf<Expired> = "Expired",
        panics: OneOf<ErrorClass> = "Panics",
        throttled: Throttled = "Throttled",
        rate_limit: Rate = "RateLimit",
        grace: Wait = "Grace",
        longest_handling: Wait = "LongestHandling",
        header_budget: Count = "HeaderBudget",
        remember: Count = "Remember",
        ledger: PathBuf = "Ledger",
        queue_name: String = "QueueName",
        connection_string: String = "ConnectionString",
        receive_mode: OneOf<ReceiveMode> = "ReceiveMode",
    }
}

impl ConsumerOptions {
    /// Reads the options from any format of `serde`; errors name the path of the wrong value. `Deserialize` does the same, but its
    /// errors name a path only if the format provides one.
    ///
    /// ```
    /// use redrive_consumer::ConsumerOptions;
    ///
    /// let section = r#"{ "Retry": { "Policy": "Fixed", "Base": "soon" } }"#;
    /// let error = ConsumerOptions::from_deserializer(&mut serde_json::Deserializer::from_str(section)).unwrap_err();
    /// assert_eq!(error.path, "Retry.Base");
    /// ```
    ///
    /// # Errors
    ///
    /// If a key is unknown or there twice, a value is of a wrong type or out of its range, or two keys contradict each other.
    pub fn from_deserializer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, OptionsError> {
        section::read::<Section, Self, D>(deserializer)
    }
}

/// The options of an empty section.
impl Default for ConsumerOptions {
    fn default() -> Self {
        Self::try_from(Section::default()).expect("every key has a default")
    }
}

impl TryFrom<Section> for ConsumerOptions {
    type Error = OptionsError;

    fn try_from(section: Section) -> Result<Self, OptionsError> {
        if let Some(Flag(true)) = section.auto_complete {
            return Err(OptionsError::at(
                "AutoComplete",
                "only `false` is possible: redrive completes a message itself, once its handler has acknowledged it or a copy \
                 of it is stored; leave the key out",
            ));
        }
        let concurrency = concurrency(section.max_concurrent_calls)?;
        let attempts = section.max_delivery_count.map(|Count(attempts)| attempts);
        check_receive_mode(section.receive_mode)?;
        let patterns = patterns(section.permanent_patterns.unwrap_or_default())?;
        let policy = section.retry.unwrap_or_default().policy(attempts)?;
        let preset = Preset {
            poison_after: section.poison_after,
            park_after_redrives: section.park_after_redrives,
            park_exhausted: section.park_exhausted,
            expired: section.expired,
            panics: section.panics,
            throttled: section.throttled,
        };
        let count = |Count(count)| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Self {
            concurrency: usize::try_from(concurrency).unwrap_or(usize::MAX),
            prefetch: prefetch(section.prefetch_count, concurrency)?,
            max_wait_time: max_wait_time(section.max_wait_time)?,
            give_up_after: give_up_after(section.give_up_after)?,
            grace: section.grace.map(|Wait(grace)| grace),
            longest_handling: section.longest_handling.map(|Wait(time)| time),
            header_budget: section.header_budget.map(count),
            remember: section.remember.map(count),
            ledger: section.ledger,
            rate_limit: section.rate_limit.map(Rate::limit).transpose()?,
            queue_name: queue_name(section.queue_name)?,
            connection_string: section.connection_string.map(ConnectionString::new),
            preset: preset.apply(DeadLetterBackoff::new(policy).classifier(patterns.clone()))?,
            patterns,
        })
    }
}

fn concurrency(calls: Option<Count>) -> Result<u32, OptionsError> {
    match calls {
        Some(Count(0)) => {
            Err(OptionsError::at("MaxConcurrentCalls", "0 calls would handle no message: give at least 1"))
        }
        Some(Count(calls)) => Ok(calls),
        None => Ok(DEFAULT_CONCURRENCY.into()),
    }
}

/// `PrefetchCount: 0` is common, and means that nothing is fetched ahead. Any other number below the concurrency is ambiguous: it
/// may count all deliveries in flight, or only those that wait.
fn prefetch(count: Option<Count>, concurrency: u32) -> Result<Option<u32>, OptionsError> {
    match count {
        Some(Count(0)) => Ok(Some(concurrency)),
        Some(Count(count)) if count < concurrency => Err(OptionsError::at(
            "PrefetchCount",
            format!(
                "{count} is less than MaxConcurrentCalls, {concurrency}: it includes the deliveries that are being handled, and \
                 some calls would never get one; give at least {concurrency}, or 0 to fetch nothing ahead"
            ),
        )),
        other => Ok(other.map(|Count(count)| count)),
    }
}

fn max_wait_time(wait: Option<Wait>) -> Result<Option<Duration>, OptionsError> {
    match wait {
        Some(Wait(Duration::ZERO)) => Err(OptionsError::at(
            "MaxWaitTime",
            "requests that do not wait would be sent without a pause: give at least 1 second, or leave the key out",
        )),
        other => Ok(other.map(|Wait(wait)| wait)),
    }
}

fn give_up_after(time: Option<Wait>) -> Result<Option<Duration>, OptionsError> {
    match time {
        Some(Wait(Duration::ZERO)) => Err(OptionsError::at(
            "GiveUpAfter",
            "the first interruption would end the consumer: give at least 1 second, or leave the key out to wait for ever",
        )),
        other => Ok(other.map(|Wait(time)| time)),
    }
}

fn patterns(patterns: Vec<String>) -> Result<ByPattern, OptionsError> {
    match patterns.iter().position(|pattern| pattern.trim().is_empty()) {
        Some(index) => Err(OptionsError::at(
            format!("PermanentPatterns[{index}]"),
            "an empty pattern would make every error permanent: remove it",
        )),
        None => Ok(ByPattern::of(patterns)),
    }
}

impl<T: Transport, L> Consumer<T, L> {
    /// Applies options from a configuration. The preset goes inside the existing layers as with
    /// [`with_dead_letter_backoff`](Self::with_dead_letter_backoff), and the rate limit inside the preset. A setting that is called later
    /// wins.
    pub fn configured(
        self,
        options: ConsumerOptions,
    ) -> Consumer<T, Stack<RateLimit, Stack<StageLayer<DeadLetterBackoff>, L>>> {
        let mut consumer = self.concurrency(options.concurrency);
        if let Some(deliveries) = options.prefetch {
            consumer = consumer.prefetch(deliveries);
        }
        if let Some(wait) = options.max_wait_time {
            consumer = consumer.max_wait_time(wait);
        }
        if let Some(time) = options.give_up_after {
            consumer = consumer.give_up_after(time);
        }
        if let Some(grace) = options.grace {
            consumer = consumer.grace(grace);
        }
        if let Some(time) = options.longest_handling {
            consumer = consumer.longest_handling(time);
        }
        if let Some(bytes) = options.header_budget {
            consumer = consumer.header_budget(bytes);
        }
        if let Some(deliveries) = options.remember {
            consumer = consumer.remember(deliveries);
        }
        if let Some(path) = options.ledger {
            consumer = consumer.ledger(path);
        }
        consumer.with_dead_letter_backoff(options.preset).rate_limited(options.rate_limit)
    }
}

#[cfg(test)]
mod tests;
