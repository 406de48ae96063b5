//! Exchanges and their bindings to each other.

use redrive_amqp091::{ShortStr, Table, exchange};

use crate::broker::access::Right;
use crate::broker::exchange::{Binding, Destination, Exchange, ExchangeKind};
use crate::broker::failure::{Failure, Outcome};
use crate::broker::lifecycle::alternate_of;
use crate::broker::queue::settings::described;
use crate::broker::{At, Broker, Change, ExchangeRecord};

impl Broker {
    pub(super) fn declare_exchange(&mut self, at: At, declare: &exchange::Declare) -> Outcome {
        let name = &declare.exchange;
        check_not_default(name)?;
        if declare.passive {
            self.find_exchange(at, name)?;
            return self.exchange_declared(at, declare);
        }
        self.permit(at, Right::Configure, "exchange", name)?;
        let kind_name = declare.kind.to_str();
        let arguments = declare.arguments.decode();
        let Some(kind) = ExchangeKind::parse(&kind_name) else {
            let text = format!("unknown exchange type '{kind_name}'");
            return Err(if self.version().is_3_10() {
                Failure::command_invalid(&text)
            } else {
                Failure::precondition(&text)
            });
        };
        let vhost_id = self.vhost_of(at);
        let vhost = self.vhost(vhost_id);
        if let Some(exchange) = vhost.exchanges.get(name.as_bytes()) {
            check_equivalent(exchange, declare, &arguments, &vhost.name)?;
            return self.exchange_declared(at, declare);
        }
        check_not_reserved("exchange", name)?;
        let alternate = alternate_of(&arguments);
        if let Some(alternate) = &alternate {
            self.permit(at, Right::Read, "exchange", name)?;
            self.permit(at, Right::Write, "exchange", alternate)?;
        }
        let mut exchange = Exchange::new(name.detached(), kind);
        exchange.durable = declare.durable;
        exchange.auto_delete = declare.auto_delete;
        exchange.internal = declare.internal;
        exchange.alternate = alternate;
        exchange.arguments = detached(&declare.arguments);
        self.add_exchange(vhost_id, exchange);
        self.exchange_declared(at, declare)
    }

    pub(in crate::broker) fn add_exchange(&mut self, vhost_id: crate::broker::VHostId, exchange: Exchange) {
        if exchange.durable {
            let record = ExchangeRecord::of(vhost_id, &exchange);
            self.note(|| Change::PutExchange(record));
        }
        if let Some(vhost) = self.vhosts.get_mut(&vhost_id) {
            vhost.exchanges.insert(exchange.name.clone(), exchange);
            if !vhost.policies.is_empty() {
                self.apply_policies(vhost_id);
            }
        }
    }

    fn exchange_declared(&mut self, at: At, declare: &exchange::Declare) -> Outcome {
        if !declare.no_wait {
            self.send(at, exchange::DeclareOk {});
        }
        Ok(())
    }

    pub(super) fn delete_exchange_by(&mut self, at: At, delete: &exchange::Delete) -> Outcome {
        let name = &delete.exchange;
        check_not_default(name)?;
        self.permit(at, Right::Configure, "exchange", name)?;
        let vhost_id = self.vhost_of(at);
        let vhost = self.vhost(vhost_id);
        if name.as_bytes().starts_with(b"amq.") {
            let vhost = &vhost.name;
            return Err(Failure::refused(&format!(
                "deletion of system exchange '{name}' in vhost '{vhost}' not allowed"
            )));
        }
        if let Some(exchange) = vhost.exchanges.get(name.as_bytes()) {
            if delete.if_unused && exchange.is_bound() {
                let vhost = &vhost.name;
                return Err(Failure::precondition(&format!("exchange '{name}' in vhost '{vhost}' in use")));
            }
            self.delete_exchange(vhost_id, name);
        }
        if !delete.no_wait {
            self.send(at, exchange::DeleteOk {});
        }
        Ok(())
    }

    pub(super) fn bind_exchange(&mut self, at: At, bind: exchange::Bind) -> Outcome {
        let exchange::Bind { destination, source, routing_key, no_wait, arguments, .. } = bind;
        self.check_exchange_binding(at, &destination, &source)?;
        let destination = Destination::Exchange(destination.detached());
        let binding = Binding { destination, key: routing_key.detached(), arguments: detached(&arguments) };
        self.add_binding(at, &source, binding)?;
        if !no_wait {
            self.send(at, exchange::BindOk {});
        }
        Ok(())
    }

    pub(super) fn unbind_exchange(&mut self, at: At, unbind: exchange::Unbind) -> Outcome {
        let exchange::Unbind { destination, source, routing_key, no_wait, arguments, .. } = unbind;
        self.permit_exchange_binding(at, &destination, &source)?;
        let destination = Destination::Exchange(destination);
        let binding = Binding { destination, key: routing_key, arguments: arguments.decode() };
        self.remove_binding(at, &source, &binding)?;
        if !no_wait {
            self.send(at, exchange::UnbindOk {});
        }
        Ok(())
    }

