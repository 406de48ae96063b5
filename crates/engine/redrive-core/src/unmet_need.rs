//! Why a broker cannot honour the needs of a consumer.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use humantime::format_duration;

use crate::text::plural;

/// A need that the broker cannot honour. `Display` is one sentence, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnmetNeed {
    /// Two retry policies are around one handler, and the outer one never acts. This concerns no broker, and no broker would reveal
    /// it.
    NestedPolicies {
        /// The queue that is consumed.
        queue: String,
        /// Waits of the policy that decides.
        inner: BTreeSet<Duration>,
        /// Waits of the policy that never acts.
        outer: BTreeSet<Duration>,
    },
    /// The retry policy asks for a longer wait than the broker can hold a message.
    WaitTooLong {
        /// The queue that is consumed.
        queue: String,
        /// The broker's name ([`Facts::system`](crate::transport::Facts::system)).
        system: &'static str,
        /// The longest wait of the policy.
        wait: Duration,
        /// The longest wait that is possible.
        longest: Duration,
    },
    /// The broker removes a message before the layers turn it away.
    DeliveryLimit {
        /// The queue that is consumed.
        queue: String,
        /// Deliveries after which the layers turn a message away.
        deliveries: u32,
        /// Deliveries after which the broker removes it.
        limit: u32,
    },
    /// The broker retries without copies, so that each attempt is a delivery, and removes a message before its last attempt.
    AttemptsAboveBroker {
        /// The queue that is consumed.
        queue: String,
        /// Attempts of the retry policy; [`u32::MAX`]: without end.
        attempts: u32,
        /// Deliveries after which the broker removes a message.
        limit: u32,
    },
    /// The broker retries without copies, so that each attempt is a delivery, and the layers turn a message away before its last
    /// attempt.
    AttemptsAboveLayers {
        /// The queue that is consumed.
        queue: String,
        /// Attempts of the retry policy; [`u32::MAX`]: without end.
        attempts: u32,
        /// Deliveries after which the layers turn a message away.
        limit: u32,
        /// True if nobody chose this limit: the layers stay below that of the broker.
        gives_way: bool,
    },
    /// A setting of the transport rules the need out.
    Setting {
        /// The queue that is consumed.
        queue: String,
        /// The setting to change, as it is spelled in code, such as `Options::retry_queue`.
        setting: &'static str,
        /// What it rules out, and what to do.
        sentence: String,
    },
}

impl fmt::Display for UnmetNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NestedPolicies { queue, inner, outer } => write!(
                f,
                "two retry policies are around one handler of queue `{queue}`: the inner one ({}) decides about every error, and \
                 the outer one ({}) never acts: remove one of them (`with_dead_letter_backoff`, `Backoff`)",
                waits_of(inner),
                waits_of(outer),
            ),
            Self::WaitTooLong { queue, system, wait, longest } => write!(
                f,
                "the retry policy asks for a wait of {}, but {system} can hold a message of queue `{queue}` for {} at most: lower \
                 the policy's cap or schedule",
                format_duration(*wait),
                format_duration(*longest),
            ),
            Self::DeliveryLimit { queue, deliveries, limit } => write!(
                f,
                "the layers turn a message of queue `{queue}` away after {}, but the broker takes it away itself at {limit}: raise \
                 the queue's delivery limit above {deliveries}, or lower the layers' limit (`poison_after`) below {limit}",
                plural(*deliveries, "delivery"),
            ),
            Self::AttemptsAboveBroker { queue, attempts, limit } => write!(
                f,
                "the retry policy tries a message of queue `{queue}` {}, and the broker, which retries without copies here, takes \
                 it away after it handed it out {limit} times: raise the queue's delivery limit, or lower the policy's attempts",
                times(*attempts),
            ),
            Self::AttemptsAboveLayers { queue, attempts, limit, gives_way } => write!(
                f,
                "the retry policy tries a message of queue `{queue}` {}, and the layers turn it away after {limit} deliveries, \
                 which include the retries here: raise {}, or lower the policy's attempts",
                times(*attempts),
                if *gives_way {
                    "the queue's delivery limit, below which the layers stay"
                } else {
                    "the layers' limit (`poison_after`)"
                },
            ),
            Self::Setting { sentence, .. } => f.write_str(sentence),
        }
    }
}

fn times(attempts: u32) -> String {
    match attempts {
        u32::MAX => "without end".to_owned(),
        attempts => format!("{attempts} times"),
    }
}

fn waits_of(policy: &BTreeSet<Duration>) -> String {
    /// Enough waits to recognize the policy.
    const SHOWN: usize = 5;
    if policy.is_empty() {
        return "without waits".to_owned();
    }
    let mut shown: Vec<_> =
        policy.iter().take(SHOWN).map(|&wait| format_duration(wait).to_string()).collect();
    if policy.len() > SHOWN {
        shown.push("…".to_owned());
    }
    format!("waits {}", shown.join(", "))
}
