//! Dead-lettering: what a death writes on a message, and where the message goes.

use std::sync::Arc;

use redrive_amqp091::{ShortStr, Table, Value};
use redrive_emulator_host::Timestamp;

use super::events::{DropReason, EventKind, MessageView};
use super::message::{Counts, Message, header_keys};
use super::queue::dying::Dying;
use super::queue::ready::Stored;
use super::queue::settings::QueueKind;
use super::reason::Reason;
use super::{Broker, Change, QueueId, VHostId, Version};

/// A message that left a queue, and is to be routed by the dead-letter exchange.
#[derive(Debug)]
pub(crate) struct DeadLetter {
    pub(crate) queue: QueueId,
    pub(crate) vhost: VHostId,
    pub(crate) queue_name: ShortStr,
    pub(crate) exchange: ShortStr,
    pub(crate) routing_key: Option<ShortStr>,
    pub(crate) dying: Dying,
    /// The queue keeps it until it arrived.
    pub(crate) keep: bool,
}

/// More deaths of one message without time passing make a long chain.
const SHORT_CHAIN: u32 = 16;
/// The number of dead letters that a queue with at-least-once has on their way: RabbitMQ's default for
/// `dead_letter_worker_consumer_prefetch`. Those that do not arrive hold up all others.
const DEAD_LETTER_PREFETCH: usize = 32;
/// So many deaths in long chains are still carried out.
const MOST_IN_LONG_CHAINS: u32 = 10_000;

const X_DEATH: &str = "x-death";

impl Broker {
    /// Takes a message out of a queue for good: as a dead letter, if the queue has a dead-letter exchange.
    pub(super) fn die(&mut self, id: QueueId, stored: Stored, reason: Reason) {
        self.send_off(id, Dying { stored, reason, taken_by: Vec::new() });
    }

