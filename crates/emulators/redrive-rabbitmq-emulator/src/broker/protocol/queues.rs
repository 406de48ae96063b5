//! Queues and their bindings.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redrive_amqp091::{ShortStr, Table, queue};
use redrive_emulator_host::Timestamp;
use sha2::{Digest as _, Sha256};

use super::exchanges::{check_not_default, check_not_reserved, detached};
use super::replies::REPLY_TO;
use crate::broker::access::Right;
use crate::broker::events::DropReason;
use crate::broker::exchange::{Binding, Destination};
use crate::broker::failure::{Failure, Outcome};
use crate::broker::queue::flow::Flow;
use crate::broker::queue::settings::{Kind, QueueKind, Settings, inequivalent, kind_of};
use crate::broker::queue::{Armed, Queue};
use crate::broker::{At, Broker, Change, ConnectionId, QueueId, QueueRecord, VHostId, Version};

/// What a queue is declared as.
pub(in crate::broker) struct NewQueue {
    pub(in crate::broker) vhost: VHostId,
    pub(in crate::broker) name: ShortStr,
    pub(in crate::broker) kind: QueueKind,
    pub(in crate::broker) durable: bool,
    pub(in crate::broker) auto_delete: bool,
    pub(in crate::broker) owner: Option<ConnectionId>,
    pub(in crate::broker) arguments: Table,
    pub(in crate::broker) settings: Settings,
}

/// A declaration of a queue that does not exist.
pub(in crate::broker) struct Declared {
    pub(in crate::broker) vhost: VHostId,
    pub(in crate::broker) name: ShortStr,
    /// The client gave it its name.
    pub(in crate::broker) named: bool,
    pub(in crate::broker) durable: bool,
    pub(in crate::broker) auto_delete: bool,
    pub(in crate::broker) owner: Option<ConnectionId>,
    pub(in crate::broker) arguments: Table,
}

impl NewQueue {
    /// Checks a declaration.
    pub(in crate::broker) fn check(version: Version, vhost: &ShortStr, declared: Declared) -> Outcome<Self> {
        let Declared { vhost: id, name, named, durable, auto_delete, owner, arguments } = declared;
        let kind = kind_of(&arguments).map_err(|kind| match kind {
            Kind::Stream => Failure::not_implemented(&format!(
                "queue '{name}' in vhost '{vhost}': the emulator has no streams; use x-queue-type classic or quorum"
            )),
            Kind::Unknown(other) => Failure::precondition(&format!(
                "invalid arg 'x-queue-type' for queue '{name}' in vhost '{vhost}': \"unsupported queue type '{other}'\""
            )),
        })?;
        if kind == QueueKind::Quorum && !named {
            return Err(Failure::precondition(
                "Cannot declare a server-named queue for type rabbit_quorum_queue",
            ));
        }
        let settings = Settings::from_arguments(&arguments, kind, version).map_err(|(argument, what)| {
            let separator = if what.starts_with("of ") { "" } else { ":" };
            Failure::precondition(&format!(
                "invalid arg '{argument}' for queue '{name}' in vhost '{vhost}'{separator} {what}"
            ))
        })?;
        let wrong = match kind {
            QueueKind::Quorum if !durable => Some("non-durable"),
            QueueKind::Quorum if owner.is_some() => Some("exclusive-owner"),
            QueueKind::Quorum if auto_delete => Some("auto-delete"),
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(Failure::precondition(&format!(
                "invalid property '{wrong}' for queue '{name}' in vhost '{vhost}'"
            )));
        }
        Ok(Self { vhost: id, name, kind, durable, auto_delete, owner, arguments, settings })
    }
}

