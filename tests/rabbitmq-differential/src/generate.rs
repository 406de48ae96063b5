//! Makes scenarios from a seed. What is rare on real systems is rare here, except where it decides what becomes of a message.

use crate::scenario::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use redrive_brokers::Version;

/// What scenarios are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Combination {
    /// The version of RabbitMQ.
    pub version: Version,
    /// The type of most of the queues.
    pub kind: Kind,
}

impl std::fmt::Display for Combination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.kind == Kind::Classic { "classic" } else { "quorum" };
        write!(f, "{} {kind}", self.version)
    }
}

/// The scenario of a seed: always the same for the same combination.
///
/// # Panics
/// Never: no strategy here refuses a value.
#[must_use]
pub fn scenario(combination: Combination, seed: u64) -> Scenario {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8] = u8::from(combination.kind == Kind::Quorum);
    bytes[9] = u8::from(combination.version == Version::V4_3);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    any_scenario(combination).new_tree(&mut runner).expect("no strategy refuses a value").current()
}

fn any_scenario(combination: Combination) -> impl Strategy<Value = Scenario> {
    (0..3_usize, 1..5_usize).prop_flat_map(move |(exchanges, queues)| {
        let size = Size { exchanges, queues, combination };
        (
            vec(exchange(size), exchanges..=exchanges),
            prop_oneof![3 => vec(policy(size), 0..=0), 1 => vec(policy(size), 1..3)],
            vec(queue(size), queues..=queues),
            vec(binding(size), exchanges * 2..=exchanges * 4),
            groups(size),
        )
            .prop_map(|(exchanges, policies, queues, bindings, steps)| {
                without_loops(Scenario { exchanges, policies, queues, bindings, steps })
            })
    })
}

/// RabbitMQ 4.3 does not answer any more for a queue that has more delayed messages than its limit allows, and drops its head: a scenario
/// has limits or delays.
fn without_loops(mut scenario: Scenario) -> Scenario {
    let set_later = scenario.steps.iter_mut().filter_map(|step| match step {
        Step::SetPolicy { policy, .. } => Some(&mut policy.definition),
        _ => None,
    });
    let queues = scenario.queues.iter_mut().map(|queue| &mut queue.arguments);
    let policies = scenario.policies.iter_mut().map(|policy| &mut policy.definition);
    let mut all: Vec<_> = queues.chain(policies).chain(set_later).collect();
    let limits =
        |argument: &Argument| matches!(argument, Argument::MaxLength(_) | Argument::MaxLengthBytes(_));
    if all.iter().any(|arguments| arguments.iter().any(limits)) {
        for arguments in &mut all {
            arguments.retain(|argument| !matches!(argument, Argument::RetryType(_)));
        }
    }
    scenario
}

#[derive(Debug, Clone, Copy)]
struct Size {
    exchanges: usize,
    queues: usize,
    combination: Combination,
}

impl Size {
    fn quorum(self) -> bool {
        self.combination.kind == Kind::Quorum
    }
}

/// A few steps, a wait, a few steps, …: the steps between two waits must be quick.
fn groups(size: Size) -> impl Strategy<Value = Vec<Step>> {
    let group = (vec(step(size), 2..6).prop_map(|steps| steps.concat()), 1..4_u8);
    (vec(publish(size), 2..6), vec(group, 2..5)).prop_map(|(first, groups)| {
        let mut steps: Vec<_> = first.into_iter().map(Step::Publish).collect();
        for (group, ticks) in groups {
            steps.extend(group);
            steps.push(Step::Wait { ticks });
        }
        steps
    })
}

/// A value with this probability, which may be 0.
fn maybe<T: std::fmt::Debug + Clone + 'static>(
    probability: f64,
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Option<T>> {
    (chance(probability), value).prop_map(|(there, value)| there.then_some(value)).boxed()
}

/// True with this probability, which may be 0.
fn chance(probability: f64) -> BoxedStrategy<bool> {
    if probability > 0.0 { prop::bool::weighted(probability).boxed() } else { Just(false).boxed() }
}

fn exchange(size: Size) -> impl Strategy<Value = Exchange> {
    let kind = prop_oneof![
        4 => Just(ExchangeKind::Direct),
        2 => Just(ExchangeKind::Fanout),
        2 => Just(ExchangeKind::Topic),
        1 => Just(ExchangeKind::Headers),
    ];
    (kind, maybe(0.15, target(size)), chance(0.05)).prop_map(|(kind, alternate, internal)| Exchange {
        kind,
        alternate,
        internal,
    })
}

