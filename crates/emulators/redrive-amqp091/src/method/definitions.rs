//! All methods of AMQP 0-9-1 and of RabbitMQ's extensions. `Bytes` is a long string.

use bytes::{Bytes, BytesMut};

use crate::field::Field;
use crate::frame::with_frame;
use crate::wire::{Reader, Writer};
use crate::{DecodeError, FrameKind, RawTable, ShortStr};

const fn id(class: u16, number: u16) -> [u8; 4] {
    let [a, b] = class.to_be_bytes();
    let [c, d] = number.to_be_bytes();
    [a, b, c, d]
}

classes! {
    /// Opening, tuning and closing a connection.
    Connection connection 10 {
        /// The server names itself and its ways to log in.
        Start 10 { version_major: u8, version_minor: u8, server_properties: RawTable, mechanisms: Bytes, locales: Bytes }
        /// The client logs in.
        StartOk 11 { client_properties: RawTable, mechanism: ShortStr, response: Bytes, locale: ShortStr }
        /// The server asks for more to log in.
        Secure 20 { challenge: Bytes }
        /// The client's response.
        SecureOk 21 { response: Bytes }
        /// The server's limits; heartbeat in seconds.
        Tune 30 { channel_max: u16, frame_max: u32, heartbeat: u16 }
        /// The limits that the client chose.
        TuneOk 31 { channel_max: u16, frame_max: u32, heartbeat: u16 }
        /// Opens a virtual host.
        Open 40 { virtual_host: ShortStr, capabilities: ShortStr, insist: bool }
        /// The connection is open.
        OpenOk 41 { known_hosts: ShortStr }
        /// Ends the connection, and says why.
        Close 50 { reply_code: u16, reply_text: ShortStr, class_id: u16, method_id: u16 }
        /// The connection has ended.
        CloseOk 51 {}
        /// The server takes no more publishes (RabbitMQ).
        Blocked 60 { reason: ShortStr }
        /// It takes publishes again (RabbitMQ).
        Unblocked 61 {}
        /// A new secret for a connection that is open (RabbitMQ).
        UpdateSecret 70 { new_secret: Bytes, reason: ShortStr }
        /// The secret was replaced (RabbitMQ).
        UpdateSecretOk 71 {}
    }
    /// Opening and closing channels.
    Channel channel 20 {
        /// Opens a channel.
        Open 10 { out_of_band: ShortStr }
        /// It is open.
        OpenOk 11 { channel_id: Bytes }
        /// Stops or resumes deliveries.
        Flow 20 { active: bool }
        /// Confirms it.
        FlowOk 21 { active: bool }
        /// Ends the channel, and says why.
        Close 40 { reply_code: u16, reply_text: ShortStr, class_id: u16, method_id: u16 }
        /// The channel has ended.
        CloseOk 41 {}
    }
    /// Obsolete since AMQP 0-9-1; some clients still ask.
    Access access 30 {
        /// Asks for a ticket.
        Request 10 { realm: ShortStr, exclusive: bool, passive: bool, active: bool, write: bool, read: bool }
        /// A ticket that means nothing.
        RequestOk 11 { ticket: u16 }
    }
    /// Exchanges.
    Exchange exchange 40 {
        /// Creates an exchange, or checks that it exists.
        Declare 10 {
            ticket: u16, exchange: ShortStr, kind: ShortStr, passive: bool, durable: bool, auto_delete: bool, internal: bool,
            no_wait: bool, arguments: RawTable,
        }
        /// It exists.
        DeclareOk 11 {}
        /// Deletes an exchange.
        Delete 20 { ticket: u16, exchange: ShortStr, if_unused: bool, no_wait: bool }
        /// It does not exist any more.
        DeleteOk 21 {}
        /// Binds an exchange to another one (RabbitMQ).
        Bind 30 {
            ticket: u16, destination: ShortStr, source: ShortStr, routing_key: ShortStr, no_wait: bool, arguments: RawTable,
        }
        /// It is bound (RabbitMQ).
        BindOk 31 {}
        /// Removes such a binding (RabbitMQ).
        Unbind 40 {
            ticket: u16, destination: ShortStr, source: ShortStr, routing_key: ShortStr, no_wait: bool, arguments: RawTable,
        }
        /// It is removed (RabbitMQ).
        UnbindOk 51 {}
    }
    /// Queues.
    Queue queue 50 {
        /// Creates a queue, or checks that it exists.
        Declare 10 {
            ticket: u16, queue: ShortStr, passive: bool, durable: bool, exclusive: bool, auto_delete: bool, no_wait: bool,
            arguments: RawTable,
        }
        /// It exists; how many messages are ready, and how many consumers it has.
        DeclareOk 11 { queue: ShortStr, message_count: u32, consumer_count: u32 }
        /// Binds a queue to an exchange.
        Bind 20 {
            ticket: u16, queue: ShortStr, exchange: ShortStr, routing_key: ShortStr, no_wait: bool, arguments: RawTable,
        }
        /// It is bound.
        BindOk 21 {}
        /// Removes all messages that are ready.
        Purge 30 { ticket: u16, queue: ShortStr, no_wait: bool }
        /// How many there were.
        PurgeOk 31 { message_count: u32 }
        /// Deletes a queue.
        Delete 40 { ticket: u16, queue: ShortStr, if_unused: bool, if_empty: bool, no_wait: bool }
        /// How many messages it had.
        DeleteOk 41 { message_count: u32 }
        /// Removes a binding.
        Unbind 50 { ticket: u16, queue: ShortStr, exchange: ShortStr, routing_key: ShortStr, arguments: RawTable }
        /// It is removed.
        UnbindOk 51 {}
    }
    /// Messages.
    Basic basic 60 {
        /// Limits what is delivered and not settled.
        Qos 10 { prefetch_size: u32, prefetch_count: u16, global: bool }
        /// It is limited.
        QosOk 11 {}
        /// Starts a consumer.
        Consume 20 {
            ticket: u16, queue: ShortStr, consumer_tag: ShortStr, no_local: bool, no_ack: bool, exclusive: bool, no_wait: bool,
            arguments: RawTable,
        }
        /// It started.
        ConsumeOk 21 { consumer_tag: ShortStr }
        /// Ends a consumer; from the server: it was ended (RabbitMQ).
        Cancel 30 { consumer_tag: ShortStr, no_wait: bool }
        /// It ended.
        CancelOk 31 { consumer_tag: ShortStr }
        /// Publishes a message; its content follows.
        Publish 40 { ticket: u16, exchange: ShortStr, routing_key: ShortStr, mandatory: bool, immediate: bool }
        /// Returns a message; its content follows.
        Return 50 { reply_code: u16, reply_text: ShortStr, exchange: ShortStr, routing_key: ShortStr }
        /// Delivers a message to a consumer; its content follows.
        Deliver 60 {
            consumer_tag: ShortStr, delivery_tag: u64, redelivered: bool, exchange: ShortStr, routing_key: ShortStr,
        }
        /// Asks for one message.
        Get 70 { ticket: u16, queue: ShortStr, no_ack: bool }
        /// The message; its content follows.
        GetOk 71 {
            delivery_tag: u64, redelivered: bool, exchange: ShortStr, routing_key: ShortStr, message_count: u32,
        }
        /// There is none.
        GetEmpty 72 { cluster_id: ShortStr }
        /// Accepts a delivery; from the server: confirms a publish (RabbitMQ).
        Ack 80 { delivery_tag: u64, multiple: bool }
        /// Gives a delivery back.
        Reject 90 { delivery_tag: u64, requeue: bool }
        /// Redelivers everything that is not settled; obsolete.
        RecoverAsync 100 { requeue: bool }
        /// Redelivers everything that is not settled.
        Recover 110 { requeue: bool }
        /// It is redelivered.
        RecoverOk 111 {}
        /// Gives deliveries back; from the server: refuses a publish (RabbitMQ).
        Nack 120 { delivery_tag: u64, multiple: bool, requeue: bool }
    }
    /// Transactions of one channel.
    Tx tx 90 {
        /// Makes the channel transactional.
        Select 10 {}
        /// It is.
        SelectOk 11 {}
        /// Does everything since the last commit or rollback.
        Commit 20 {}
        /// It is done.
        CommitOk 21 {}
        /// Discards everything since the last commit or rollback.
        Rollback 30 {}
        /// It is discarded.
        RollbackOk 31 {}
    }
    /// Confirms of publishes (RabbitMQ).
    Confirm confirm 85 {
        /// Asks for confirms.
        Select 10 { no_wait: bool }
        /// They come.
        SelectOk 11 {}
    }
}
