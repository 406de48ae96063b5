//! How the consumer and its entities are set up.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use redrive::servicebus::{Backend, Entity, Options, ServiceBus, Sessions, Transactions};
use redrive_servicebus_emulator::{Builder, Emulator, Settings, Topic};

use crate::flow::WAIT_ON_SERVICEBUS;

/// The queue of every test.
pub const QUEUE: &str = "orders";
/// Where parked messages are moved to, in setups that have such a queue.
pub const PARKING_QUEUE: &str = "orders-parking";
/// A queue that requires sessions.
const QUEUE_OF_SESSIONS: &str = "orders-in-sessions";
/// Where dead letters are moved to by REST.
pub(super) const DEAD_LETTER_QUEUE: &str = "orders-dead";
/// A subscription, with the queue through which its copies come back, and another one of its topic.
const TOPIC: &str = "shop";
const SUBSCRIPTION: &str = "shop/Subscriptions/orders";
const RETRY_QUEUE: &str = "orders-retry";
pub(super) const NEIGHBOUR: &str = "shop/Subscriptions/neighbour";
/// After this many deliveries the broker itself dead-letters: more than any test comes to.
const MAX_DELIVERY_COUNT: u32 = 2000;
/// An operator who waits in vain believes that somebody else has the message. It comes at once, but for a machine that stands
/// still.
const MAX_WAIT_TIME: Duration = Duration::from_secs(100);
/// What is in flight stays there when a test puts the clock forward.
const LOCK: Duration = Duration::from_secs(300);
/// What waits in this process waits by its clock.
const WAIT_IN_PLACE: Duration = Duration::from_millis(200);

/// What is consumed, whether there are transactions, and where parked messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What is consumed, and how.
    pub kind: Kind,
    /// Copies are stored and their originals completed in one transaction.
    pub transactions: bool,
    /// Parked messages go to a queue of their own; else they are marked in the dead-letter queue.
    pub parking_queue: bool,
}

/// What is consumed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A queue.
    Queue,
    /// A subscription with a retry queue.
    Subscription,
    /// A queue that requires sessions.
    Sessions,
    /// A queue; retries keep their locks.
    HeldLocks,
    /// A queue, by REST.
    Rest,
}

impl Setup {
    /// Those of a queue.
    pub const OF_QUEUES: [Self; 4] = [
        Self { kind: Kind::Queue, transactions: true, parking_queue: false },
        Self { kind: Kind::Queue, transactions: true, parking_queue: true },
        Self { kind: Kind::Queue, transactions: false, parking_queue: false },
        Self { kind: Kind::Queue, transactions: false, parking_queue: true },
    ];

    /// That of a subscription.
    pub const OF_SUBSCRIPTIONS: Self =
        Self { kind: Kind::Subscription, transactions: true, parking_queue: false };

    /// That of sessions; what is parked is copied within the session.
    pub const OF_SESSIONS: Self = Self { kind: Kind::Sessions, transactions: true, parking_queue: true };

    /// That of held locks.
    pub const OF_HELD_LOCKS: Self = Self { kind: Kind::HeldLocks, transactions: true, parking_queue: false };

    /// That of REST.
    pub const OF_REST: Self = Self { kind: Kind::Rest, transactions: false, parking_queue: false };