impl Broker {
    pub(super) fn declare_queue(&mut self, at: At, declare: &queue::Declare) -> Outcome {
        if declare.passive {
            return self.declare_passively(at, declare);
        }
        let name = if declare.queue.is_empty() {
            ShortStr::truncated(&format!("amq.gen-{}", self.generated_name()))
        } else {
            declare.queue.detached()
        };
        self.permit(at, Right::Configure, "queue", &name)?;
        let vhost_id = self.vhost_of(at);
        let arguments = detached(&declare.arguments);
        if let Some(id) = self.queue_named(vhost_id, &name) {
            self.check_lock(at, id, declare.exclusive)?;
            self.check_equivalent_queue(id, declare, &arguments)?;
            self.use_by_declare(id);
            return self.queue_declared(at, id, declare.no_wait);
        }
        if !declare.queue.is_empty() {
            check_not_reserved("queue", &name)?;
        }
        let named = !declare.queue.is_empty();
        let (durable, auto_delete) = (declare.durable, declare.auto_delete);
        let owner = declare.exclusive.then_some(at.connection);
        let new = NewQueue::check(
            self.version(),
            &self.vhost(vhost_id).name,
            Declared { vhost: vhost_id, name, named, durable, auto_delete, owner, arguments },
        )?;
        if let Some(exchange) = &new.settings.dead_letter_exchange {
            self.permit(at, Right::Read, "queue", &new.name)?;
            self.permit(at, Right::Write, "exchange", exchange)?;
        }
        let id = self.add_queue(new);
        if declare.exclusive
            && let Some(connection) = self.connection(at.connection)
        {
            connection.exclusive_queues.insert(id);
        }
        self.queue_declared(at, id, declare.no_wait)
    }

    /// Creates a queue.
    pub(in crate::broker) fn add_queue(&mut self, new: NewQueue) -> QueueId {
        let id = QueueId(self.next_id());
        self.add_queue_as(id, new, self.now);
        id
    }

    /// Creates a queue that has a number already.
    pub(in crate::broker) fn add_queue_as(&mut self, id: QueueId, new: NewQueue, created: Timestamp) {
        let queue = Queue {
            id,
            vhost: new.vhost,
            name: new.name.clone(),
            kind: new.kind,
            durable: new.durable,
            auto_delete: new.auto_delete,
            owner: new.owner,
            arguments: new.arguments,
            by_arguments: new.settings.clone(),
            policy: None,
            settings: new.settings,
            ready: Default::default(),
            unacked: 0,
            delayed: Default::default(),
            undelivered: Default::default(),
            leaving: Default::default(),
            consumers: Default::default(),
            exclusive_consumer: None,
            had_consumer: false,
            created,
            used: self.now,
            armed: Armed::default(),
            given_back: false,
            looked: false,
            flow: Flow::default(),
            dirty: false,
            leaderless: false,
        };
        if queue.durable && queue.owner.is_none() {
            let record = QueueRecord::of(&queue);
            self.note(|| Change::PutQueue(record));
        }
        self.queues.insert(id, queue);
        if let Some(vhost) = self.vhosts.get_mut(&new.vhost) {
            vhost.queues.insert(new.name, id);
        }
        self.apply_policy(id);
    }

    fn declare_passively(&mut self, at: At, declare: &queue::Declare) -> Outcome {
        let name = self.queue_or_last(at, &declare.queue)?;
        if name.as_bytes().starts_with(REPLY_TO.as_bytes()) && self.reply_consumer(&name).is_some() {
            self.send(at, queue::DeclareOk { queue: name, message_count: 0, consumer_count: 1 });
            return Ok(());
        }
        let id = self.find_queue(at, &name)?;
        self.use_by_declare(id);
        self.queue_declared(at, id, declare.no_wait)
    }

    /// A declaration renews the time of `x-expires`, except of a quorum queue.
    fn use_by_declare(&mut self, id: QueueId) {
        let now = self.now;
        if let Some(queue) = self.queues.get_mut(&id)
            && queue.kind == QueueKind::Classic
        {
            queue.used = now;
            self.mark_dirty(id);
        }
    }

