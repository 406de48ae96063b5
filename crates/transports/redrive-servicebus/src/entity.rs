//! Queues and subscriptions, and the paths of their dead-letter queues.

use std::fmt;
use std::time::Duration;

/// The assumed duration of a lock if the broker does not report it: the shortest that Azure allows.
pub(crate) const ASSUMED_LOCK_DURATION: Duration = Duration::from_secs(5);

/// A queue, or a subscription of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Entity {
    /// A queue, by its name.
    Queue(String),
    /// A subscription.
    Subscription {
        /// The topic.
        topic: String,
        /// The subscription's name.
        name: String,
    },
}

impl Entity {
    /// Returns the queue with this name.
    #[must_use]
    pub fn queue(name: impl Into<String>) -> Self {
        Self::Queue(name.into())
    }

    /// Returns the subscription `name` of `topic`.
    #[must_use]
    pub fn subscription(topic: impl Into<String>, name: impl Into<String>) -> Self {
        Self::Subscription { topic: topic.into(), name: name.into() }
    }

    /// Returns the path, as in `orders` or `orders/Subscriptions/billing`.
    #[must_use]
    pub fn path(&self) -> String {
        self.to_string()
    }

    /// Returns the path of the dead-letter queue: the broker moves dead-lettered messages there.
    #[must_use]
    pub fn dead_letter_path(&self) -> String {
        format!("{self}/$DeadLetterQueue")
    }

    /// Returns the path of the transfer dead-letter queue: the broker moves messages there that it could not forward.
    #[must_use]
    pub fn transfer_dead_letter_path(&self) -> String {
        format!("{self}/$Transfer/$DeadLetterQueue")
    }
}

/// Returns true if this is the path of a dead-letter queue. The broker ignores case.
pub(crate) fn is_dead_letter_queue(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|last| last.eq_ignore_ascii_case("$DeadLetterQueue"))
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => f.write_str(name),
            Self::Subscription { topic, name } => write!(f, "{topic}/Subscriptions/{name}"),
        }
    }
}

/// Reads the name of a queue, or the path of a subscription: `TOPIC/Subscriptions/NAME`, in any case. Names of queues and topics
/// may contain slashes; those of subscriptions cannot.
impl From<&str> for Entity {
    fn from(path: &str) -> Self {
        let path = path.trim_matches('/');
        let mut parts = path.rsplitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), Some(word), Some(topic)) if word.eq_ignore_ascii_case("subscriptions") => {
                Self::subscription(topic, name)
            }
            _ => Self::queue(path),
        }
    }
}

impl From<String> for Entity {
    fn from(path: String) -> Self {
        Self::from(path.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_a_queue_or_the_path_of_a_subscription() {
        assert_eq!(Entity::from("orders"), Entity::queue("orders"));
        assert_eq!(Entity::from("shop/orders"), Entity::queue("shop/orders"));
        assert_eq!(Entity::from("orders/subscriptions/billing"), Entity::subscription("orders", "billing"));
        assert_eq!(Entity::from("/shop/a/SUBSCRIPTIONS/b"), Entity::subscription("shop/a", "b"));
        let subscription = Entity::subscription("orders", "billing");
        assert_eq!(Entity::from(subscription.path()), subscription);
    }

    #[test]
    fn what_belongs_to_it_lies_below_it() {
        assert_eq!(Entity::queue("q").dead_letter_path(), "q/$DeadLetterQueue");
        let subscription = Entity::subscription("t", "s");
        assert_eq!(subscription.dead_letter_path(), "t/Subscriptions/s/$DeadLetterQueue");
        assert_eq!(subscription.transfer_dead_letter_path(), "t/Subscriptions/s/$Transfer/$DeadLetterQueue");
        for path in [subscription.dead_letter_path(), subscription.transfer_dead_letter_path()] {
            assert!(is_dead_letter_queue(&path) && is_dead_letter_queue(&path.to_lowercase()), "{path}");
        }
        assert!(!is_dead_letter_queue("q") && !is_dead_letter_queue("$DeadLetterQueue/q"));
    }
}