    /// Its word among the arguments of a worker.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.kind, self.transactions, self.parking_queue) {
            (Kind::Subscription, ..) => "subscription",
            (Kind::Sessions, ..) => "sessions",
            (Kind::HeldLocks, ..) => "held-locks",
            (Kind::Rest, ..) => "rest",
            (Kind::Queue, true, false) => "transactions",
            (Kind::Queue, true, true) => "transactions+parking-queue",
            (Kind::Queue, false, false) => "no-transactions",
            (Kind::Queue, false, true) => "no-transactions+parking-queue",
        }
    }

    /// The setup of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let others = [Self::OF_SUBSCRIPTIONS, Self::OF_SESSIONS, Self::OF_HELD_LOCKS, Self::OF_REST];
        Self::OF_QUEUES.into_iter().chain(others).find(|setup| setup.word() == word)
    }

    /// The options of a consumer.
    pub fn options(self) -> Options {
        let options = match self.kind {
            Kind::Queue => ServiceBus::options(QUEUE),
            Kind::Subscription => {
                ServiceBus::options(Entity::subscription(TOPIC, QUEUE)).retry_queue(RETRY_QUEUE)
            }
            Kind::Sessions => ServiceBus::options(QUEUE_OF_SESSIONS).sessions(Sessions::concurrent(1)),
            Kind::HeldLocks => ServiceBus::options(QUEUE).hold_lock_up_to(WAIT_IN_PLACE),
            Kind::Rest => ServiceBus::options(QUEUE)
                .backend(Backend::Rest)
                .dead_letter_queue(DEAD_LETTER_QUEUE)
                .poll_wait(Duration::from_secs(1))
                .concurrent_polls(1),
        };
        let options = options
            .max_delivery_count(MAX_DELIVERY_COUNT)
            .max_wait_time(MAX_WAIT_TIME)
            .transactions(if self.transactions { Transactions::Auto } else { Transactions::Off });
        if self.parking_queue { options.parking_queue(PARKING_QUEUE) } else { options }
    }

    /// What the consumer reads.
    #[must_use]
    pub fn sources(self) -> &'static [&'static str] {
        match self.kind {
            Kind::Queue | Kind::HeldLocks | Kind::Rest => &[QUEUE],
            Kind::Subscription => &[SUBSCRIPTION, RETRY_QUEUE],
            Kind::Sessions => &[QUEUE_OF_SESSIONS],
        }
    }

    /// Whether a retry is the message itself, and no copy.
    #[must_use]
    pub fn retries_in_place(self) -> bool {
        matches!(self.kind, Kind::Sessions | Kind::HeldLocks)
    }

    /// How long a retry waits.
    #[must_use]
    pub fn wait(self) -> Duration {
        if self.retries_in_place() { WAIT_IN_PLACE } else { WAIT_ON_SERVICEBUS }
    }

    /// How the queues behave.
    #[must_use]
    pub fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.max_delivery_count = MAX_DELIVERY_COUNT;
        settings.lock_duration = LOCK;
        settings
    }

    /// An emulator with everything that is consumed, which behaves like this.
    pub fn builder(settings: &Settings) -> Builder {
        let mut in_sessions = settings.clone();
        in_sessions.requires_session = true;
        let topic = Topic::new(TOPIC, settings.clone())
            .subscription(QUEUE, settings.clone())
            .subscription("neighbour", settings.clone());
        [QUEUE, PARKING_QUEUE, RETRY_QUEUE, DEAD_LETTER_QUEUE]
            .into_iter()
            .fold(Emulator::builder(), |builder, name| builder.queue(name, settings.clone()))
            .queue(QUEUE_OF_SESSIONS, in_sessions)
            .topic(topic)
    }

    /// The same; with a file, what is in it outlives a crash.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn emulator(self, state_file: Option<&Path>) -> Emulator {
        let mut builder = Self::builder(&Self::settings());
        if let Some(path) = state_file {
            builder = builder.state_file(path);
        }
        if self.kind == Kind::Rest {
            builder = builder.listen_http("127.0.0.1:0");
        }
        builder.start().await.expect("the emulator starts")
    }

    /// What clients connect with.
    ///
    /// # Panics
    /// When the emulator is that of another setup.
    #[must_use]
    pub fn connection_string(self, emulator: &Emulator) -> String {
        match self.kind {
            Kind::Rest => emulator.http_connection_string().expect("it listens for HTTP"),
            _ => emulator.connection_string(),
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != Kind::Queue {
            return f.write_str(self.word());
        }
        f.write_str(if self.transactions { "with transactions" } else { "without transactions" })?;
        f.write_str(if self.parking_queue { ", parked by a copy" } else { ", parked by a mark" })
    }
}
