//! What operators and tests do: virtual hosts, users and policies, alarms and faults.

use redrive_amqp091::{ShortStr, connection, reply};
use redrive_emulator_host::Timestamp;

use super::access::{Password, Permission, User};
use super::connection::Phase;
use super::failure::Failure;
use super::queue::settings::QueueKind;
use super::settle::Cause;
use super::vhost::{Policy, VHost};
use super::{At, Broker, Change, ConfirmFault, ConnectionId, QueueId, VHostId};

impl Broker {
    /// Adds the virtual host `/` and the user `guest` with all permissions, as a fresh RabbitMQ has.
    pub(crate) fn add_defaults(&mut self) {
        self.add_vhost("/");
        self.add_user("guest", Password::Plain("guest".to_owned()), vec!["administrator".to_owned()]);
        self.set_permission("guest", "/", Permission::all());
    }

    pub(crate) fn add_vhost(&mut self, name: &str) -> VHostId {
        if let Some(id) = self.vhost_named(name) {
            return id;
        }
        let id = VHostId(self.vhosts.last_key_value().map_or(1, |(id, _)| id.0 + 1));
        self.vhosts.insert(id, VHost::new(ShortStr::truncated(name)));
        id
    }

    pub(crate) fn add_user(&mut self, name: &str, password: Password, tags: Vec<String>) {
        match self.users.get_mut(name) {
            Some(user) => {
                user.password = password;
                user.tags = tags;
            }
            None => {
                let user = User { name: name.to_owned(), password, tags, permissions: Default::default() };
                self.users.insert(name.to_owned(), user);
            }
        }
    }

    pub(crate) fn set_permission(&mut self, user: &str, vhost: &str, permission: Permission) {
        if let Some(user) = self.users.get_mut(user) {
            user.permissions.insert(vhost.to_owned(), permission);
        }
    }

    pub(crate) fn set_policy(&mut self, vhost: VHostId, policy: Policy, now: Timestamp) {
        self.advance(now);
        if let Some(vhost) = self.vhosts.get_mut(&vhost) {
            vhost.policies.insert(policy.name.clone(), policy);
        }
        self.apply_policies(vhost);
    }

    /// Returns false if there is none of this name.
    pub(crate) fn remove_policy(&mut self, vhost: VHostId, name: &str, now: Timestamp) -> bool {
        self.advance(now);
        let removed = self.vhosts.get_mut(&vhost).is_some_and(|vhost| vhost.policies.remove(name).is_some());
        self.apply_policies(vhost);
        removed
    }

