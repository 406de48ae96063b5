//! The steps of each way out of a consumer's hands on Service Bus, and what may be left when it is cut after one of them.

use std::fmt;
use std::ops::RangeInclusive;

use redrive_core::fail_point::FailPoint;
use redrive_servicebus_emulator::{Effect, Fault, Step};

use super::place::Left;
use super::setup::{Kind, Setup};
use crate::flow::Flow;

/// Between which two steps a way is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Right after this one.
    At(FailPoint),
    /// After the broker has done this one, and before its answer.
    Unanswered(Step),
}

impl Cut {
    /// The fault that keeps the answer back. Operators look at the shelf first.
    #[must_use]
    pub fn fault(self, flow: Flow) -> Option<Fault> {
        const LOOKS: u32 = 2;
        match self {
            Self::At(_) => None,
            Self::Unanswered(Step::Request) if flow.by_hand() => {
                Some(Fault::new(Step::Request, Effect::LoseReply).after(LOOKS))
            }
            Self::Unanswered(step) => Some(Fault::new(step, Effect::LoseReply)),
        }
    }

    /// Where the message, and its copy, are when the broker has done what it does not answer.
    #[must_use]
    pub fn done(self, flow: Flow, setup: Setup) -> Left {
        let before = match flow.by_hand() {
            true => Left { shelf: 1, ..Left::default() },
            false => Left { work: 1, ..Left::default() },
        };
        // Only without transactions is a copy stored by itself.
        let kept = if self == Self::Unanswered(Step::Send) { before } else { Left::default() };
        match flow {
            Flow::Retry if setup.retries_in_place() => before,
            Flow::Retry => Left { waiting: 1, ..kept },
            Flow::DeadLetter => Left { shelf: 1, ..kept },
            Flow::Park | Flow::ParkByHand => Left { parked: 1, ..kept },
            Flow::Redrive => Left { work: 1, ..kept },
            Flow::Ack | Flow::Discard | Flow::Release | Flow::Reject => kept,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At(point) => point.name(),
            Self::Unanswered(Step::Send) => "copy-unanswered",
            Self::Unanswered(Step::Commit) => "commit-unanswered",
            Self::Unanswered(_) => "settlement-unanswered",
        })
    }
}

/// The cuts of a way, in the order of its steps, and how many copies of the message may be with the broker after each.
/// Nothing, where this way does not go otherwise in this setup than in another one.
#[must_use]
pub fn cuts(flow: Flow, setup: Setup) -> Vec<(Cut, RangeInclusive<usize>)> {
    use FailPoint as P;
    let rest = setup.kind == Kind::Rest;
    let copies = match flow {
        Flow::Retry => !setup.retries_in_place(),
        Flow::Redrive => true,
        Flow::Park | Flow::ParkByHand => setup.parking_queue || rest,
        Flow::DeadLetter => rest,
        Flow::Ack | Flow::Reject | Flow::Release | Flow::Discard => false,
    };
    if !is_its_own(flow, setup, copies) {
        return Vec::new();
    }
    let at = |point, left| (Cut::At(point), left);
    let unanswered = |step, left| (Cut::Unanswered(step), left);
    let begin = match flow.by_hand() {
        true => vec![at(P::Taken, 1..=1)],
        false => vec![at(P::Received, 1..=1), at(P::Decided, 1..=1)],
    };
    let rest = match flow {
        // It is given back by a request, and the second time as a copy: that also counts.
        Flow::Release if rest => {
            vec![at(P::NackHandedOver, 1..=1), at(P::CopyConfirmed, 2..=2), at(P::AckWritten, 1..=1)]
        }
        _ if rest => vec![
            unanswered(Step::Send, 2..=2),
            at(P::CopyConfirmed, 2..=2),
            unanswered(Step::Settle, 1..=1),
            at(P::AckWritten, 1..=1),
        ],
        _ if copies && setup.transactions => vec![
            at(P::CopyHandedOver, 1..=1),
            at(P::AckHandedOver, 1..=1),
            at(P::CopyConfirmed, 1..=1),
            unanswered(Step::Commit, 1..=1),
            at(P::AckWritten, 1..=1),
        ],
        _ if copies => vec![
            at(P::CopyHandedOver, 1..=2),
            unanswered(Step::Send, 2..=2),
            at(P::CopyConfirmed, 2..=2),
            unanswered(Step::Request, 1..=1),
            at(P::AckWritten, 1..=1),
        ],
        Flow::Ack | Flow::Discard => {
            vec![at(P::AckHandedOver, 1..=1), unanswered(Step::Request, 0..=0), at(P::AckWritten, 0..=0)]
        }
        Flow::Release => vec![at(P::NackHandedOver, 1..=1)],
        // Nothing is requested while the lock is held. Given back, the message is redelivered at once, answered or not: the dying process
        // may handle it to its end.
        Flow::Retry if setup.kind == Kind::HeldLocks => {
            vec![at(P::NackHandedOver, 1..=1), at(P::NackWritten, 0..=1)]
        }
        _ => vec![at(P::NackHandedOver, 1..=1), unanswered(Step::Request, 1..=1), at(P::NackWritten, 1..=1)],
    };
    begin.into_iter().chain(rest).collect()
}

/// Whether this way goes otherwise in this setup than in those before it.
fn is_its_own(flow: Flow, setup: Setup, copies: bool) -> bool {
    let parks = matches!(flow, Flow::Park | Flow::ParkByHand);
    match setup.kind {
        // Where nothing is copied, transactions change nothing; a parking queue changes only what is parked.
        Kind::Queue => {
            (copies || setup.transactions) && (parks || !setup.parking_queue) && flow != Flow::Reject
        }
        Kind::Subscription => matches!(flow, Flow::Retry | Flow::Redrive),
        Kind::Sessions => matches!(flow, Flow::Ack | Flow::Retry | Flow::DeadLetter | Flow::Park),
        Kind::HeldLocks => flow == Flow::Retry,
        Kind::Rest => matches!(flow, Flow::Retry | Flow::DeadLetter | Flow::Release | Flow::Redrive),
    }
}
