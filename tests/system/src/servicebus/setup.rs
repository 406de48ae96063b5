//! How the consumer and its entities are set up.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use redrive::servicebus::{Options, ServiceBus, Transactions};
use redrive_servicebus_emulator::{Builder, Emulator, Settings};

/// The queue of every test.
pub const QUEUE: &str = "orders";
/// Where parked messages are moved to, in setups that have such a queue.
pub const PARKING_QUEUE: &str = "orders-parking";
/// After this many deliveries the broker itself dead-letters: more than any test comes to.
const MAX_DELIVERY_COUNT: u32 = 2000;
/// An operator who waits in vain believes that somebody else has the message. It comes at once, but for a machine that stands
/// still.
const MAX_WAIT_TIME: Duration = Duration::from_secs(100);
/// What is in flight stays there when a test puts the clock forward.
const LOCK: Duration = Duration::from_secs(300);

/// Whether there are transactions, and where parked messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Copies are stored and their originals completed in one transaction.
    pub transactions: bool,
    /// Parked messages go to a queue of their own; else they are marked in the dead-letter queue.
    pub parking_queue: bool,
}

impl Setup {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self { transactions: true, parking_queue: false },
        Self { transactions: true, parking_queue: true },
        Self { transactions: false, parking_queue: false },
        Self { transactions: false, parking_queue: true },
    ];

    /// Its word among the arguments of a worker.
    #[must_use]
    pub fn word(self) -> &'static str {
        match (self.transactions, self.parking_queue) {
            (true, false) => "transactions",
            (true, true) => "transactions+parking-queue",
            (false, false) => "no-transactions",
            (false, true) => "no-transactions+parking-queue",
        }
    }

    /// The setup of this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setup| setup.word() == word)
    }

    /// The options of a consumer of the queue.
    pub fn options(self) -> Options {
        let options = ServiceBus::options(QUEUE)
            .max_delivery_count(MAX_DELIVERY_COUNT)
            .max_wait_time(MAX_WAIT_TIME)
            .transactions(if self.transactions { Transactions::Auto } else { Transactions::Off });
        if self.parking_queue { options.parking_queue(PARKING_QUEUE) } else { options }
    }

    /// How the queues behave.
    #[must_use]
    pub fn settings() -> Settings {
        let mut settings = Settings::default();
        settings.max_delivery_count = MAX_DELIVERY_COUNT;
        settings.lock_duration = LOCK;
        settings
    }

    /// An emulator with the queues, which behave like this.
    pub fn builder(settings: Settings) -> Builder {
        Emulator::builder().queue(QUEUE, settings.clone()).queue(PARKING_QUEUE, settings)
    }

    /// An emulator with the queues; with a file, what is in it outlives a crash.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn emulator(state_file: Option<&Path>) -> Emulator {
        let mut builder = Self::builder(Self::settings());
        if let Some(path) = state_file {
            builder = builder.state_file(path);
        }
        builder.start().await.expect("the emulator starts")
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.transactions { "with transactions" } else { "without transactions" })?;
        f.write_str(if self.parking_queue { ", parked by a copy" } else { ", parked by a mark" })
    }
}