    fn send_off(&mut self, id: QueueId, dying: Dying) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let (vhost, name) = (queue.vhost, queue.name.clone());
        let exchange = queue.settings.dead_letter_exchange.clone();
        match exchange.filter(|_| self.options.dead_lettering) {
            None => {
                self.forget(id, &dying.stored);
                self.dropped(vhost, &name, dying.reason.dropped(), &dying.stored.message);
            }
            Some(exchange) => {
                let keep = queue.kind == QueueKind::Quorum && queue.settings.keeps_dead_letters();
                if keep {
                    queue.leaving.begin(dying.stored.size);
                }
                let routing_key = queue.settings.dead_letter_routing_key.clone();
                let dead =
                    DeadLetter { queue: id, vhost, queue_name: name, exchange, routing_key, dying, keep };
                self.dead.push_back(dead);
            }
        }
    }

    pub(super) fn route_dead_letter(&mut self, dead: DeadLetter) {
        let (id, size, keep) = (dead.queue, dead.dying.stored.size, dead.keep);
        if keep && self.queues.get(&id).is_some_and(|queue| queue.undelivered.len() >= DEAD_LETTER_PREFETCH) {
            self.keep(id, dead.dying);
        } else {
            self.route_dying(dead);
        }
        if keep && let Some(queue) = self.queues.get_mut(&id) {
            queue.leaving.end(size);
            self.mark_dirty(id);
        }
    }

    fn route_dying(&mut self, mut dead: DeadLetter) {
        let version = self.version();
        let message = dying(
            &dead.dying.stored.message,
            &Death {
                reason: dead.dying.reason,
                queue: &dead.queue_name,
                exchange: &dead.exchange,
                routing_key: dead.routing_key.as_ref(),
                counts: dead.dying.stored.counts,
                at: self.now,
            },
            version,
        );
        if message.deaths_then > SHORT_CHAIN {
            self.deaths_in_long_chains += 1;
            if self.deaths_in_long_chains > MOST_IN_LONG_CHAINS {
                self.forget(dead.queue, &dead.dying.stored);
                return self.dropped(dead.vhost, &dead.queue_name, DropReason::Endless, &message);
            }
        }
        let Some(routed) = self.route(dead.vhost, &dead.exchange, &message) else {
            return self.not_delivered(dead, DropReason::NoDeadLetterExchange);
        };
        let deaths = deaths_of(&message, version);
        let (cycling, targets): (Vec<_>, Vec<_>) = routed.into_iter().partition(|target| {
            dead.dying.reason != Reason::Rejected
                && self.queues.get(target).is_some_and(|queue| is_cycle(&queue.name, &deaths))
        });
        // 3.10 takes the confirm of a copy in its own queue for something else, and waits for it while the queue is a target.
        let unconfirmed = version.is_3_10() && dead.keep && targets.contains(&dead.queue);
        let targets: Vec<_> =
            targets.into_iter().filter(|target| !dead.dying.taken_by.contains(target)).collect();
        // It arrived at least once, and nobody is left who refused it.
        let has_arrived = !dead.dying.taken_by.is_empty();
        if targets.is_empty() && !has_arrived {
            let reason =
                if cycling.is_empty() { DropReason::DeadLetterUnroutable } else { DropReason::Cycle };
            return self.not_delivered(dead, reason);
        }
        let message = Arc::new(message);
        let (mut to, mut is_refused) = (Vec::new(), false);
        for target in targets {
            let name = self.queues.get(&target).map(|queue| queue.name.to_string()).unwrap_or_default();
            if dead.keep && self.is_full(target, message.size()) {
                is_refused = true;
            } else if self.enqueue(target, &message, None).is_ok() {
                to.push(name);
                dead.dying.taken_by.push(target);
                // A waiting consumer gets it at once: the next dead letter finds an empty queue again.
                self.serve(target);
            } else {
                self.dropped(dead.vhost, &dead.queue_name, DropReason::DeadLetterRefused, &message);
            }
        }
        if !to.is_empty() || !(is_refused || unconfirmed) {
            let (vhost, now) = (self.vhost(dead.vhost).name.clone(), self.now);
            self.events.add(now, &vhost, || EventKind::DeadLettered {
                queue: dead.queue_name.to_string(),
                reason: dead.dying.reason.text(),
                to,
            });
        }
        if is_refused {
            return self.keep(dead.queue, dead.dying);
        }
        self.forget(dead.queue, &dead.dying.stored);
        if unconfirmed {
            dead.dying.stored.kept = false;
            self.keep(dead.queue, dead.dying);
        }
    }

    /// A dead letter is not at all of its targets: it is dropped, or kept by its queue for another try.
    fn not_delivered(&mut self, dead: DeadLetter, why: DropReason) {
        if dead.keep {
            return self.keep(dead.queue, dead.dying);
        }
        self.forget(dead.queue, &dead.dying.stored);
        self.dropped(dead.vhost, &dead.queue_name, why, &dead.dying.stored.message);
    }

    fn keep(&mut self, id: QueueId, dying: Dying) {
        if let Some(queue) = self.queues.get_mut(&id) {
            queue.undelivered.push_back(dying);
            self.arm_dead_letters(id);
        }
    }

    /// Tries again to route what a target is missing for.
    pub(super) fn retry_dead_letters(&mut self, id: QueueId) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let waiting = std::mem::take(&mut queue.undelivered);
        for dying in waiting {
            self.send_off(id, dying);
        }
    }

    /// Removes a message from the state file.
    pub(super) fn forget(&mut self, queue: QueueId, stored: &Stored) {
        if stored.kept {
            self.note(|| Change::RemoveMessage { queue, number: stored.number });
        }
    }

    pub(super) fn dropped(
        &mut self,
        vhost: VHostId,
        queue: &ShortStr,
        reason: DropReason,
        message: &Message,
    ) {
        let (vhost, now) = (self.vhost(vhost).name.clone(), self.now);
        self.events.add(now, &vhost, || EventKind::Dropped {
            queue: queue.to_string(),
            reason,
            message: Box::new(MessageView::of(message)),
        });
    }
}

/// One death of a message.
struct Death<'a> {
    reason: Reason,
    queue: &'a ShortStr,
    exchange: &'a ShortStr,
    routing_key: Option<&'a ShortStr>,
    counts: Counts,
    at: Timestamp,
}

