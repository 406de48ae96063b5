//! What a scenario is made of: a topology, and the steps that a client takes on it. Plain values that can be stored and shrunk.

use serde::{Deserialize, Serialize};

/// A topology and a sequence of steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Exchanges, declared first.
    pub exchanges: Vec<Exchange>,
    /// Policies, set before the queues are declared.
    pub policies: Vec<Policy>,
    /// Queues.
    pub queues: Vec<Queue>,
    /// Bindings of the exchanges.
    pub bindings: Vec<Binding>,
    /// What happens then.
    pub steps: Vec<Step>,
}

/// A time in tenths of a tick, the unit in which scenarios wait. The runner says how long a tick is.
///
/// Waits are whole ticks and deadlines are not, so that nothing expires while a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenths(pub u32);

/// The type of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A classic queue.
    Classic,
    /// A quorum queue.
    Quorum,
}

/// A durable queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Queue {
    /// Its type.
    pub kind: Kind,
    /// Its arguments, without `x-queue-type`.
    pub arguments: Vec<Argument>,
}

/// An argument of a queue, or a key of a policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Argument {
    /// `x-message-ttl`
    MessageTtl(Tenths),
    /// `x-expires`
    Expires(Tenths),
    /// `x-dead-letter-exchange`
    DeadLetterExchange(Target),
    /// `x-dead-letter-routing-key`
    DeadLetterKey(Key),
    /// `x-dead-letter-strategy: at-least-once`
    AtLeastOnce,
    /// `x-max-length`
    MaxLength(u32),
    /// `x-max-length-bytes`
    MaxLengthBytes(u32),
    /// `x-overflow`
    Overflow(Overflow),
    /// `x-delivery-limit`
    DeliveryLimit(i64),
    /// `x-max-priority`
    MaxPriority(u8),
    /// `x-single-active-consumer`
    SingleActiveConsumer,
    /// `x-delayed-retry-type`
    RetryType(RetryType),
    /// `x-delayed-retry-min`
    RetryMin(Tenths),
    /// `x-delayed-retry-max`
    RetryMax(Tenths),
}

/// What a full queue does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overflow {
    /// `drop-head`
    DropHead,
    /// `reject-publish`
    RejectPublish,
    /// `reject-publish-dlx`
    RejectPublishDlx,
}

/// Which returns are delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryType {
    /// `all`
    All,
    /// `failed`
    Failed,
    /// `returned`
    Returned,
}

/// An exchange to publish to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// The default exchange.
    Default,
    /// An exchange of the scenario, by its place.
    Own(usize),
    /// One that does not exist.
    Missing,
}

/// A routing key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Key {
    /// The name of a queue.
    Queue(usize),
    /// One of a few words.
    Word(usize),
}

/// A durable exchange.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Its type.
    pub kind: ExchangeKind,
    /// Its `alternate-exchange`.
    pub alternate: Option<Target>,
    /// Whether it is internal.
    pub internal: bool,
}

/// The type of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExchangeKind {
    /// `direct`
    Direct,
    /// `fanout`
    Fanout,
    /// `topic`
    Topic,
    /// `headers`
    Headers,
}

/// A binding of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The exchange that it belongs to.
    pub source: usize,
    /// Where it leads.
    pub destination: Destination,
    /// Its key or pattern.
    pub pattern: Pattern,
    /// The headers that a headers exchange asks for.
    pub matching: Matching,
}

/// Where a binding leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Destination {
    /// To a queue.
    Queue(usize),
    /// To an exchange.
    Exchange(usize),
}

/// The key of a binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pattern {
    /// A routing key.
    Key(Key),
    /// One of a few patterns of a topic exchange.
    Topic(usize),
}

/// The arguments of a binding of a headers exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Matching {
    /// None.
    None,
    /// `x-match: all`, one header that dressed messages have.
    All,
    /// `x-match: all`, with one header more that no message has.
    AllOfMore,
    /// `x-match: any`, with one header more that no message has.
    Any,
}

/// A policy for queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// The queue that it is for; otherwise all of the scenario.
    pub queue: Option<usize>,
    /// Its priority.
    pub priority: u8,
    /// What it sets.
    pub definition: Vec<Argument>,
}

/// A channel that consumes and settles, by its place.
pub type Channel = usize;

/// How many of them a scenario has.
pub const CHANNELS: usize = 3;