    fn check_exchange_binding(&self, at: At, destination: &ShortStr, source: &ShortStr) -> Outcome {
        self.permit_exchange_binding(at, destination, source)?;
        self.find_exchange(at, source)?;
        self.find_exchange(at, destination)
    }

    fn permit_exchange_binding(&self, at: At, destination: &ShortStr, source: &ShortStr) -> Outcome {
        check_not_default(destination)?;
        check_not_default(source)?;
        self.permit(at, Right::Write, "exchange", destination)?;
        self.permit(at, Right::Read, "exchange", source)
    }

    pub(super) fn find_exchange(&self, at: At, name: &ShortStr) -> Outcome {
        let vhost = self.vhost(self.vhost_of(at));
        if vhost.exchanges.contains_key(name.as_bytes()) {
            Ok(())
        } else {
            Err(self.not_found(at, "exchange", name))
        }
    }

    pub(super) fn add_binding(&mut self, at: At, source: &ShortStr, binding: Binding) -> Outcome {
        let vhost = self.vhost_of(at);
        self.bind(vhost, source, binding);
        Ok(())
    }

    pub(in crate::broker) fn bind(
        &mut self,
        vhost_id: crate::broker::VHostId,
        source: &ShortStr,
        binding: Binding,
    ) {
        let durable_end = match &binding.destination {
            Destination::Queue(id) => {
                self.queues.get(id).is_some_and(|queue| queue.durable && queue.owner.is_none())
            }
            Destination::Exchange(name) => self
                .vhosts
                .get(&vhost_id)
                .and_then(|vhost| vhost.exchanges.get(name.as_bytes()))
                .is_some_and(|exchange| exchange.durable),
        };
        let Some(vhost) = self.vhosts.get_mut(&vhost_id) else { return };
        let Some(exchange) = vhost.exchanges.get_mut(source.as_bytes()) else { return };
        let (name, durable) = (exchange.name.clone(), exchange.durable && durable_end);
        if exchange.bind(binding.clone()) && durable {
            self.note(|| Change::PutBinding { vhost: vhost_id, source: name, binding });
        }
    }

    pub(super) fn remove_binding(&mut self, at: At, source: &ShortStr, binding: &Binding) -> Outcome {
        let vhost_id = self.vhost_of(at);
        let Some(vhost) = self.vhosts.get_mut(&vhost_id) else { return Ok(()) };
        let Some(exchange) = vhost.exchanges.get_mut(source.as_bytes()) else { return Ok(()) };
        let durable = exchange.durable;
        if exchange.unbind(binding) {
            if durable {
                let source = source.detached();
                self.note(|| Change::RemoveBinding { vhost: vhost_id, source, binding: binding.clone() });
            }
            self.delete_if_unused(vhost_id, source);
        }
        Ok(())
    }
}

pub(super) fn check_not_default(name: &ShortStr) -> Outcome {
    if name.is_empty() {
        return Err(Failure::refused("operation not permitted on the default exchange"));
    }
    Ok(())
}

pub(super) fn check_not_reserved(what: &str, name: &ShortStr) -> Outcome {
    if name.as_bytes().starts_with(b"amq.") {
        return Err(Failure::refused(&format!("{what} name '{name}' contains reserved prefix 'amq.*'")));
    }
    Ok(())
}

/// Decodes a table into bytes of its own: it may be kept for long.
pub(super) fn detached(arguments: &redrive_amqp091::RawTable) -> Table {
    arguments.detached().decode()
}

fn check_equivalent(
    exchange: &Exchange,
    declare: &exchange::Declare,
    arguments: &Table,
    vhost: &ShortStr,
) -> Outcome {
    let name = &exchange.name;
    let differs = |what: &str, received: &str, current: &str| {
        Err(Failure::precondition(&format!(
            "inequivalent arg '{what}' for exchange '{name}' in vhost '{vhost}': received {received} but current is {current}"
        )))
    };
    let quoted = |text: &dyn std::fmt::Display| format!("'{text}'");
    if declare.kind != exchange.kind.name() {
        return differs("type", &quoted(&declare.kind), &quoted(&exchange.kind.name()));
    }
    for (what, received, current) in [
        ("durable", declare.durable, exchange.durable),
        ("auto_delete", declare.auto_delete, exchange.auto_delete),
        ("internal", declare.internal, exchange.internal),
    ] {
        if received != current {
            return differs(what, &quoted(&received), &quoted(&current));
        }
    }
    let key = "alternate-exchange";
    if arguments.get(key) != exchange.arguments.get(key) {
        return differs(key, &described(arguments.get(key)), &described(exchange.arguments.get(key)));
    }
    Ok(())
}