fn binding(size: Size) -> impl Strategy<Value = Binding> {
    let destination = prop_oneof![
        6 => (0..size.queues).prop_map(Destination::Queue),
        1 => (0..size.exchanges.max(1)).prop_map(Destination::Exchange),
    ];
    let pattern =
        prop_oneof![3 => key(size).prop_map(Pattern::Key), 1 => (0..4_usize).prop_map(Pattern::Topic)];
    let matching = prop_oneof![
        4 => Just(Matching::None), 2 => Just(Matching::All), 1 => Just(Matching::AllOfMore), 1 => Just(Matching::Any)
    ];
    (0..size.exchanges.max(1), destination, pattern, matching).prop_map(
        |(source, destination, pattern, matching)| Binding { source, destination, pattern, matching },
    )
}

fn queue(size: Size) -> impl Strategy<Value = Queue> {
    // Among quorum queues a classic one now and then: dead letters cross.
    let quorum = if size.quorum() { 0.85 } else { 0.0 };
    chance(quorum).prop_flat_map(move |quorum| {
        let kind = if quorum { Kind::Quorum } else { Kind::Classic };
        arguments(size, kind, false).prop_map(move |arguments| Queue { kind, arguments })
    })
}

fn policy(size: Size) -> impl Strategy<Value = Policy> {
    let kind = size.combination.kind;
    (maybe(0.7, 0..size.queues), 0..3_u8, arguments(size, kind, true))
        .prop_filter("a policy sets something", |(_, _, definition)| !definition.is_empty())
        .prop_map(|(queue, priority, definition)| Policy { queue, priority, definition })
}

/// The arguments of a queue, or the keys of a policy.
fn arguments(size: Size, kind: Kind, policy: bool) -> BoxedStrategy<Vec<Argument>> {
    let dead = maybe(0.85, dead_letters(size));
    let ttl = maybe(0.4, deadline());
    let most = maybe(
        0.25,
        (
            prop_oneof![4 => (0..4_u32).prop_map(Argument::MaxLength), 1 => (0..60_u32).prop_map(Argument::MaxLengthBytes)],
            maybe(0.6, overflow(kind)),
        ),
    );
    let quorum = kind == Kind::Quorum;
    let new = size.combination.version == Version::V4_3;
    let limit = maybe(
        if quorum { 0.35 } else { 0.0 },
        prop_oneof![6 => 0..4_i64, 1 => Just(-1_i64)].prop_map(Argument::DeliveryLimit),
    );
    let at_least_once = chance(if quorum && !policy { 0.1 } else { 0.0 });
    let priority =
        maybe(if quorum || policy { 0.0 } else { 0.15 }, (1..10_u8).prop_map(Argument::MaxPriority));
    let alone = chance(if policy { 0.0 } else { 0.07 });
    let retry = maybe(
        if quorum && new { 0.2 } else { 0.0 },
        (
            prop_oneof![Just(RetryType::All), Just(RetryType::Failed), Just(RetryType::Returned)],
            delay(),
            maybe(0.5, delay()),
        ),
    );
    let expires = maybe(if quorum || policy { 0.0 } else { 0.05 }, deadline().prop_map(Argument::Expires));
    (dead, ttl, most, limit, at_least_once, priority, alone, retry, expires)
        .prop_map(|(dead, ttl, most, limit, at_least_once, priority, alone, retry, expires)| {
            let mut arguments = Vec::new();
            let dies = dead.is_some();
            if let Some((target, key)) = dead {
                arguments.push(Argument::DeadLetterExchange(target));
                arguments.extend(key.map(Argument::DeadLetterKey));
            }
            arguments.extend(ttl.map(Argument::MessageTtl));
            if let Some((most, overflow)) = most {
                arguments.push(most);
                if !at_least_once {
                    arguments.extend(overflow.map(Argument::Overflow));
                }
            }
            if at_least_once && dies {
                arguments.extend([Argument::AtLeastOnce, Argument::Overflow(Overflow::RejectPublish)]);
            }
            arguments.extend(limit);
            arguments.extend(priority);
            if alone {
                arguments.push(Argument::SingleActiveConsumer);
            }
            if let Some((which, min, max)) = retry {
                arguments.extend([Argument::RetryType(which), Argument::RetryMin(min)]);
                arguments.extend(max.map(Argument::RetryMax));
            }
            arguments.extend(expires);
            arguments
        })
        .boxed()
}

