//! Structure of the file, and its allowed values.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::rule::RuleEntry;
use super::{ConfigError, duration};
use crate::broker::rules::Rule;
use crate::broker::{Namespace, Settings, Topic, limits};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct File {
    user_config: UserConfig,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct UserConfig {
    namespaces: Vec<NamespaceEntry>,
    /// The log target of the official emulator: accepted and ignored.
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

/// Properties of queues and subscriptions. A subscription has only some of them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Properties {
    dead_lettering_on_message_expiration: bool,
    #[serde(deserialize_with = "time_to_live")]
    default_message_time_to_live: Duration,
    #[serde(deserialize_with = "duplicate_window")]
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
    #[serde(rename = "MaxSizeInMegabytes", deserialize_with = "megabytes")]
    max_size: u64,
    #[serde(rename = "MaxMessageSizeInKilobytes", deserialize_with = "kilobytes")]
    max_message_size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct TopicProperties {
    #[serde(deserialize_with = "time_to_live")]
    default_message_time_to_live: Duration,
    #[serde(deserialize_with = "duplicate_window")]
    duplicate_detection_history_time_window: Duration,
    requires_duplicate_detection: bool,
    #[serde(rename = "MaxSizeInMegabytes", deserialize_with = "megabytes")]
    max_size: u64,
    #[serde(rename = "MaxMessageSizeInKilobytes", deserialize_with = "kilobytes")]
    max_message_size: u64,
}

/// The defaults of the official emulator.
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
            max_size: 1 << 30,
            max_message_size: 256 << 10,
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
            max_size: queue.max_size,
            max_message_size: queue.max_message_size,
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
            // As in Azure, a subscription without rules receives everything.
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
            partitioned: false,
            forward_to: self.forward_to.filter(|to| !to.is_empty()),
            forward_dead_lettered_messages_to: self
                .forward_dead_lettered_messages_to
                .filter(|to| !to.is_empty()),
            max_size: self.max_size,
            max_message_size: self.max_message_size,
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
            max_size: self.max_size,
            max_message_size: self.max_message_size,
            ..Settings::default()
        }
    }
}

fn limited(time_to_live: Duration) -> Option<Duration> {
    (!duration::is_for_ever(time_to_live)).then_some(time_to_live)
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(text.trim()).ok_or_else(|| {
        de::Error::custom(format!("'{text}' is no ISO 8601 duration such as PT30S, PT1M or P14D"))
    })
}

/// Parses a duration for which `check` holds.
fn checked<'de, D: Deserializer<'de>>(
    deserializer: D,
    check: fn(Duration) -> Result<(), String>,
) -> Result<Duration, D::Error> {
    let duration = read_duration(deserializer)?;
    check(duration).map_err(de::Error::custom)?;
    Ok(duration)
}

fn time_to_live<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    checked(deserializer, limits::time_to_live)
}

fn duplicate_window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    checked(deserializer, limits::duplicate_window)
}

fn lock_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    checked(deserializer, limits::lock_duration)
}

fn delivery_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = u32::deserialize(deserializer)?;
    limits::delivery_count(count).map_err(de::Error::custom)?;
    Ok(count)
}

/// Parses megabytes into bytes.
fn megabytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?.saturating_mul(1 << 20);
    limits::size(bytes).map_err(de::Error::custom)?;
    Ok(bytes)
}

/// Parses kilobytes into bytes.
fn kilobytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let bytes = u64::deserialize(deserializer)?.saturating_mul(1 << 10);
    limits::message_size(bytes).map_err(de::Error::custom)?;
    Ok(bytes)
}
