//! The file's own shape, and what each value may be.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::rule::RuleEntry;
use super::{ConfigError, duration};
use crate::broker::rules::Rule;
use crate::broker::{Namespace, Settings, Topic};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct File {
    user_config: UserConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UserConfig {
    namespaces: Vec<NamespaceEntry>,
    /// Where the official emulator logs to: taken, and not used.
    #[serde(default, rename = "Logging")]
    _logging: serde_json::Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct NamespaceEntry {
    #[serde(default, rename = "Name")]
    _name: String,
    #[serde(default)]
    queues: Vec<QueueEntry>,
    #[serde(default)]
    topics: Vec<TopicEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QueueEntry {
    name: String,
    #[serde(default)]
    properties: Properties,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TopicEntry {
    name: String,
    #[serde(default)]
    properties: TopicProperties,
    #[serde(default)]
    subscriptions: Vec<SubscriptionEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SubscriptionEntry {
    name: String,
    #[serde(default)]
    properties: Properties,
    #[serde(default)]
    rules: Vec<RuleEntry>,
}

/// Of queues and subscriptions. A subscription leaves some of them out.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Properties {
    dead_lettering_on_message_expiration: bool,
    #[serde(deserialize_with = "positive")]
    default_message_time_to_live: Duration,
    #[serde(deserialize_with = "positive")]
    duplicate_detection_history_time_window: Duration,
    forward_dead_lettered_messages_to: Option<String>,
    forward_to: Option<String>,
    #[serde(deserialize_with = "lock_duration")]
    lock_duration: Duration,
    #[serde(deserialize_with = "delivery_count")]
    max_delivery_count: u32,
    requires_duplicate_detection: bool,
    requires_session: bool,
    dead_lettering_on_filter_evaluation_exceptions: bool,
    #[serde(deserialize_with = "at_least_one")]
    max_size_in_megabytes: u64,
    #[serde(deserialize_with = "at_least_one")]
    max_message_size_in_kilobytes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TopicProperties {
    #[serde(deserialize_with = "positive")]
    default_message_time_to_live: Duration,
    #[serde(deserialize_with = "positive")]
    duplicate_detection_history_time_window: Duration,
    requires_duplicate_detection: bool,
    #[serde(deserialize_with = "at_least_one")]
    max_size_in_megabytes: u64,
    #[serde(deserialize_with = "at_least_one")]
    max_message_size_in_kilobytes: u64,
}

/// Those of the official emulator.
impl Default for Properties {
    fn default() -> Self {
        Self {
            dead_lettering_on_message_expiration: false,
            default_message_time_to_live: Duration::from_secs(3600),
            duplicate_detection_history_time_window: Duration::from_secs(20),
            forward_dead_lettered_messages_to: None,
            forward_to: None,
            lock_duration: Duration::from_secs(60),
            max_delivery_count: 3,
            requires_duplicate_detection: false,
            requires_session: false,
            dead_lettering_on_filter_evaluation_exceptions: true,
            max_size_in_megabytes: 1024,
            max_message_size_in_kilobytes: 256,
        }
    }
}

impl Default for TopicProperties {
    fn default() -> Self {
        let queue = Properties::default();
        Self {
            default_message_time_to_live: queue.default_message_time_to_live,
            duplicate_detection_history_time_window: queue.duplicate_detection_history_time_window,
            requires_duplicate_detection: queue.requires_duplicate_detection,
            max_size_in_megabytes: queue.max_size_in_megabytes,
            max_message_size_in_kilobytes: queue.max_message_size_in_kilobytes,
        }
    }
}

impl File {
    pub(super) fn namespace(self) -> Result<Namespace, ConfigError> {
        let path = "UserConfig.Namespaces";
        let mut entries = self.user_config.namespaces.into_iter();
        let (Some(entry), None) = (entries.next(), entries.next()) else {
            return Err(ConfigError {
                path: path.into(),
                reason: "there must be exactly one namespace".into(),
            });
        };
        let mut namespace = Namespace::default();
        for queue in entry.queues {
            namespace = namespace.queue(queue.name, queue.properties.settings());
        }
        for (nth, topic) in entry.topics.into_iter().enumerate() {
            namespace = namespace.topic(topic.topic(&format!("{path}[0].Topics[{nth}]"))?);
        }
        Ok(namespace)
    }
}

impl TopicEntry {
    fn topic(self, path: &str) -> Result<Topic, ConfigError> {
        let mut topic = Topic::new(self.name, self.properties.settings());
        for (nth, subscription) in self.subscriptions.into_iter().enumerate() {
            let rules = subscription
                .rules
                .into_iter()
                .enumerate()
                .map(|(rule, entry)| entry.rule(&format!("{path}.Subscriptions[{nth}].Rules[{rule}]")))
                .collect::<Result<Vec<_>, _>>()?;
            // As in Azure, a subscription for which no rule is named takes everything.
            let rules = if rules.is_empty() { vec![Rule::all()] } else { rules };
            topic =
                topic.subscription_with_rules(subscription.name, subscription.properties.settings(), rules);
        }
        Ok(topic)
    }
}

impl Properties {
    fn settings(self) -> Settings {
        Settings {
            lock_duration: self.lock_duration,
            max_delivery_count: self.max_delivery_count,
            default_time_to_live: limited(self.default_message_time_to_live),
            dead_letter_on_expiration: self.dead_lettering_on_message_expiration,
            dead_letter_on_filter_errors: self.dead_lettering_on_filter_evaluation_exceptions,
            duplicate_detection: self
                .requires_duplicate_detection
                .then_some(self.duplicate_detection_history_time_window),
            requires_session: self.requires_session,
            forward_to: self.forward_to.filter(|to| !to.is_empty()),
            forward_dead_lettered_messages_to: self
                .forward_dead_lettered_messages_to
                .filter(|to| !to.is_empty()),
            max_size: self.max_size_in_megabytes.saturating_mul(1 << 20),
            max_message_size: self.max_message_size_in_kilobytes.saturating_mul(1 << 10),
        }
    }
}

impl TopicProperties {
    fn settings(self) -> Settings {
        Settings {
            default_time_to_live: limited(self.default_message_time_to_live),
            duplicate_detection: self
                .requires_duplicate_detection
                .then_some(self.duplicate_detection_history_time_window),
            max_size: self.max_size_in_megabytes.saturating_mul(1 << 20),
            max_message_size: self.max_message_size_in_kilobytes.saturating_mul(1 << 10),
            ..Settings::default()
        }
    }
}

fn limited(time_to_live: Duration) -> Option<Duration> {
    (!duration::is_for_ever(time_to_live)).then_some(time_to_live)
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).ok_or_else(|| {
        de::Error::custom(format!("'{text}' is no ISO 8601 duration such as PT30S, PT1M or P14D"))
    })
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match read_duration(deserializer)? {
        Duration::ZERO => Err(de::Error::custom("the duration must be longer than nothing")),
        duration => Ok(duration),
    }
}

fn lock_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    match positive(deserializer)? {
        duration if duration > Duration::from_secs(300) => {
            Err(de::Error::custom("a lock lasts 5 minutes (PT5M) at most"))
        }
        duration => Ok(duration),
    }
}

fn delivery_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        0 => Err(de::Error::custom("there must be at least 1 delivery")),
        count => Ok(count),
    }
}

fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(de::Error::custom("the size must be at least 1")),
        size => Ok(size),
    }
}