    /// Blocks publishers, as RabbitMQ does when memory or disk runs out.
    pub(crate) fn raise_alarm(&mut self, reason: &str, now: Timestamp) {
        self.advance(now);
        self.alarm = Some(reason.to_owned());
        let publishers: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.has_published)
            .map(|(id, _)| *id)
            .collect();
        for id in publishers {
            self.block_publisher(id);
        }
    }

    pub(crate) fn clear_alarm(&mut self, now: Timestamp) {
        self.advance(now);
        self.alarm = None;
        let blocked: Vec<_> =
            self.connections.iter().filter(|(_, connection)| connection.blocked).map(|(id, _)| *id).collect();
        for id in blocked {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.blocked = false;
            if connection.notifies_blocked {
                self.send(At { connection: id, channel: 0 }, connection::Unblocked {});
            }
            self.handle_held(id);
        }
    }

    /// A connection publishes: an alarm blocks it from now on.
    pub(super) fn block_publisher(&mut self, id: ConnectionId) {
        let reason = self.alarm.clone();
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.has_published = true;
        let Some(reason) = reason else { return };
        if std::mem::replace(&mut connection.blocked, true) {
            return;
        }
        if connection.notifies_blocked {
            let reason = ShortStr::truncated(&reason);
            self.send(At { connection: id, channel: 0 }, connection::Blocked { reason });
        }
    }

    pub(crate) fn set_confirms(&mut self, fault: ConfirmFault, now: Timestamp) {
        self.advance(now);
        self.confirms = fault;
        if fault != ConfirmFault::Hold {
            for id in self.connection_ids() {
                self.flush_connection(id);
            }
        }
    }

    /// Cuts a connection without a word, or all.
    pub(crate) fn cut(&mut self, only: Option<ConnectionId>) {
        for id in self.connection_ids() {
            if only.is_none_or(|only| only == id)
                && let Some(connection) = self.connections.get_mut(&id)
            {
                connection.cut = true;
                self.touch(id);
            }
        }
    }

    /// Closes all connections, as an operator does, or as the server does when it ends.
    pub(crate) fn close_all(&mut self, reason: &str, now: Timestamp) {
        self.advance(now);
        for id in self.connection_ids() {
            self.close_by_operator(id, reason, now);
        }
    }

    /// Closes one connection in order; one that is not open yet just ends.
    pub(crate) fn close_by_operator(&mut self, id: ConnectionId, reason: &str, now: Timestamp) {
        self.advance(now);
        match self.connections.get(&id).map(|connection| connection.phase) {
            Some(Phase::Open) => {
                self.flush_connection(id);
                let failure = Failure::connection(reply::CONNECTION_FORCED, "CONNECTION_FORCED", reason);
                self.fail(At { connection: id, channel: 0 }, &failure, (0, 0));
            }
            Some(_) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.phase = Phase::Over;
                }
                self.touch(id);
            }
            None => {}
        }
        self.pump();
    }

    /// Ends a connection because what it did cannot be kept.
    pub(crate) fn fail_connection(&mut self, id: ConnectionId, reason: &str, now: Timestamp) {
        self.advance(now);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.out.clear();
        if connection.phase == Phase::Open {
            let failure = Failure::internal(&format!("the state file cannot be written: {reason}"));
            self.fail(At { connection: id, channel: 0 }, &failure, (0, 0));
        } else {
            connection.phase = Phase::Over;
        }
        self.pump();
    }

    pub(crate) fn connection_ids(&self) -> Vec<ConnectionId> {
        let mut ids: Vec<_> = self.connections.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// A quorum queue without a leader delivers nothing, until it has one again.
    pub(crate) fn set_leaderless(&mut self, id: QueueId, leaderless: bool, now: Timestamp) {
        self.advance(now);
        if let Some(queue) = self.queues.get_mut(&id)
            && queue.kind == QueueKind::Quorum
        {
            queue.leaderless = leaderless;
            self.mark_dirty(id);
        }
        self.pump();
    }

    /// Takes back everything that a queue's consumers have not settled, as if their connections had ended.
    pub(crate) fn give_back_unsettled(&mut self, id: QueueId, now: Timestamp) -> usize {
        self.advance(now);
        let mut count = 0;
        for connection in self.connection_ids() {
            let channels: Vec<u16> = self
                .connections
                .get(&connection)
                .into_iter()
                .flat_map(|c| c.channels.keys().copied())
                .collect();
            for channel in channels {
                let at = At { connection, channel };
                let Some(channel) = self.channel(at) else { continue };
                let tags: Vec<u64> = channel
                    .unacked
                    .iter()
                    .filter(|(_, unacked)| unacked.queue == id)
                    .map(|(tag, _)| *tag)
                    .collect();
                let taken: Vec<_> = tags
                    .iter()
                    .filter_map(|tag| channel.unacked.remove(tag).map(|one| (*tag, one)))
                    .collect();
                channel.timed_out.extend(tags);
                count += taken.len();
                self.give_back_all(at, taken, Cause::Crash);
            }
        }
        self.pump();
        count
    }

    /// Starts collecting changes, or stops.
    pub(crate) fn keep_changes(&mut self, keep: bool) {
        self.changes = keep.then(Vec::new);
    }

    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        self.changes.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
