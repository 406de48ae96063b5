//! The delay modes, as the fault tests configure them.

use std::time::Duration;

use lapin::ExchangeKind;
use lapin::options::ExchangeDeclareOptions;
use lapin::types::FieldTable;
use redrive::rabbitmq::{Native, Options, QueueType, SingleQueue, Staged};

use crate::fate;
use crate::flow;
use crate::rabbit::Rabbit;

/// A delay mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delays {
    /// One delay queue for each wait.
    Ladder,
    /// The broker delays failed messages itself, without copies.
    Native,
    /// One delay queue for all waits.
    SingleQueue,
    /// Delay queues with given names, and back through an exchange.
    Staged,
}

impl Delays {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ladder, Self::Native, Self::SingleQueue, Self::Staged];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ladder => "ladder",
            Self::Native => "native",
            Self::SingleQueue => "single-queue",
            Self::Staged => "staged",
        }
    }

    /// That with this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|delays| delays.word() == word)
    }

    /// Returns options with this mode. Waiting messages are in quorum queues, which lose nothing.
    pub fn set(self, options: Options, queue: &str) -> Options {
        match self {
            Self::Ladder => options,
            // As long as the longest wait: each retry stays in place.
            Self::Native => options.delay(Native::between(flow::WAIT, flow::WAIT)),
            Self::SingleQueue => options.delay(SingleQueue::durable()).retry_queue_type(QueueType::Quorum),
            Self::Staged => options.delay(
                stages().fold(Staged::back_to(main_exchange(queue)).declared(true), |staged, wait| {
                    staged.stage(stage(queue, wait), wait)
                }),
            ),
        }
    }

    /// Declares what another team would declare for this mode, before the first consumer starts.
    ///
    /// # Panics
    /// If that is not possible.
    pub async fn prepare(self, url: &str, queue: &str) {
        if self == Self::Staged {
            let rabbit = Rabbit::connect(url).await;
            let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            let (name, none) = (main_exchange(queue).into(), FieldTable::default());
            let channel = rabbit.channel().await;
            let declared = channel.exchange_declare(name, ExchangeKind::Topic, options, none);
            declared.await.expect("the main exchange is declared");
            rabbit.close().await;
        }
    }

    /// Returns the queues where copies wait; none if messages wait in the work queue.
    #[must_use]
    pub fn queues(self, queue: &str) -> Vec<String> {
        match self {
            Self::Ladder => fate::rungs(queue).collect(),
            Self::Native => Vec::new(),
            Self::SingleQueue => vec![format!("{queue}--dead-letters")],
            Self::Staged => stages().map(|wait| stage(queue, wait)).collect(),
        }
    }

    /// The queue in which a copy of [`flow`] waits.
    #[must_use]
    pub fn queue_of_flows(self, queue: &str) -> Option<String> {
        match self {
            Self::Ladder => Some(format!("{queue}--retry-{}ms", flow::WAIT.as_millis())),
            _ => self.queues(queue).pop(),
        }
    }

    /// The dead-letter shelf.
    #[must_use]
    pub fn shelf(self, queue: &str) -> String {
        format!("{queue}--{}", if self == Self::SingleQueue { "failed" } else { "dead-letters" })
    }

    /// Maximum time for which a message may be neither ready nor in flight, nor in a delay queue.
    #[must_use]
    pub fn unseen_for(self) -> Duration {
        if self == Self::Native { flow::WAIT } else { Duration::ZERO }
    }

    /// Returns true if a lost connection, and the death of a process, cost the messages in flight an attempt.
    #[must_use]
    pub fn charges_interruptions(self) -> bool {
        self == Self::Native
    }

    /// The exchanges that are there for a queue.
    #[must_use]
    pub fn exchanges(self, queue: &str) -> Vec<String> {
        match self {
            Self::Ladder | Self::Native => Vec::new(),
            Self::SingleQueue => ["retry", "backoff"].map(|name| format!("{queue}--{name}")).to_vec(),
            Self::Staged => stages().map(|wait| stage(queue, wait)).chain([main_exchange(queue)]).collect(),
        }
    }
}

fn main_exchange(queue: &str) -> String {
    format!("{queue}.main")
}

fn stages() -> impl Iterator<Item = Duration> {
    fate::WAITS.into_iter().chain([flow::WAIT])
}

fn stage(queue: &str, wait: Duration) -> String {
    format!("{queue}.wait.{}", wait.as_millis())
}
