//! AMQP 0-9-1: what each method does. A method that is refused closes its channel or its connection.

mod confirms;
mod consume;
mod exchanges;
mod handshake;
mod publish;
pub(in crate::broker) mod queues;
mod replies;
mod transactions;

use bytes::BytesMut;
use redrive_amqp091::{
    Access, Basic, Channel as ChannelMethod, Confirm, Connection as ConnectionMethod, Exchange, Method,
    PROTOCOL_HEADER, Queue, Tx, access, basic, channel, connection,
};
use redrive_emulator_host::Timestamp;

use super::access::{Right, User};
use super::connection::{Channel, Command, Phase, Settling};
use super::failure::{Failure, Outcome, Scope};
use super::settle::Cause;
use super::{At, Broker, ConnectionId};
use redrive_amqp091::ShortStr;

/// With this many commands that wait, a connection is not read any more.
const HELD_LIMIT: usize = 64;

impl Broker {
    /// Does what a client asks for, in order.
    pub(crate) fn handle(
        &mut self,
        id: ConnectionId,
        commands: impl IntoIterator<Item = Command>,
        now: Timestamp,
    ) {
        self.advance(now);
        for command in commands {
            match self.connections.get_mut(&id) {
                Some(connection) if connection.waits() => connection.held.push_back(command),
                Some(_) => {
                    self.handle_one(id, command);
                    self.pump();
                }
                None => return,
            }
        }
        self.flush_connection(id);
    }

    /// Does what waited while the connection was blocked, or the client did not read.
    pub(super) fn handle_held(&mut self, id: ConnectionId) {
        while let Some(connection) = self.connections.get_mut(&id)
            && !connection.waits()
            && let Some(command) = connection.held.pop_front()
        {
            self.handle_one(id, command);
            self.pump();
        }
        self.flush_connection(id);
    }

    /// Returns what is to be written to the client's socket.
    pub(crate) fn take_output(&mut self, id: ConnectionId, now: Timestamp) -> BytesMut {
        let Some(connection) = self.connections.get_mut(&id) else { return BytesMut::new() };
        connection.touched = false;
        let output = std::mem::take(&mut connection.out);
        let (stalled, held) = (connection.stalled, !connection.held.is_empty());
        if stalled || held {
            self.advance(now);
            self.handle_held(id);
            self.unstall(id);
        }
        output
    }

