//! Queues, exchanges, bindings and policies.

use super::{Destination, Run, names};
use crate::client::{Event, Reply};
use crate::scenario::{Argument, Binding, Kind, Policy};
use crate::wire::{Reader, Writer};
use anyhow::Result;
use std::time::{Duration, Instant};

/// How long a broker needs to apply a policy to queues that are there.
const APPLY: Duration = Duration::from_millis(25);

impl Run<'_> {
    pub(super) fn declare(&mut self, place: usize, otherwise: Option<&Argument>) -> Result<()> {
        let queue = &self.scenario.queues[place];
        let mut list = queue.arguments.clone();
        list.extend(otherwise.cloned());
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(place)).bits(&[false, true, false, false, false]);
        arguments.table(&self.names.queue_arguments(queue.kind, &list));
        match self.control((50, 10), &arguments, (50, 11))? {
            Reply::Ok(_, reply) => {
                self.existing.insert(place);
                let mut reader = Reader(&reply);
                reader.short_text()?;
                let (messages, consumers) = (reader.long()?, reader.long()?);
                self.say(match queue.kind {
                    Kind::Classic => format!("declared: {messages} for {consumers}"),
                    Kind::Quorum => format!("declared: {messages}"),
                });
            }
            Reply::Got(..) | Reply::Closed => {
                // A node that is too busy to start a quorum queue: says nothing.
                self.late |=
                    self.client.any_event(|event| matches!(event, Event::ConnectionClosed { code: 541, .. }));
                self.take_events();
            }
        }
        // A quorum queue has no leader at once.
        if queue.kind == Kind::Quorum {
            self.client.listen(Instant::now() + self.target.clock.pause())
        } else {
            Ok(())
        }
    }

    pub(super) fn declare_exchange(&mut self, place: usize) -> Result<()> {
        let Some(exchange) = self.scenario.exchanges.get(place) else { return Ok(()) };
        let mut arguments = Writer::default();
        arguments
            .short(0)
            .short_text(&self.names.own_exchange(place))
            .short_text(names::exchange_type(exchange.kind));
        arguments.bits(&[false, true, false, exchange.internal, false]);
        arguments.table(&self.names.exchange_arguments(exchange));
        self.control((40, 10), &arguments, (40, 11))?;
        self.take_events();
        Ok(())
    }

    pub(super) fn bind(&mut self, binding: &Binding, bind: bool) -> Result<()> {
        let source = self.names.own_exchange(binding.source);
        let (class, destination) = match binding.destination {
            Destination::Queue(place) => (50, self.names.queue(place)),
            Destination::Exchange(place) => (40, self.names.own_exchange(place)),
        };
        let mut arguments = Writer::default();
        arguments
            .short(0)
            .short_text(&destination)
            .short_text(&source)
            .short_text(&self.names.pattern(binding.pattern));
        // `queue.unbind` alone has no `nowait`.
        if bind || class == 40 {
            arguments.bits(&[false]);
        }
        arguments.table(&names::binding_arguments(binding.matching));
        let (method, reply) = match (class, bind) {
            (50, true) => (20, 21),
            (50, false) => (50, 51),
            (_, true) => (30, 31),
            (_, false) => (40, 51),
        };
        self.control((class, method), &arguments, (class, reply))?;
        self.take_events();
        Ok(())
    }

    pub(super) fn set_policy(&mut self, place: usize, policy: &Policy) -> Result<()> {
        let body = self.names.policy_body(place, policy);
        let status = self.target.manage("PUT", &self.policy_path(place), Some(&body))?;
        self.policies.insert(place);
        // Created or changed, one and the same for the queues.
        self.say(if status < 300 { "policy set".to_owned() } else { format!("policy refused: {status}") });
        self.client.listen(Instant::now() + self.target.clock.settling(APPLY))
    }

    pub(super) fn clear_policy(&mut self, place: usize) -> Result<()> {
        let status = self.target.manage("DELETE", &self.policy_path(place), None)?;
        self.policies.remove(&place);
        self.say(format!("policy deleted: {status}"));
        self.client.listen(Instant::now() + self.target.clock.settling(APPLY))
    }

    fn policy_path(&self, place: usize) -> String {
        let vhost = if self.target.vhost == "/" { "%2F" } else { &self.target.vhost };
        format!("policies/{vhost}/{}", self.names.policy(place))
    }
}
