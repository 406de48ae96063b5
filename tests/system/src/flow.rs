//! The ways of a message out of a consumer's hands, step by step: what may be left when the process dies after a step.

use std::ops::RangeInclusive;
use std::time::Duration;

use redrive::Message;
use redrive::rabbitmq::QueueType;
use redrive_brokers::Version;
use redrive_core::fail_point::FailPoint;

use crate::{Combination, Delays};

/// Long enough to find the copy on its delay queue.
pub const WAIT: Duration = Duration::from_secs(1);

/// On Service Bus, where a test puts the clock forward: long enough for one that is held up to find the copy still waiting.
pub const WAIT_ON_SERVICEBUS: Duration = Duration::from_secs(60);

/// One of these ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The handler succeeds.
    Ack,
    /// It fails the first time.
    Retry,
    /// It fails for good.
    DeadLetter,
    /// It fails for good, and the message is too large to be copied: the broker moves it.
    Reject,
    /// The message is given back, uncharged.
    Release,
    /// The handler parks it.
    Park,
    /// An operator sends it back from the shelf.
    Redrive,
    /// An operator parks it.
    ParkByHand,
    /// An operator discards it.
    Discard,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Ack,
        Self::Retry,
        Self::DeadLetter,
        Self::Reject,
        Self::Release,
        Self::Park,
        Self::Redrive,
        Self::ParkByHand,
        Self::Discard,
    ];

    /// Those that are cut in every combination of RabbitMQ.
    pub const ON_RABBITMQ: [Self; 6] =
        [Self::Ack, Self::Retry, Self::DeadLetter, Self::Reject, Self::Release, Self::Redrive];

    /// Those that are cut in one of them: they are the others with another queue.
    pub const ON_ONE_RABBITMQ: [Self; 3] = [Self::Park, Self::ParkByHand, Self::Discard];

    /// Its word, with which the ids of its messages begin.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::Retry => "retry",
            Self::DeadLetter => "dead-letter",
            Self::Reject => "reject",
            Self::Release => "release",
            Self::Park => "park",
            Self::Redrive => "redrive",
            Self::ParkByHand => "park-by-hand",
            Self::Discard => "discard",
        }
    }

    /// That of the message with this id.
    ///
    /// # Panics
    /// When it is of none.
    #[must_use]
    pub fn of(id: &str) -> Self {
        let word = id.split(':').next();
        Self::ALL.into_iter().find(|flow| Some(flow.name()) == word).expect("an id that begins with a flow")
    }

    /// Whether an operator does it, and no consumer.
    #[must_use]
    pub fn by_hand(self) -> bool {
        matches!(self, Self::Redrive | Self::ParkByHand | Self::Discard)
    }

    /// A message that goes this way, and dies at this point.
    #[must_use]
    pub fn message(self, point: FailPoint) -> Message {
        let message = Message::new("x").with_id(format!("{}:{}", self.name(), point.name()));
        match self {
            // There is room for it, and for nothing more.
            Self::Reject => message.with_header("large", "l".repeat(114_600)),
            _ => message,
        }
    }

    /// How many copies of the message may be with the broker when the process died at this point; `None`: this way does not
    /// come by it.
    #[must_use]
    pub fn left(self, point: FailPoint, on: Combination) -> Option<RangeInclusive<usize>> {
        // Where a return is counted, the message is given back as a copy from the second time on.
        let by_copy = (on.version, on.queue_type) == (Version::V3_10, QueueType::Quorum);
        let in_place = self == Self::Retry && on.delays == Delays::Native;
        // A classic queue moves nothing surely: a copy as it arrived is stored instead.
        let by_broker = self == Self::Reject && on.queue_type == QueueType::Quorum;
        let moves = match self {
            Self::Retry => !in_place,
            Self::Reject => !by_broker,
            Self::DeadLetter | Self::Redrive | Self::Park | Self::ParkByHand => true,
            Self::Release => by_copy,
            Self::Ack | Self::Discard => false,
        };
        let operator = self.by_hand();
        match point {
            FailPoint::Received | FailPoint::Decided => (!operator).then_some(1..=1),
            FailPoint::Taken => operator.then_some(1..=1),
            FailPoint::CopyHandedOver => moves.then_some(1..=2),
            FailPoint::CopyConfirmed => moves.then_some(2..=2),
            FailPoint::AckHandedOver | FailPoint::AckFlushed => match self {
                // Handled: it may be gone.
                Self::Ack => Some(0..=1),
                Self::Discard if point == FailPoint::AckHandedOver => Some(1..=1),
                Self::Discard => Some(0..=1),
                _ => moves.then_some(1..=2),
            },
            // A consumer does not wait for that.
            FailPoint::AckWritten if self == Self::Discard => Some(0..=1),
            FailPoint::AckWritten => operator.then_some(1..=2),
            FailPoint::NackWritten => None,
            FailPoint::NackHandedOver | FailPoint::NackFlushed => {
                (in_place || by_broker || self == Self::Release).then_some(1..=1)
            }
        }
    }

    /// How often the message was handled before the process died.
    #[must_use]
    pub fn handled_before(self, point: FailPoint) -> usize {
        usize::from(self == Self::Ack && point != FailPoint::Received)
    }
}
