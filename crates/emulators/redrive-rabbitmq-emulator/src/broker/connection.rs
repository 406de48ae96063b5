//! What the broker knows of a connection: its channels, consumers, unsettled deliveries, and output that waits for the socket.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use redrive_amqp091::{Method, Properties, ShortStr, Table, basic};
use redrive_emulator_host::Timestamp;

use super::access::User;
use super::failure::Failure;
use super::message::Message;
use super::queue::flow::Registration;
use super::queue::ready::Stored;
use super::{At, ConnectionId, ConsumerId, HashMap, QueueId, VHostId};

/// With this much output that a client has not read, what it asks for waits: the output is at most one answer longer. More than what
/// stops its consumers, so that a client may publish much before it reads.
const OUTPUT_LIMIT: usize = 4 << 20;

/// What a client sent, decoded.
#[derive(Debug)]
pub(crate) enum Command {
    /// The protocol header.
    Header,
    /// Another protocol's header.
    WrongHeader,
    Method {
        channel: u16,
        method: Method,
    },
    Publish {
        channel: u16,
        publish: basic::Publish,
        content: Box<Content>,
    },
    /// The bytes are not AMQP, or not in order.
    Broken(Failure),
}

/// A message's content.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) properties: Properties,
    /// The same as bytes.
    pub(crate) encoded: Bytes,
    /// Number of bytes of the body, also if it was too large to be kept.
    pub(crate) size: u64,
    pub(crate) body: Bytes,
}

/// How far a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Header,
    Started,
    Tuning,
    Tuned,
    Open,
    /// The server closed it, and waits for the client.
    Closing,
    /// The socket is to be closed once the output is written.
    Over,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    pub(crate) user: Option<Arc<User>>,
    pub(crate) vhost: VHostId,
    pub(crate) peer: String,
    pub(crate) client_properties: Table,
    pub(crate) notifies_cancel: bool,
    pub(crate) notifies_blocked: bool,
    pub(crate) closes_after_failed_login: bool,
    pub(crate) frame_max: u32,
    pub(crate) channel_max: u16,
    /// In seconds; 0: none.
    pub(crate) heartbeat: u16,
    pub(crate) channels: BTreeMap<u16, Channel>,
    pub(crate) exclusive_queues: HashSet<QueueId>,
    pub(crate) connected: Timestamp,

    /// It has published: an alarm blocks it.
    pub(crate) has_published: bool,
    pub(crate) blocked: bool,
    /// Commands that wait while it is blocked, or while the client does not read.
    pub(crate) held: VecDeque<Command>,

    pub(crate) out: BytesMut,
    /// It is in the list of connections with output.
    pub(crate) touched: bool,
    /// Consumers are waiting until the client has read more.
    pub(crate) stalled: bool,
    /// A fault: close the socket without a word.
    pub(crate) cut: bool,
}

impl Connection {
    pub(crate) fn new(peer: String, now: Timestamp, frame_max: u32) -> Self {
        Self {
            phase: Phase::Header,
            user: None,
            vhost: VHostId(0),
            peer,
            client_properties: Table::new(),
            notifies_cancel: false,
            notifies_blocked: false,
            closes_after_failed_login: false,
            frame_max,
            channel_max: 0,
            heartbeat: 0,
            channels: BTreeMap::new(),
            exclusive_queues: HashSet::new(),
            connected: now,
            has_published: false,
            blocked: false,
            held: VecDeque::new(),
            out: BytesMut::new(),
            touched: false,
            stalled: false,
            cut: false,
        }
    }

    /// Returns whether what the client asks for has to wait.
    pub(crate) fn waits(&self) -> bool {
        self.blocked || self.is_unread()
    }

    /// Returns whether the client leaves so much unread that it gets nothing more.
    pub(crate) fn is_unread(&self) -> bool {
        self.out.len() > OUTPUT_LIMIT
    }
}

/// What a channel does with publishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Plain,
    Confirm,
    Transaction,
}

#[derive(Debug, Default)]
pub(crate) struct Channel {
    /// The server closed it, and waits for the client.
    pub(crate) closing: bool,
    pub(crate) mode: Mode,
    /// Number of publishes since confirms were asked for.
    pub(crate) published: u64,
    /// Confirms that were not sent yet: number, and whether it was stored.
    pub(crate) confirms: Vec<(u64, bool)>,
    pub(crate) last_tag: u64,
    pub(crate) unacked: BTreeMap<u64, Unacked>,
    /// Deliveries that timed out: settling them late does nothing.
    pub(crate) timed_out: HashSet<u64>,
    pub(crate) consumers: HashMap<ShortStr, ConsumerId>,
    /// For the next consumers; 0: any number.
    pub(crate) prefetch: u16,
    /// For all consumers of the channel together; 0: any number.
    pub(crate) prefetch_global: u16,
    /// The queue that was declared last, for methods that name none.
    pub(crate) last_queue: ShortStr,
    /// The routing key of the last publish.
    pub(crate) last_key: ShortStr,
    /// The quorum queues that it published to, and what they told it then.
    pub(crate) publishes_to: HashMap<QueueId, Registration>,
    pub(crate) transaction: Transaction,
    /// The consumer for direct replies, and its part of the address.
    pub(crate) replies: Option<(ShortStr, u64)>,
    pub(crate) opened: Timestamp,
    /// When the next consumer timeout is checked.
    pub(crate) armed: Option<Timestamp>,
}

/// How a delivery is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settling {
    Ack,
    Nack { requeue: bool },
    Reject { requeue: bool },
}

/// A delivery that is not settled.
#[derive(Debug)]
pub(crate) struct Unacked {
    pub(crate) queue: QueueId,
    pub(crate) stored: Stored,
    /// `None`: it was asked for by `basic.get`.
    pub(crate) consumer: Option<ConsumerId>,
    /// The consumer may be gone. Empty for `basic.get`.
    pub(crate) consumer_tag: ShortStr,
    pub(crate) delivered: Timestamp,
}

/// What a transaction will do.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    pub(crate) publishes: Vec<StagedPublish>,
    pub(crate) settlements: Vec<(Settling, Vec<(u64, Unacked)>)>,
}

#[derive(Debug)]
pub(crate) struct StagedPublish {
    pub(crate) message: Arc<Message>,
    pub(crate) mandatory: bool,
}

#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) at: At,
    pub(crate) tag: ShortStr,
    pub(crate) queue: QueueId,
    pub(crate) no_ack: bool,
    pub(crate) exclusive: bool,
    pub(crate) priority: i64,
    pub(crate) prefetch: u16,
    pub(crate) unacked: u32,
    pub(crate) arguments: Table,
    /// In milliseconds.
    pub(crate) timeout: Option<u64>,
}

impl super::Broker {
    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.get_mut(&id)
    }

    pub(super) fn channel(&mut self, at: At) -> Option<&mut Channel> {
        self.connections.get_mut(&at.connection)?.channels.get_mut(&at.channel)
    }

    /// Sends a method on a channel.
    pub(super) fn send(&mut self, at: At, method: impl Into<Method>) {
        if let Some(connection) = self.connections.get_mut(&at.connection) {
            method.into().write_frame(at.channel, &mut connection.out);
            self.touch(at.connection);
        }
    }

    pub(super) fn touch(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !connection.touched
        {
            connection.touched = true;
            self.touched.push(id);
        }
    }
}