/// Returns the message as it goes on after a death.
fn dying(message: &Message, death: &Death<'_>, version: Version) -> Message {
    let mut properties = message.decode_properties().unwrap_or_default();
    let mut headers = message.table();
    let mut deaths = deaths_of(message, version);
    if version.is_3_10() && deaths.len() > 1 {
        deaths = regrouped(deaths);
    }
    let died_before = !deaths.is_empty();
    let had_deaths = headers.get(X_DEATH).is_some();
    let original = properties.expiration.take();
    count_death(&mut deaths, message, death, original.as_ref(), &headers, version);
    headers.insert(name(X_DEATH), deaths.into_iter().map(Value::Table).collect::<Vec<_>>());
    let first = if version.is_3_10() { !had_deaths } else { !died_before };
    if first {
        note_death(&mut headers, "first", message, death);
    }
    let mut carried = Counts::default();
    if !version.is_3_10() {
        note_death(&mut headers, "last", message, death);
        // Only failures go along; `basic.nack` is none.
        let failures = death.counts.delivery.saturating_sub(message.carried.delivery);
        carried = Counts {
            delivery: death.counts.delivery,
            acquired: message.carried.acquired.saturating_add(failures),
        };
    }
    let (routing_key, more_keys) = match death.routing_key {
        None => (message.routing_key.clone(), message.more_keys.clone()),
        Some(key) => {
            if version.is_3_10() {
                headers.remove("CC");
            }
            (key.clone(), Box::default())
        }
    };
    let mut sorted: Vec<_> = headers.into_iter().collect();
    sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
    let headers: Table = sorted.into_iter().collect();
    properties.headers = Some(headers.encode());
    let encoded = properties.encode();
    let (exchange, body) = (death.exchange.clone(), message.body.clone());
    let mut dead = Message::new(exchange, routing_key, more_keys, &properties, encoded, body);
    dead.blind_keys = message.blind_keys.clone();
    dead.died = true;
    dead.published_size = message.published_size;
    dead.carried = carried;
    dead.deaths_then = if message.died_at == Some(death.at) { message.deaths_then + 1 } else { 1 };
    dead.died_at = Some(death.at);
    dead
}

/// Groups the entries by queue and reason, as 3.10 does before each further death. That turns their order around.
fn regrouped(deaths: Vec<Table>) -> Vec<Table> {
    let mut grouped: Vec<Table> = Vec::new();
    for entry in deaths {
        let known =
            |other: &Table| ["queue", "reason"].iter().all(|key| text(other, key) == text(&entry, key));
        if !grouped.iter().any(known) {
            grouped.push(entry);
        }
    }
    grouped.reverse();
    grouped
}

/// Counts a death: the entry of this queue and reason, or a new one, is the first now.
fn count_death(
    deaths: &mut Vec<Table>,
    message: &Message,
    death: &Death<'_>,
    original_expiration: Option<&ShortStr>,
    headers: &Table,
    version: Version,
) {
    let same = deaths.iter().position(|entry| {
        text(entry, "queue").is_some_and(|queue| *death.queue == queue)
            && text(entry, "reason") == Some(death.reason.text())
    });
    let entry = match same {
        Some(at) => {
            let mut entry = deaths.remove(at);
            let count = entry.get("count").and_then(Value::as_i64).unwrap_or(1);
            entry.insert(name("count"), count.saturating_add(1));
            entry
        }
        None => {
            let keys: Vec<Value> = if version.is_3_10() {
                // BCC was removed when the message was published.
                let more = header_keys(headers, "CC").unwrap_or_default();
                std::iter::once(message.routing_key.clone()).chain(more).map(Value::from).collect()
            } else {
                message.open_keys().into_iter().cloned().map(Value::from).collect()
            };
            let mut entry = Table::new()
                .with("count", 1_i64)
                .with("reason", death.reason.text())
                .with("queue", death.queue.clone())
                .with("time", Value::Timestamp(death.at.seconds()))
                .with("exchange", message.exchange.clone())
                .with("routing-keys", keys);
            if let Some(expiration) = original_expiration {
                entry.insert(name("original-expiration"), expiration.clone());
            }
            entry
        }
    };
    deaths.insert(0, entry);
}

fn note_death(headers: &mut Table, which: &str, message: &Message, death: &Death<'_>) {
    for (what, value) in [
        ("reason", Value::from(death.reason.text())),
        ("queue", Value::from(death.queue.clone())),
        ("exchange", Value::from(message.exchange.clone())),
    ] {
        headers.insert(ShortStr::truncated(&format!("x-{which}-death-{what}")), value);
    }
}

/// Returns the entries of `x-death`. 4.3 believes only its own.
fn deaths_of(message: &Message, version: Version) -> Vec<Table> {
    if !version.is_3_10() && !message.died {
        return Vec::new();
    }
    match message.header(X_DEATH) {
        Some(Value::Array(entries)) => entries
            .into_iter()
            .filter_map(|entry| match entry {
                Value::Table(table) => Some(table),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns whether a message died in this queue before, and was not rejected since.
fn is_cycle(queue: &ShortStr, deaths: &[Table]) -> bool {
    for death in deaths {
        if text(death, "reason") == Some(Reason::Rejected.text()) {
            return false;
        }
        if text(death, "queue").is_some_and(|died_in| *queue == died_in) {
            return true;
        }
    }
    false
}

fn text<'a>(entry: &'a Table, key: &str) -> Option<&'a str> {
    entry.get(key).and_then(Value::as_str)
}

fn name(text: &'static str) -> ShortStr {
    ShortStr::from_static(text)
}
