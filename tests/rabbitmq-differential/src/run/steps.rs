//! One step, and what the broker answers to it.

use super::{CONTROL, Consumer, PUBLISHER, Run, Step, WORKERS, Worker};
use crate::client::{Client, Event, Reply};
use crate::message::Message;
use crate::scenario::{CHANNELS, Dress, Forged, Publish, Reason, Settle};
use crate::wire::{Reader, Table, Value, Writer, text};
use anyhow::Result;
use std::time::{Duration, Instant};

/// How long a confirm may take: only a queue that cannot answer needs longer.
const CONFIRM: Duration = Duration::from_secs(20);
/// How long a broker may take to tell consumers that their queue is gone.
const CANCEL: Duration = Duration::from_secs(5);
/// The time of a message that a client made up.
const LONG_AGO: u64 = 1_600_000_000;

impl Run<'_> {
    pub(super) fn step(&mut self, step: &Step) -> Result<()> {
        self.idle = false;
        match step {
            Step::Publish(publish) => self.publish(publish)?,
            Step::Get { channel, queue, no_ack } => self.get(*channel, *queue, *no_ack)?,
            Step::Consume { channel, queue, prefetch, priority, exclusive, no_ack } => {
                self.consume(*channel, *queue, *prefetch, *priority, [*no_ack, *exclusive])?;
            }
            Step::Cancel { channel } => self.cancel(*channel)?,
            Step::Settle { channel, which, how, multiple } => {
                self.settle(*channel, *which, *how, *multiple)?;
            }
            Step::SettleUnknown { channel } => {
                self.open_worker(*channel)?;
                self.client.send(
                    number(*channel),
                    (60, 80),
                    Writer::default().long_long(999).bits(&[false]),
                )?;
            }
            Step::Recover { channel } => self.recover(*channel)?,
            Step::Close { channel } => self.close(*channel)?,
            Step::TxSelect { channel } => self.transact(*channel, 10)?,
            Step::TxCommit { channel } => self.transact(*channel, 20)?,
            Step::TxRollback { channel } => self.transact(*channel, 30)?,
            Step::TxPublish { channel, publish } => {
                self.open_worker(*channel)?;
                let message = self.message(publish);
                let (exchange, key) = (self.names.exchange(publish.exchange), self.names.key(publish.key));
                self.client.publish(number(*channel), &exchange, &key, publish.mandatory, &message)?;
            }
            Step::Purge { queue } => {
                let mut arguments = Writer::default();
                arguments.short(0).short_text(&self.names.queue(*queue)).bits(&[false]);
                let reply = self.control((50, 30), &arguments, (50, 31))?;
                self.say_count("purged", &reply)?;
            }
            Step::Delete { queue, if_unused, if_empty } => self.delete(*queue, *if_unused, *if_empty)?,
            Step::Declare { queue } => self.declare(*queue, None)?,
            Step::DeclareOtherwise { queue, argument } => self.declare(*queue, Some(argument))?,
            Step::DeclareExchange { exchange } => self.declare_exchange(*exchange)?,
            Step::DeleteExchange { exchange, if_unused } => {
                let mut arguments = Writer::default();
                arguments.short(0).short_text(&self.names.own_exchange(*exchange)).bits(&[*if_unused, false]);
                self.control((40, 20), &arguments, (40, 21))?;
            }
            Step::Bind(binding) => self.bind(binding, true)?,
            Step::Unbind(binding) => self.bind(binding, false)?,
            Step::SetPolicy { place, policy } => self.set_policy(*place, policy)?,
            Step::ClearPolicy { place } => self.clear_policy(*place)?,
            Step::Reconnect => {
                // In which order a connection gives back what its channels have is not promised.
                self.close_in_turn()?;
                let mut arguments = Writer::default();
                arguments.short(200).short_text("").short(0).short(0);
                self.client.call(0, (10, 50), &arguments, &[(10, 51)])?;
                self.take_events();
                self.client = Client::connect(self.target.amqp, &self.target.vhost)?;
                (self.control_is_open, self.publisher_is_open) = (false, false);
                self.workers = Default::default();
            }
            Step::Wait { ticks } => {
                self.check_time();
                self.waited += self.names.tick * u32::from(*ticks);
                self.target.clock.pass(self.waited);
                self.group_began = self.waited;
            }
        }
        if self.idle {
            return self.quiet_as_before();
        }
        if moves_messages(step) {
            return self.quiet();
        }
        self.counts = None;
        // Whoever waits for what a channel had may get it now; what became the head of a queue may expire.
        let has_closed =
            |event: &Event| matches!(event, Event::ChannelClosed { channel, .. } if *channel != CONTROL);
        if matches!(step, Step::Get { .. }) || self.client.any_event(has_closed) {
            return self.settle_down();
        }
        self.take_events();
        Ok(())
    }

    fn publish(&mut self, publish: &Publish) -> Result<()> {
        self.reconnect_if_closed()?;
        if !self.publisher_is_open {
            self.client.open(PUBLISHER)?;
            self.client.call(PUBLISHER, (85, 10), Writer::default().bits(&[false]), &[(85, 11)])?;
            self.publisher_is_open = true;
        }
        let message = self.message(publish);
        let (exchange, key) = (self.names.exchange(publish.exchange), self.names.key(publish.key));
        self.client.publish(PUBLISHER, &exchange, &key, publish.mandatory, &message)?;
        let until = Instant::now() + CONFIRM;
        loop {
            let waiting = self.client.waiting();
            if self.client.any_event(ends_publish) || self.client.is_closed() {
                return Ok(());
            }
            self.client.listen_for_one(until)?;
            if self.client.waiting() == waiting && !self.client.is_closed() {
                self.say("no confirm");
                return Ok(());
            }
        }
    }

    fn message(&mut self, publish: &Publish) -> Message {
        self.messages += 1;
        let mut message = match publish.dress {
            Dress::Plain => Message::default(),
            Dress::Full => full(),
            Dress::Disguised => Message { headers: Some(disguised()), ..Message::default() },
            Dress::AsReceived => self.last.clone().unwrap_or_default(),
        };
        message.delivery_mode = Some(2);
        message.body = format!("m{}", self.messages).into_bytes();
        message.body.resize(message.body.len().max(publish.size), b'.');
        if publish.priority.is_some() {
            message.priority = publish.priority;
        }
        message.expiration = publish.expiration.map(|time| self.names.milliseconds(time).to_string());
        let mut headers = message.headers.take().unwrap_or_default();
        let keys = |keys: &[_]| Value::Array(keys.iter().map(|&key| text(self.names.key(key))).collect());
        for (name, list) in [("CC", &publish.cc), ("BCC", &publish.bcc)] {
            if !list.is_empty() {
                set(&mut headers, name, keys(list));
            }
        }
        if let Some(forged) = &publish.death {
            set(&mut headers, "x-death", self.forged(forged));
        }
        message.headers = (!headers.is_empty()).then_some(headers);
        message
    }

    fn forged(&self, forged: &Forged) -> Value {
        let reason = match forged.reason {
            Reason::Rejected => "rejected",
            Reason::Expired => "expired",
            Reason::Maxlen => "maxlen",
        };
        let queue = self.names.queue(forged.queue);
        let entry = vec![
            ("count".to_owned(), Value::Long(forged.count)),
            ("reason".to_owned(), text(reason)),
            ("queue".to_owned(), text(&*queue)),
            ("time".to_owned(), Value::Time(LONG_AGO)),
            ("exchange".to_owned(), text("")),
            ("routing-keys".to_owned(), Value::Array(vec![text(queue)])),
        ];
        Value::Array(vec![Value::Table(entry)])
    }

    fn open_worker(&mut self, place: usize) -> Result<()> {
        self.reconnect_if_closed()?;
        if !self.workers[place].open {
            self.client.open(number(place))?;
            self.workers[place] = Worker { open: true, ..Worker::default() };
        }
        Ok(())
    }

    fn get(&mut self, place: usize, queue: usize, no_ack: bool) -> Result<()> {
        self.open_worker(place)?;
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(queue)).bits(&[no_ack]);
        match self.client.call(number(place), (60, 70), &arguments, &[(60, 71), (60, 72)])? {
            Reply::Got(delivery, left) => {
                let shown = self.words.delivery(&delivery, true);
                self.say(format!("got {shown}, {left} left"));
                if !no_ack {
                    self.workers[place].held.push(delivery.tag);
                }
                self.last = Some(delivery.message);
            }
            Reply::Ok(..) => self.say("empty"),
            Reply::Closed => {}
        }
        Ok(())
    }

    fn consume(
        &mut self,
        place: usize,
        queue: usize,
        prefetch: u16,
        priority: Option<i32>,
        [no_ack, exclusive]: [bool; 2],
    ) -> Result<()> {
        // One consumer for each channel: between two of them no order of deliveries, and so of tags, is promised.
        let places = (0..CHANNELS).map(|step| (place + step) % CHANNELS);
        let Some(place) = places.into_iter().find(|&place| self.workers[place].consumers.is_empty()) else {
            self.idle = true;
            return Ok(());
        };
        self.open_worker(place)?;
        let mut qos = Writer::default();
        qos.long(0).short(prefetch).bits(&[false]);
        self.client.call(number(place), (60, 10), &qos, &[(60, 11)])?;
        self.consumers += 1;
        let consumer = format!("c{}", self.consumers);
        let priority = priority.map(|priority| ("x-priority".to_owned(), Value::Int(priority)));
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(queue)).short_text(&consumer);
        arguments.bits(&[false, no_ack, exclusive, false]).table(&priority.into_iter().collect());
        // Known before the reply: a delivery may overtake it.
        self.workers[place].consumers.push(Consumer { name: consumer, queue, acknowledges: !no_ack });
        self.client.call(number(place), (60, 20), &arguments, &[(60, 21)])?;
        Ok(())
    }

    pub(super) fn cancel(&mut self, place: usize) -> Result<()> {
        let Some(consumer) = self.workers[place].consumers.last().map(|it| it.name.clone()) else {
            self.idle = true;
            return Ok(());
        };
        let mut arguments = Writer::default();
        arguments.short_text(&consumer).bits(&[false]);
        self.client.call(number(place), (60, 30), &arguments, &[(60, 31)])?;
        // What arrived before the reply is still to be noted.
        self.take_events();
        self.workers[place].consumers.retain(|it| it.name != consumer);
        Ok(())
    }

    /// On the channel, or else on the next one that has a message.
    fn settle(&mut self, place: usize, which: usize, how: Settle, multiple: bool) -> Result<()> {
        let places = (0..CHANNELS).map(|step| (place + step) % CHANNELS);
        let Some(place) = places.into_iter().find(|&place| !self.workers[place].held.is_empty()) else {
            self.idle = true;
            return Ok(());
        };
        let worker = &mut self.workers[place];
        let tag = worker.held[which.min(worker.held.len() - 1)];
        let (settled, held) = worker.held.iter().partition(|&&held| held == tag || multiple && held < tag);
        worker.held = held;
        if worker.transacts {
            worker.uncommitted.extend::<Vec<_>>(settled);
        }
        let mut arguments = Writer::default();
        arguments.long_long(tag);
        let method = match how {
            Settle::Ack => {
                arguments.bits(&[multiple]);
                80
            }
            Settle::Nack { requeue } => {
                arguments.bits(&[multiple, requeue]);
                120
            }
            Settle::Reject { requeue } => {
                // It has no `multiple`.
                arguments.bits(&[requeue]);
                90
            }
        };
        self.client.send(number(place), (60, method), &arguments)
    }

    fn recover(&mut self, place: usize) -> Result<()> {
        self.open_worker(place)?;
        self.workers[place].held.clear();
        self.client.call(number(place), (60, 110), Writer::default().bits(&[true]), &[(60, 111)])?;
        Ok(())
    }

    pub(super) fn close(&mut self, place: usize) -> Result<()> {
        if self.client.is_closed() || !self.workers[place].open {
            return Ok(());
        }
        let mut arguments = Writer::default();
        arguments.short(200).short_text("").short(0).short(0);
        self.client.call(number(place), (20, 40), &arguments, &[(20, 41)])?;
        self.take_events();
        self.workers[place] = Worker::default();
        Ok(())
    }

    /// Closes the channels, each when what the one before had is back.
    pub(super) fn close_in_turn(&mut self) -> Result<()> {
        for place in 0..CHANNELS {
            let holds = !self.workers[place].held.is_empty() || !self.workers[place].uncommitted.is_empty();
            self.close(place)?;
            if holds && place + 1 < CHANNELS {
                self.settle_down()?;
            }
        }
        Ok(())
    }

    /// Select, commit, or roll back.
    fn transact(&mut self, place: usize, method: u16) -> Result<()> {
        self.open_worker(place)?;
        let reply = self.client.call(number(place), (90, method), &Writer::default(), &[(90, method + 1)])?;
        if reply == Reply::Closed {
            return Ok(());
        }
        let worker = &mut self.workers[place];
        worker.transacts = true;
        let uncommitted = std::mem::take(&mut worker.uncommitted);
        if method == 30 {
            worker.held.extend(uncommitted);
            worker.held.sort_unstable();
        }
        Ok(())
    }

    fn say_count(&mut self, what: &str, reply: &Reply) -> Result<()> {
        if let Reply::Ok(_, reply) = reply {
            let count = Reader(reply).long()?;
            self.say(format!("{what} {count}"));
        }
        Ok(())
    }

    fn delete(&mut self, queue: usize, if_unused: bool, if_empty: bool) -> Result<()> {
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(queue)).bits(&[if_unused, if_empty, false]);
        let reply = self.control((50, 40), &arguments, (50, 41))?;
        if reply != Reply::Closed {
            self.existing.remove(&queue);
            self.await_cancels(queue)?;
        }
        self.say_count("deleted", &reply)
    }

    /// A quorum queue is deleted before its consumers are told.
    fn await_cancels(&mut self, queue: usize) -> Result<()> {
        let consumers = self.workers.iter().flat_map(|worker| &worker.consumers);
        let names: Vec<_> = consumers.filter(|it| it.queue == queue).map(|it| &it.name).collect();
        let until = Instant::now() + CANCEL;
        let told = |client: &Client, name: &str| {
            client.any_event(|event| matches!(event, Event::Cancel { consumer, .. } if consumer == name))
        };
        while Instant::now() < until && !names.iter().all(|name| told(&self.client, name)) {
            self.client.listen_for_one(until)?;
        }
        Ok(())
    }
}