/// Most dead letters arrive somewhere: those that are lost show little.
fn dead_letters(size: Size) -> BoxedStrategy<(Target, Option<Key>)> {
    let queue = (0..size.queues).prop_map(|queue| (Target::Default, Some(Key::Queue(queue))));
    let exchange = (target(size), maybe(0.5, key(size)));
    prop_oneof![3 => queue, 3 => exchange].boxed()
}

fn overflow(kind: Kind) -> BoxedStrategy<Overflow> {
    match kind {
        Kind::Classic => prop_oneof![
            Just(Overflow::DropHead),
            Just(Overflow::RejectPublish),
            Just(Overflow::RejectPublishDlx)
        ]
        .boxed(),
        Kind::Quorum => prop_oneof![Just(Overflow::DropHead), Just(Overflow::RejectPublish)].boxed(),
    }
}

/// Between two ticks: one hop of a chain of three ends between them, too.
fn deadline() -> impl Strategy<Value = Tenths> {
    (0..3_u32).prop_map(|ticks| Tenths(10 * ticks + 2))
}

/// Between two ticks, too, and apart from the deadlines: a delay begins later than they do.
fn delay() -> impl Strategy<Value = Tenths> {
    (0..3_u32).prop_map(|ticks| Tenths(10 * ticks + 4))
}

fn target(size: Size) -> BoxedStrategy<Target> {
    if size.exchanges == 0 {
        return prop_oneof![15 => Just(Target::Default), 1 => Just(Target::Missing)].boxed();
    }
    let own = (0..size.exchanges).prop_map(Target::Own);
    prop_oneof![7 => Just(Target::Default), 11 => own, 1 => Just(Target::Missing)].boxed()
}

fn key(size: Size) -> impl Strategy<Value = Key> {
    prop_oneof![4 => (0..size.queues).prop_map(Key::Queue), 2 => (0..3_usize).prop_map(Key::Word)]
}

fn publish(size: Size) -> impl Strategy<Value = Publish> {
    // Most messages go straight to a queue: an unroutable one shows little.
    let place = prop_oneof![
        7 => (Just(Target::Default), (0..size.queues).prop_map(Key::Queue)),
        5 => (target(size).prop_map(|target| if target == Target::Missing { Target::Default } else { target }), key(size)),
        1 => (target(size), key(size)),
    ];
    let dress = prop_oneof![
        6 => Just(Dress::Plain), 2 => Just(Dress::Full), 1 => Just(Dress::Disguised), 2 => Just(Dress::AsReceived)
    ];
    let forged = (
        0..size.queues,
        prop_oneof![Just(Reason::Rejected), Just(Reason::Expired), Just(Reason::Maxlen)],
        1..9_i64,
    )
        .prop_map(|(queue, reason, count)| Forged { queue, reason, count });
    (
        place,
        any::<bool>(),
        dress,
        maybe(0.2, prop_oneof![0..12_u8, Just(255)]),
        maybe(0.3, prop_oneof![8 => deadline(), 1 => Just(Tenths(0))]),
        prop_oneof![7 => vec(key(size), 0..=0), 1 => vec(key(size), 1..3)],
        prop_oneof![8 => vec(key(size), 0..=0), 1 => vec(key(size), 1..3)],
        maybe(0.08, forged),
        0..40_usize,
    )
        .prop_map(|((exchange, key), mandatory, dress, priority, expiration, cc, bcc, death, size)| {
            Publish { exchange, key, mandatory, dress, priority, expiration, cc, bcc, death, size }
        })
}

fn settle() -> impl Strategy<Value = Settle> {
    prop_oneof![
        2 => Just(Settle::Ack),
        3 => Just(Settle::Nack { requeue: false }),
        2 => Just(Settle::Nack { requeue: true }),
        3 => Just(Settle::Reject { requeue: false }),
        2 => Just(Settle::Reject { requeue: true }),
    ]
}

/// One step, or a few that belong together.
fn step(size: Size) -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![40 => single(size).prop_map(|step| vec![step]), 1 => transaction(size)]
}

