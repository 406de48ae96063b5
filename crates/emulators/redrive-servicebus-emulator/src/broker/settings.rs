//! Settings of a namespace, as the configuration and the builder produce them.

use std::time::Duration;

use super::rules::Rule;

/// All entities of a namespace.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Namespace {
    /// The queues.
    pub queues: Vec<Queue>,
    /// The topics with their subscriptions.
    pub topics: Vec<Topic>,
}

/// A queue and its name.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Queue {
    /// Compared without case.
    pub name: String,
    /// How it behaves.
    pub settings: Settings,
}

/// A topic, its name and its subscriptions.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Topic {
    /// Compared without case.
    pub name: String,
    /// Its settings. A topic uses the time to live, duplicate detection and the sizes.
    pub settings: Settings,
    /// Its subscriptions.
    pub subscriptions: Vec<Subscription>,
}

/// A subscription of a topic.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Subscription {
    /// Compared without case.
    pub name: String,
    /// How it behaves.
    pub settings: Settings,
    /// Its rules. It receives a message if any rule matches; without rules it receives nothing.
    pub rules: Vec<Rule>,
}

/// What clients may do with an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EntityStatus {
    /// Send and receive.
    #[default]
    Active,
    /// Nothing.
    Disabled,
    /// Only receive.
    SendDisabled,
    /// Only send.
    ReceiveDisabled,
}

/// Settings of a queue, a topic or a subscription. The defaults are those of Azure's Standard tier.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How long a received message stays locked. Azure allows up to 5 minutes. Default: 1 minute.
    pub lock_duration: Duration,
    /// Number of failed deliveries after which the broker itself dead-letters a message. Default: 10.
    pub max_delivery_count: u32,
    /// Maximum time to live of a message; a message may ask for less. Default: `None`, unlimited.
    pub default_time_to_live: Option<Duration>,
    /// Dead-letters expired messages instead of dropping them. Default: off.
    pub dead_letter_on_expiration: bool,
    /// Dead-letters a message on which a rule failed, instead of counting it as no match. For subscriptions. Default: on.
    pub dead_letter_on_filter_errors: bool,
    /// Drops a message whose id was seen within this time. Default: `None`, no detection.
    pub duplicate_detection: Option<Duration>,
    /// Requires that every message belongs to a session, and is received through it. Default: off.
    pub requires_session: bool,
    /// Spreads the messages over partitions: the highest 16 bits of a sequence number are its partition. Default: off.
    pub partitioned: bool,
    /// Forwards every message to this queue or topic.
    pub forward_to: Option<String>,
    /// Forwards every dead-lettered message to this queue or topic.
    pub forward_dead_lettered_messages_to: Option<String>,
    /// Maximum size of all messages together in bytes, including dead letters. Default: 1 GiB.
    pub max_size: u64,
    /// Maximum size of a message or a batch in bytes. Default: 256 KiB.
    pub max_message_size: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lock_duration: Duration::from_secs(60),
            max_delivery_count: 10,
            default_time_to_live: None,
            dead_letter_on_expiration: false,
            dead_letter_on_filter_errors: true,
            duplicate_detection: None,
            requires_session: false,
            partitioned: false,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            max_size: 1 << 30,
            max_message_size: 256 * 1024,
        }
    }
}

impl Namespace {
    /// Adds a queue.
    #[must_use]
    pub fn queue(mut self, name: impl Into<String>, settings: Settings) -> Self {
        self.queues.push(Queue { name: name.into(), settings });
        self
    }

    /// Adds a topic.
    #[must_use]
    pub fn topic(mut self, topic: Topic) -> Self {
        self.topics.push(topic);
        self
    }
}

impl Topic {
    /// A topic without subscriptions.
    #[must_use]
    pub fn new(name: impl Into<String>, settings: Settings) -> Self {
        Self { name: name.into(), settings, subscriptions: Vec::new() }
    }

    /// Adds a subscription that receives every message.
    #[must_use]
    pub fn subscription(self, name: impl Into<String>, settings: Settings) -> Self {
        self.subscription_with_rules(name, settings, vec![Rule::all()])
    }

    /// Adds a subscription that receives what its rules match.
    #[must_use]
    pub fn subscription_with_rules(
        mut self,
        name: impl Into<String>,
        settings: Settings,
        rules: Vec<Rule>,
    ) -> Self {
        self.subscriptions.push(Subscription { name: name.into(), settings, rules });
        self
    }
}