    fn queue_declared(&mut self, at: At, id: QueueId, no_wait: bool) -> Outcome {
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        let name = queue.name.clone();
        let message_count = u32::try_from(queue.ready.len()).unwrap_or(u32::MAX);
        let consumer_count = u32::try_from(queue.consumers.len()).unwrap_or(u32::MAX);
        if let Some(channel) = self.channel(at) {
            channel.last_queue = name.clone();
        }
        if !no_wait {
            self.send(at, queue::DeclareOk { queue: name, message_count, consumer_count });
        }
        Ok(())
    }

    fn check_equivalent_queue(&self, id: QueueId, declare: &queue::Declare, arguments: &Table) -> Outcome {
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        let (name, vhost) = (&queue.name, &self.vhost(queue.vhost).name);
        for (what, received, current) in [
            ("durable", declare.durable, queue.durable),
            ("auto_delete", declare.auto_delete, queue.auto_delete),
        ] {
            if received != current {
                return Err(Failure::precondition(&format!(
                    "inequivalent arg '{what}' for queue '{name}' in vhost '{vhost}': received '{received}' but current is '{current}'"
                )));
            }
        }
        match inequivalent(arguments, &queue.arguments, queue.kind, self.version()) {
            None => Ok(()),
            Some((argument, received, current)) => Err(Failure::precondition(&format!(
                "inequivalent arg '{argument}' for queue '{name}' in vhost '{vhost}': received {received} but current is {current}"
            ))),
        }
    }

    /// Returns the name, or that of the queue that was declared last.
    pub(super) fn queue_or_last(&mut self, at: At, name: &ShortStr) -> Outcome<ShortStr> {
        if !name.is_empty() {
            return Ok(name.clone());
        }
        match self.channel(at) {
            Some(channel) if !channel.last_queue.is_empty() => Ok(channel.last_queue.clone()),
            _ => Err(Failure {
                text: "NOT_FOUND - no previously declared queue".to_owned(),
                ..self.not_found(at, "queue", name)
            }),
        }
    }

    /// Returns a queue that this connection may use.
    pub(super) fn find_queue(&self, at: At, name: &ShortStr) -> Outcome<QueueId> {
        let vhost = self.vhost_of(at);
        let id = self.queue_named(vhost, name).ok_or_else(|| self.not_found(at, "queue", name))?;
        let owner = self.queues.get(&id).and_then(|queue| queue.owner);
        self.check_lock(at, id, owner.is_some())?;
        Ok(id)
    }

    /// An exclusive queue belongs to one connection, and is declared as exclusive.
    fn check_lock(&self, at: At, id: QueueId, exclusive: bool) -> Outcome {
        let Some(queue) = self.queues.get(&id) else { return Ok(()) };
        let fits = match queue.owner {
            None => !exclusive,
            Some(owner) => exclusive && owner == at.connection,
        };
        if fits {
            return Ok(());
        }
        let (name, vhost) = (&queue.name, &self.vhost(queue.vhost).name);
        Err(Failure::locked(&format!(
            "cannot obtain exclusive access to locked queue '{name}' in vhost '{vhost}'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration."
        )))
    }

    pub(super) fn bind_queue(&mut self, at: At, bind: &queue::Bind) -> Outcome {
        let (name, key) = self.binding_ends(at, &bind.queue, &bind.routing_key)?;
        let id = self.check_queue_binding(at, &name, &bind.exchange)?;
        let destination = Destination::Queue(id);
        let binding = Binding { destination, key: key.detached(), arguments: detached(&bind.arguments) };
        self.add_binding(at, &bind.exchange, binding)?;
        if !bind.no_wait {
            self.send(at, queue::BindOk {});
        }
        Ok(())
    }