/// Returns true if the broker may do more than answer.
fn moves_messages(step: &Step) -> bool {
    !matches!(
        step,
        Step::Get { .. }
            | Step::TxSelect { .. }
            | Step::TxPublish { .. }
            | Step::TxRollback { .. }
            | Step::Declare { .. }
            | Step::DeclareOtherwise { .. }
            | Step::DeclareExchange { .. }
            | Step::DeleteExchange { .. }
            | Step::Bind(_)
            | Step::Unbind(_)
    )
}

fn ends_publish(event: &Event) -> bool {
    match event {
        Event::Ack { channel, .. } | Event::Nack { channel, .. } | Event::ChannelClosed { channel, .. } => {
            *channel == PUBLISHER
        }
        _ => false,
    }
}

fn number(place: usize) -> u16 {
    let number = WORKERS + u16::try_from(place).expect("there are few channels");
    debug_assert!(number < CONTROL);
    number
}

fn set(headers: &mut Table, name: &str, value: Value) {
    headers.retain(|(known, _)| known != name);
    headers.push((name.to_owned(), value));
}

fn full() -> Message {
    let some = |value: &str| Some(value.to_owned());
    Message {
        content_type: some("text/plain"),
        content_encoding: some("utf-8"),
        headers: Some(vec![
            ("color".to_owned(), text("red")),
            ("int".to_owned(), Value::Int(-1)),
            ("long".to_owned(), Value::Long(1 << 40)),
            ("yes".to_owned(), Value::Bool(true)),
            ("nothing".to_owned(), Value::Void),
            ("float".to_owned(), Value::Other(b'd', 1.5_f64.to_be_bytes().to_vec())),
            ("bytes".to_owned(), Value::Other(b'x', vec![0, 0, 0, 2, 1, 2])),
            (
                "inner".to_owned(),
                Value::Table(vec![("list".to_owned(), Value::Array(vec![text("a"), Value::Int(2)]))]),
            ),
        ]),
        delivery_mode: None,
        priority: None,
        correlation_id: some("correlation"),
        reply_to: some("reply"),
        expiration: None,
        message_id: some("id"),
        timestamp: Some(LONG_AGO),
        kind: some("type"),
        user_id: some("guest"),
        app_id: some("app"),
        cluster_id: some("cluster"),
        body: Vec::new(),
    }
}

fn disguised() -> Table {
    vec![
        ("x-delivery-count".to_owned(), Value::Long(7)),
        ("x-acquired-count".to_owned(), Value::Long(3)),
        ("x-first-death-queue".to_owned(), text("forged")),
        ("x-last-death-reason".to_owned(), text("forged")),
    ]
}