    /// Returns the connections that have output since the last call.
    pub(crate) fn take_touched(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.touched)
    }

    /// Returns whether the socket is to be closed once the output is written.
    pub(crate) fn is_over(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.phase == Phase::Over)
    }

    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.phase == Phase::Open)
    }

    /// Returns whether the server closed the connection, and the client has not confirmed it.
    pub(crate) fn is_closing(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.phase == Phase::Closing)
    }

    /// Returns whether the socket is to be closed without a word.
    pub(crate) fn is_cut(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| connection.cut)
    }

    /// Returns whether the socket is to be read: not while too much waits.
    pub(crate) fn wants_input(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.held.len() < HELD_LIMIT)
    }

    /// Returns the seconds between signs of life that were agreed; 0: none.
    pub(crate) fn heartbeat(&self, id: ConnectionId) -> u16 {
        self.connections.get(&id).map_or(0, |connection| connection.heartbeat)
    }

    fn handle_one(&mut self, id: ConnectionId, command: Command) {
        let at = At { connection: id, channel: 0 };
        let (at, numbers, outcome) = match command {
            Command::Header => return self.start(id),
            Command::WrongHeader => {
                if let Some(connection) = self.connection(id) {
                    connection.out.extend_from_slice(&PROTOCOL_HEADER);
                    connection.phase = Phase::Over;
                }
                return self.touch(id);
            }
            Command::Broken(failure) => {
                if self
                    .connection(id)
                    .is_some_and(|connection| matches!(connection.phase, Phase::Closing | Phase::Over))
                {
                    return;
                }
                (at, (0, 0), Err(failure))
            }
            Command::Method { channel, method } => {
                let at = At { channel, ..at };
                (at, method.numbers(), self.method(at, method))
            }
            Command::Publish { channel, publish, content } => {
                let at = At { channel, ..at };
                let numbers = (basic::Publish::CLASS, basic::Publish::NUMBER);
                let outcome = match self.check_channel(at) {
                    Ok(true) => self.publish(at, &publish, content),
                    Ok(false) => Ok(()),
                    Err(failure) => Err(failure),
                };
                (at, numbers, outcome)
            }
        };
        if let Err(failure) = outcome {
            self.fail(at, &failure, numbers);
        }
    }

    fn method(&mut self, at: At, method: Method) -> Outcome {
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        match connection.phase {
            Phase::Over => return Ok(()),
            Phase::Closing => {
                match method {
                    Method::Connection(ConnectionMethod::CloseOk(_)) => {
                        connection.phase = Phase::Over;
                        self.touch(at.connection);
                    }
                    // Both sides close at the same time.
                    Method::Connection(ConnectionMethod::Close(_)) => {
                        self.send(At { channel: 0, ..at }, connection::CloseOk {});
                    }
                    _ => {}
                }
                return Ok(());
            }
            Phase::Header | Phase::Started | Phase::Tuning | Phase::Tuned => {
                return self.handshake(at, method);
            }
            Phase::Open => {}
        }
        match method {
            Method::Connection(method) => self.connection_method(at, &method),
            Method::Channel(ChannelMethod::Open(_)) => self.open_channel(at),
            method => match self.check_channel(at)? {
                true => self.channel_method(at, method),
                false => {
                    // The client confirms that the channel is closed, or closes it itself at the same time.
                    match method {
                        Method::Channel(ChannelMethod::CloseOk(_)) => self.remove_closed(at),
                        Method::Channel(ChannelMethod::Close(_)) => self.send(at, channel::CloseOk {}),
                        _ => {}
                    }
                    Ok(())
                }
            },
        }
    }

    fn connection_method(&mut self, at: At, method: &ConnectionMethod) -> Outcome {
        match method {
            ConnectionMethod::Close(_) => {
                self.flush_connection(at.connection);
                self.end_connection(at.connection);
                self.send(At { channel: 0, ..at }, connection::CloseOk {});
                if let Some(connection) = self.connection(at.connection) {
                    connection.phase = Phase::Over;
                }
                Ok(())
            }
            ConnectionMethod::UpdateSecret(_) => {
                self.send(at, connection::UpdateSecretOk {});
                Ok(())
            }
            _ => Err(Failure::command_invalid("this method is not valid on an open connection")),
        }
    }

    fn open_channel(&mut self, at: At) -> Outcome {
        let opened = self.now;
        let Some(connection) = self.connection(at.connection) else { return Ok(()) };
        if at.channel == 0 {
            return Err(Failure::command_invalid("channel 0 is the connection itself"));
        }
        if connection.channels.contains_key(&at.channel) {
            return Err(Failure::channel_error("second 'channel.open' seen"));
        }
        if connection.channel_max != 0 && at.channel > connection.channel_max {
            return Err(Failure::not_allowed(&format!(
                "number of channels opened ({}) has reached the negotiated channel_max ({})",
                connection.channels.len(),
                connection.channel_max
            )));
        }
        connection.channels.insert(at.channel, Channel { opened, ..Channel::default() });
        self.send(at, channel::OpenOk::default());
        Ok(())
    }

    /// Returns false if the channel is closed and the client does not know it yet: what it sends is ignored.
    fn check_channel(&mut self, at: At) -> Outcome<bool> {
        match self
            .connection(at.connection)
            .map(|connection| (connection.phase, connection.channels.get(&at.channel)))
        {
            Some((Phase::Open, Some(channel))) => Ok(!channel.closing),
            Some((Phase::Open, None)) => Err(Failure::channel_error("expected 'channel.open'")),
            Some((Phase::Closing | Phase::Over, _)) | None => Ok(false),
            Some(_) => Err(Failure::command_invalid("the connection is not open")),
        }
    }

    fn remove_closed(&mut self, at: At) {
        if let Some(connection) = self.connection(at.connection) {
            connection.channels.remove(&at.channel);
        }
    }

    fn channel_method(&mut self, at: At, method: Method) -> Outcome {
        match method {
            Method::Channel(ChannelMethod::Close(_)) => {
                self.flush_confirms(at);
                self.end_channel(at);
                // Whoever gets what the channel had, gets it before the channel hears of its end.
                self.pump();
                self.send(at, channel::CloseOk {});
                Ok(())
            }
            Method::Channel(ChannelMethod::Flow(flow)) => {
                if !flow.active {
                    return Err(Failure::not_implemented("active=false"));
                }
                self.send(at, channel::FlowOk { active: true });
                Ok(())
            }
            Method::Channel(ChannelMethod::FlowOk(_)) => Ok(()),
            Method::Access(Access::Request(_)) => {
                self.send(at, access::RequestOk { ticket: 1 });
                Ok(())
            }
            Method::Exchange(Exchange::Declare(declare)) => self.declare_exchange(at, &declare),
            Method::Exchange(Exchange::Delete(delete)) => self.delete_exchange_by(at, &delete),
            Method::Exchange(Exchange::Bind(bind)) => self.bind_exchange(at, bind),
            Method::Exchange(Exchange::Unbind(unbind)) => self.unbind_exchange(at, unbind),
            Method::Queue(Queue::Declare(declare)) => self.declare_queue(at, &declare),
            Method::Queue(Queue::Bind(bind)) => self.bind_queue(at, &bind),
            Method::Queue(Queue::Unbind(unbind)) => self.unbind_queue(at, &unbind),
            Method::Queue(Queue::Purge(purge)) => self.purge_queue(at, &purge),
            Method::Queue(Queue::Delete(delete)) => self.delete_queue_by(at, &delete),
            Method::Basic(Basic::Qos(qos)) => self.qos(at, &qos),
            Method::Basic(Basic::Consume(consume)) => self.consume(at, &consume),
            Method::Basic(Basic::Cancel(cancel)) => self.cancel(at, cancel),
            Method::Basic(Basic::Get(get)) => self.get(at, &get),
            Method::Basic(Basic::Ack(ack)) => self.settle(at, ack.delivery_tag, ack.multiple, Settling::Ack),
            Method::Basic(Basic::Nack(nack)) => {
                self.settle(at, nack.delivery_tag, nack.multiple, Settling::Nack { requeue: nack.requeue })
            }
            Method::Basic(Basic::Reject(reject)) => {
                self.settle(at, reject.delivery_tag, false, Settling::Reject { requeue: reject.requeue })
            }
            Method::Basic(Basic::Recover(recover)) => {
                self.recover(at, recover.requeue)?;
                self.send(at, basic::RecoverOk {});
                Ok(())
            }
            Method::Basic(Basic::RecoverAsync(recover)) => self.recover(at, recover.requeue),
            Method::Basic(Basic::CancelOk(_)) => Ok(()),
            Method::Tx(Tx::Select(_)) => self.select_transaction(at),
            Method::Tx(Tx::Commit(_)) => self.commit(at),
            Method::Tx(Tx::Rollback(_)) => self.roll_back(at),
            Method::Confirm(Confirm::Select(select)) => self.select_confirms(at, &select),
            other => Err(Failure::command_invalid(&format!("unimplemented method {}", other.name()))),
        }
    }

    fn recover(&mut self, at: At, requeue: bool) -> Outcome {
        if !requeue {
            return Err(Failure::not_implemented("requeue=false"));
        }
        let Some(channel) = self.channel(at) else { return Ok(()) };
        let unacked = std::mem::take(&mut channel.unacked);
        let unacked = self.by_consumer(unacked.into_iter().collect());
        self.give_back_all(at, unacked, Cause::Recover);
        Ok(())
    }

    /// Checks a permission of the connection's user.
    fn permit(&self, at: At, right: Right, what: &str, name: &ShortStr) -> Outcome {
        let Some(connection) = self.connections.get(&at.connection) else { return Ok(()) };
        let vhost = &self.vhost(connection.vhost).name;
        match connection.user.as_deref() {
            Some(user) => User::check(user, vhost, right, what, name, self.version()),
            None => Err(Failure::refused("the connection has no user")),
        }
    }

    fn vhost_of(&self, at: At) -> super::VHostId {
        self.connections.get(&at.connection).map_or(super::VHostId(0), |connection| connection.vhost)
    }

    fn not_found(&self, at: At, what: &str, name: &ShortStr) -> Failure {
        Failure::not_found(what, name, &self.vhost(self.vhost_of(at)).name)
    }
}

impl Failure {
    /// A refusal while a connection is opened always ends the connection.
    fn ending_connection(self) -> Self {
        Self { scope: Scope::Connection, ..self }
    }
}