/// One step of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// Publishes on a channel with confirms, and waits for the confirm.
    Publish(Publish),
    /// `basic.get`
    Get {
        /// On this channel.
        channel: Channel,
        /// From this queue.
        queue: usize,
        /// Without acknowledgement.
        no_ack: bool,
    },
    /// `basic.qos` and `basic.consume`
    Consume {
        /// On this channel.
        channel: Channel,
        /// From this queue.
        queue: usize,
        /// The prefetch count of this consumer.
        prefetch: u16,
        /// `x-priority`
        priority: Option<i32>,
        /// Alone.
        exclusive: bool,
        /// Without acknowledgement.
        no_ack: bool,
    },
    /// Cancels the newest consumer of a channel.
    Cancel {
        /// The channel.
        channel: Channel,
    },
    /// Settles a message that the channel has.
    Settle {
        /// The channel.
        channel: Channel,
        /// Which of them, from the oldest; beyond the last, the last.
        which: usize,
        /// How.
        how: Settle,
        /// And all before it.
        multiple: bool,
    },
    /// Acknowledges a tag that was never given.
    SettleUnknown {
        /// The channel.
        channel: Channel,
    },
    /// `basic.recover`
    Recover {
        /// The channel.
        channel: Channel,
    },
    /// Closes a channel.
    Close {
        /// The channel.
        channel: Channel,
    },
    /// `tx.select`
    TxSelect {
        /// The channel.
        channel: Channel,
    },
    /// Publishes on a channel without confirms.
    TxPublish {
        /// The channel.
        channel: Channel,
        /// What is published.
        publish: Publish,
    },
    /// `tx.commit`
    TxCommit {
        /// The channel.
        channel: Channel,
    },
    /// `tx.rollback`
    TxRollback {
        /// The channel.
        channel: Channel,
    },
    /// `queue.purge`
    Purge {
        /// The queue.
        queue: usize,
    },
    /// `queue.delete`
    Delete {
        /// The queue.
        queue: usize,
        /// Only without consumers.
        if_unused: bool,
        /// Only without messages.
        if_empty: bool,
    },
    /// `queue.declare` as at first.
    Declare {
        /// The queue.
        queue: usize,
    },
    /// `queue.declare` with one argument changed or added.
    DeclareOtherwise {
        /// The queue.
        queue: usize,
        /// The argument.
        argument: Argument,
    },
    /// Declares the exchange again, as at first.
    DeclareExchange {
        /// The exchange.
        exchange: usize,
    },
    /// `exchange.delete`
    DeleteExchange {
        /// The exchange.
        exchange: usize,
        /// Only without bindings.
        if_unused: bool,
    },
    /// Binds again, or first.
    Bind(Binding),
    /// Removes a binding.
    Unbind(Binding),
    /// Sets a policy, as the scenario's first, second, …
    SetPolicy {
        /// Its place.
        place: usize,
        /// The policy.
        policy: Policy,
    },
    /// Removes a policy.
    ClearPolicy {
        /// Its place.
        place: usize,
    },
    /// Closes the connection and opens another.
    Reconnect,
    /// Lets whole ticks pass.
    Wait {
        /// How many.
        ticks: u8,
    },
}

/// How a message is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settle {
    /// `basic.ack`
    Ack,
    /// `basic.nack`
    Nack {
        /// Back into the queue.
        requeue: bool,
    },
    /// `basic.reject`
    Reject {
        /// Back into the queue.
        requeue: bool,
    },
}

/// A message and where it is published.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Publish {
    /// The exchange.
    pub exchange: Target,
    /// The routing key.
    pub key: Key,
    /// `mandatory`
    pub mandatory: bool,
    /// What the message looks like.
    pub dress: Dress,
    /// `priority`
    pub priority: Option<u8>,
    /// `expiration`
    pub expiration: Option<Tenths>,
    /// `CC`
    pub cc: Vec<Key>,
    /// `BCC`
    pub bcc: Vec<Key>,
    /// An `x-death` of the client's own.
    pub death: Option<Forged>,
    /// Length of the body.
    pub size: usize,
}

/// What a message looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Dress {
    /// A body only.
    Plain,
    /// Every property, and headers of several types.
    Full,
    /// Headers with names that the broker uses itself.
    Disguised,
    /// The properties and headers of the message that this client received last.
    AsReceived,
}

/// An `x-death` that a client made up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forged {
    /// The queue of its only entry.
    pub queue: usize,
    /// Its reason.
    pub reason: Reason,
    /// Its count.
    pub count: i64,
}

/// Why a message died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// `rejected`
    Rejected,
    /// `expired`
    Expired,
    /// `maxlen`
    Maxlen,
}