fn transaction(size: Size) -> impl Strategy<Value = Vec<Step>> {
    (0..CHANNELS).prop_flat_map(move |channel| {
        let settles = (0..3_usize, settle(), chance(0.2))
            .prop_map(move |(which, how, multiple)| Step::Settle { channel, which, how, multiple });
        let gets = (0..size.queues).prop_map(move |queue| Step::Get { channel, queue, no_ack: false });
        let publishes = publish(size).prop_map(move |publish| Step::TxPublish { channel, publish });
        let end = prop_oneof![
            2 => Just(Step::TxCommit { channel }),
            2 => Just(Step::TxRollback { channel }),
            1 => Just(Step::Close { channel }),
        ];
        (vec(prop_oneof![publishes, gets, settles], 1..4), end).prop_map(move |(inner, end)| {
            let mut steps = vec![Step::TxSelect { channel }];
            steps.extend(inner);
            steps.push(end);
            steps
        })
    })
}

fn single(size: Size) -> impl Strategy<Value = Step> {
    let channel = 0..CHANNELS;
    let queue = 0..size.queues;
    let settles = (channel.clone(), 0..3_usize, settle(), chance(0.2))
        .prop_map(|(channel, which, how, multiple)| Step::Settle { channel, which, how, multiple });
    let gets = (channel.clone(), queue.clone(), chance(0.1)).prop_map(|(channel, queue, no_ack)| Step::Get {
        channel,
        queue,
        no_ack,
    });
    let consumes = (
        channel.clone(),
        queue.clone(),
        prop_oneof![1 => Just(0_u16), 3 => 1..4_u16],
        maybe(0.1, -1..3_i32),
        chance(0.05),
        chance(0.1),
    )
        .prop_map(|(channel, queue, prefetch, priority, exclusive, no_ack)| Step::Consume {
            channel,
            queue,
            prefetch,
            priority,
            exclusive,
            no_ack,
        });
    prop_oneof![
        14 => publish(size).prop_map(Step::Publish),
        12 => gets,
        10 => consumes,
        26 => settles,
        6 => seldom(size),
    ]
}

fn seldom(size: Size) -> impl Strategy<Value = Step> {
    let channel = || 0..CHANNELS;
    let queue = || 0..size.queues;
    let kind = size.combination.kind;
    let one = arguments(size, kind, false).prop_map(|arguments| arguments.into_iter().next());
    let otherwise = (queue(), one).prop_map(|(queue, argument)| match argument {
        Some(argument) => Step::DeclareOtherwise { queue, argument },
        None => Step::Declare { queue },
    });
    let exchange = 0..size.exchanges.max(1);
    let topology = prop_oneof![
        exchange.clone().prop_map(|exchange| Step::DeclareExchange { exchange }),
        (exchange, any::<bool>())
            .prop_map(|(exchange, if_unused)| Step::DeleteExchange { exchange, if_unused }),
        binding(size).prop_map(Step::Bind),
        binding(size).prop_map(Step::Unbind),
    ];
    let policies = prop_oneof![
        3 => (0..3_usize, policy(size)).prop_map(|(place, policy)| Step::SetPolicy { place, policy }),
        1 => (0..3_usize).prop_map(|place| Step::ClearPolicy { place }),
    ];
    prop_oneof![
        3 => channel().prop_map(|channel| Step::Cancel { channel }),
        1 => channel().prop_map(|channel| Step::SettleUnknown { channel }),
        2 => channel().prop_map(|channel| Step::Recover { channel }),
        3 => channel().prop_map(|channel| Step::Close { channel }),
        2 => queue().prop_map(|queue| Step::Purge { queue }),
        2 => (queue(), chance(0.2), chance(0.2)).prop_map(|(queue, if_unused, if_empty)| {
            Step::Delete { queue, if_unused, if_empty }
        }),
        2 => queue().prop_map(|queue| Step::Declare { queue }),
        2 => otherwise,
        1 => topology,
        2 => policies,
        1 => Just(Step::Reconnect),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_scenario() {
        let combination = Combination { version: Version::V4_3, kind: Kind::Quorum };
        assert_eq!(scenario(combination, 7), scenario(combination, 7));
        assert_ne!(scenario(combination, 7), scenario(combination, 8));
    }
}