    pub(super) fn unbind_queue(&mut self, at: At, unbind: &queue::Unbind) -> Outcome {
        let (name, key) = self.binding_ends(at, &unbind.queue, &unbind.routing_key)?;
        check_not_default(&unbind.exchange)?;
        self.permit(at, Right::Write, "queue", &name)?;
        self.permit(at, Right::Read, "exchange", &unbind.exchange)?;
        // What is not there is not bound either.
        if let Some(id) = self.queue_named(self.vhost_of(at), &name) {
            let owner = self.queues.get(&id).and_then(|queue| queue.owner);
            self.check_lock(at, id, owner.is_some())?;
            let destination = Destination::Queue(id);
            let binding = Binding { destination, key, arguments: unbind.arguments.decode() };
            self.remove_binding(at, &unbind.exchange, &binding)?;
        }
        self.send(at, queue::UnbindOk {});
        Ok(())
    }

    /// Without queue and key, both are the name of the queue that was declared last.
    fn binding_ends(&mut self, at: At, queue: &ShortStr, key: &ShortStr) -> Outcome<(ShortStr, ShortStr)> {
        let name = self.queue_or_last(at, queue)?;
        let key = if queue.is_empty() && key.is_empty() { name.clone() } else { key.clone() };
        Ok((name, key))
    }

    fn check_queue_binding(&self, at: At, name: &ShortStr, exchange: &ShortStr) -> Outcome<QueueId> {
        check_not_default(exchange)?;
        self.permit(at, Right::Write, "queue", name)?;
        self.permit(at, Right::Read, "exchange", exchange)?;
        let id = self.find_queue(at, name)?;
        self.find_exchange(at, exchange)?;
        Ok(id)
    }

    pub(super) fn purge_queue(&mut self, at: At, purge: &queue::Purge) -> Outcome {
        let name = self.queue_or_last(at, &purge.queue)?;
        self.permit(at, Right::Read, "queue", &name)?;
        let id = self.find_queue(at, &name)?;
        let message_count = u32::try_from(self.purge(id)).unwrap_or(u32::MAX);
        if !purge.no_wait {
            self.send(at, queue::PurgeOk { message_count });
        }
        Ok(())
    }

    pub(super) fn delete_queue_by(&mut self, at: At, delete: &queue::Delete) -> Outcome {
        let name = self.queue_or_last(at, &delete.queue)?;
        self.permit(at, Right::Configure, "queue", &name)?;
        let vhost = self.vhost_of(at);
        let mut message_count = 0;
        if let Some(id) = self.queue_named(vhost, &name) {
            let owner = self.queues.get(&id).and_then(|queue| queue.owner);
            self.check_lock(at, id, owner.is_some())?;
            let Some(queue) = self.queues.get(&id) else { return Ok(()) };
            let vhost = &self.vhost(vhost).name;
            if queue.kind == QueueKind::Quorum && (delete.if_empty || delete.if_unused) {
                let flag = if delete.if_unused { "if-unused" } else { "if-empty" };
                return Err(Failure::not_implemented(&format!(
                    "cannot delete queue '{name}' in vhost '{vhost}'. queue.delete operations with {flag} flag set are not supported by quorum queues"
                )));
            }
            if delete.if_empty && queue.ready.len() > 0 {
                return Err(Failure::precondition(&format!("queue '{name}' in vhost '{vhost}' not empty")));
            }
            if delete.if_unused && !queue.consumers.is_empty() {
                return Err(Failure::precondition(&format!("queue '{name}' in vhost '{vhost}' in use")));
            }
            message_count = u32::try_from(queue.ready.len()).unwrap_or(u32::MAX);
            self.delete_queue(id, DropReason::QueueDeleted);
        }
        if !delete.no_wait {
            self.send(at, queue::DeleteOk { message_count });
        }
        Ok(())
    }

    /// Returns a name that looks like RabbitMQ's, and was not given before.
    pub(super) fn generated_name(&mut self) -> String {
        let number = self.next_id();
        // Names stay different over a restart: durable queues may have one.
        let hash = Sha256::new()
            .chain_update(number.to_be_bytes())
            .chain_update(self.now.millis().to_be_bytes())
            .finalize();
        URL_SAFE_NO_PAD.encode(&hash[..16])
    }
}
