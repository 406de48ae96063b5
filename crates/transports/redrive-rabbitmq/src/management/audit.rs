//! Compares an existing queue with the one that is needed, and describes the differences. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::types::AMQPValue;

use super::exchange::FoundExchange;
use super::found::{Found, Setting};
use crate::topology::{Binding, Queue};

/// Purpose of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Work,
    Shelf,
    Delay,
}

/// What the options claim about the work queue. The queue itself must confirm it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) delivery_limit: Option<u32>,
}

/// A deviation from what is needed: one sentence, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Messages would be lost, come back too early, or never come back.
    Wrong(String),
    /// Acceptable for an operator who knows the consequence.
    Doubtful(String),
    /// Not checked.
    Unknown(String),
}

use Finding::{Doubtful, Wrong};

/// Compares an existing queue with the one that is needed.
pub(crate) fn audit(needed: &Queue, role: Role, said: Said, found: &Found) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(queue_type(needed, found));
    findings.extend(expires(needed, found));
    match role {
        Role::Work => findings.extend(work(needed, said, found)),
        Role::Shelf => findings.extend(shelf(needed, found)),
        Role::Delay => findings.extend(delay(needed, found)),
    }
    findings
}

fn queue_type(needed: &Queue, found: &Found) -> Option<Finding> {
    let (name, wanted) = (&needed.name, text(&needed.arguments, "x-queue-type")?);
    let there = &found.queue_type;
    if there.is_empty() || *there == wanted {
        return None;
    }
    Some(Wrong(if ["classic", "quorum"].contains(&there.as_str()) {
        format!(
            "`{name}` is a {there} queue, but the options ask for a {wanted} queue: set `queue_type` or `retry_queue_type` to {there}"
        )
    } else {
        format!("`{name}` is a {there}, but a {wanted} queue is needed: use a queue with another name")
    }))
}

fn expires(needed: &Queue, found: &Found) -> Option<Finding> {
    let wanted = whole(&needed.arguments, "x-expires");
    let found = found.lower("expires").filter(|found| wanted.is_none_or(|wanted| found.value < wanted))?;
    let (name, after) = (&needed.name, millis(found.value));
    Some(Wrong(format!(
        "RabbitMQ deletes `{name}`, with its messages, when it is unused for {after}: {}",
        found.by.without("expires")
    )))
}

fn work(needed: &Queue, said: Said, found: &Found) -> Vec<Finding> {
    let name = &needed.name;
    let mut findings = Vec::new();
    match found.argument_first("dead-letter-exchange") {
        None if said.native_dead_letter == Some(true) => findings.push(Wrong(format!(
            "`{name}` has no dead-letter exchange, and `native_dead_letter(true)` says that it has: what is rejected would be \
             lost. Give it one, or take the option away"
        ))),
        None => findings.push(Doubtful(format!(
            "`{name}` has no dead-letter exchange: what the broker itself takes off it (beyond its delivery limit, expired) \
             is lost. Give it one that leads to the dead-letter queue"
        ))),
        Some(_) => {}
    }
    if let Some(ttl) = found.lower("message-ttl").filter(|_| !needed.arguments.contains_key("x-message-ttl"))
    {
        findings.push(Doubtful(format!(
            "messages of `{name}` that no consumer gets within {} are dead-lettered by the broker, by {}, without an attempt: \
             {}; or say that it is intended, `argument(\"x-message-ttl\", {})`",
            millis(ttl.value),
            ttl.by,
            ttl.by.without("message-ttl"),
            ttl.value
        )));
    }
    findings.extend(delayed_retry(needed, found));
    if let (Some(said), Some(found)) = (said.delivery_limit, found.lower("delivery-limit"))
        && found.value < u64::from(said)
    {
        findings.push(Wrong(format!(
            "the delivery limit of `{name}` is {0} by {1}, and the options say {said}: say `delivery_limit({0})`, or {2}",
            found.value,
            found.by,
            found.by.with("delivery-limit", said)
        )));
    }
    findings
}

/// Checks that RabbitMQ would accept a declaration of the queue. A declaration changes nothing of an existing queue.
pub(crate) fn declaration(needed: &Queue, found: &Found) -> Option<Finding> {
    let differing = found.differing(needed);
    (!differing.is_empty()).then(|| {
        Wrong(format!(
            "queue `{}` exists with other arguments, and RabbitMQ refuses to declare it with those asked for: {}. Delete the queue \
             once it is empty, configure the consumer as the queue is, or use Topology::Verify",
            needed.name,
            differing.join(", ")
        ))
    })
}

/// Target of a work queue's dead-letter exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The default exchange; true when the queue exists that the routing key names.
    Queue(bool),
    /// A named exchange; `None` when it does not exist.
    Exchange(Option<FoundExchange>),
}

/// Checks that dead letters of the work queue reach a queue.
pub(crate) fn dead_letters(
    needed: &Queue,
    shelf: &str,
    said: Said,
    found: &Found,
    behind: &Behind,
) -> Option<Finding> {
    let Setting { value: exchange, by } = found.argument_first("dead-letter-exchange")?;
    let key = found.argument_first("dead-letter-routing-key").map(|key| key.value);
    let for_key = key.as_ref().map(|key| format!(" for the key `{key}`")).unwrap_or_default();
    let (why, remedy) = match (behind, key) {
        (Behind::Queue(false), Some(queue)) => {
            (format!("no queue `{queue}` exists"), "Declare that queue".to_owned())
        }
        (Behind::Exchange(None), _) => (
            format!("no exchange `{exchange}` exists"),
            format!("Declare that exchange, and bind `{shelf}` to it{for_key}"),
        ),
        (Behind::Exchange(Some(found)), key) if !found.may_lead_somewhere(key.as_deref()) => (
            format!("no queue is bound to the exchange `{exchange}`{for_key}"),
            format!("Bind `{shelf}` to it"),
        ),
        _ => return None,
    };
    let name = &needed.name;
    let to = if exchange.is_empty() { "the default exchange".to_owned() } else { format!("`{exchange}`") };
    let lost = format!(
        "what the broker itself takes off `{name}` (rejected, expired, beyond its delivery limit) is lost: by {by} it goes to {to}, and \
         {why}. {remedy}"
    );
    Some(if said.native_dead_letter == Some(true) { Wrong(lost) } else { Doubtful(lost) })
}

/// Checks a binding of a queue; `found` is `None` if the exchange does not exist.
pub(crate) fn binding(needed: &Binding, found: Option<&FoundExchange>) -> Option<Finding> {
    let Binding { queue, exchange, routing_key } = needed;
    // Another check reports a missing exchange.
    let found = found?;
    let keys = found.keys_of(queue);
    if keys.is_empty() {
        return Some(Wrong(format!(
            "queue `{queue}` is not bound to the exchange `{exchange}`: bind it with the key `{routing_key}`"
        )));
    }
    let bound = found.ignores_keys() || keys.contains(&routing_key.as_str());
    (!bound).then(|| {
        let keys = keys.join("`, `");
        Doubtful(format!(
            "queue `{queue}` is bound to the exchange `{exchange}` with `{keys}`, and not with the key `{routing_key}`: bind it \
             with that key too, or correct `bind`"
        ))
    })
}

/// Checks the settings with which the queue itself delays failed messages.
fn delayed_retry(needed: &Queue, found: &Found) -> Option<Finding> {
    let name = &needed.name;
    for setting in ["delayed-retry-min", "delayed-retry-max"] {
        let wanted = whole(&needed.arguments, &format!("x-{setting}"))?;
        let there = found.lower(setting);
        if there.as_ref().is_none_or(|there| there.value < wanted) {
            let there = there.map_or("nothing".to_owned(), |there| millis(there.value).to_string());
            return Some(Wrong(format!(
                "`{name}` has {there} as its `{setting}`, and Delay::Native says {}: failed messages would come back early",
                millis(wanted)
            )));
        }
    }
    None
}

fn shelf(needed: &Queue, found: &Found) -> Vec<Finding> {
    let name = &needed.name;
    let mut findings = Vec::new();
    if let Some(ttl) = found.lower("message-ttl") {
        findings.push(Doubtful(format!(
            "messages on the shelf `{name}` disappear after {}, by {}: {}",
            millis(ttl.value),
            ttl.by,
            ttl.by.without("message-ttl")
        )));
    }
    if let Some(most) = found.evicts() {
        findings.push(Doubtful(format!(
            "when the shelf `{name}` is full the oldest messages on it are removed, by {}: set `overflow` to \
             `reject-publish`",
            most.by
        )));
    }
    findings
}

fn delay(needed: &Queue, found: &Found) -> Vec<Finding> {
    let name = &needed.name;
    let mut findings = Vec::new();
    match (whole(&needed.arguments, "x-message-ttl"), found.lower("message-ttl")) {
        (None, None) => {}
        (None, Some(there)) => findings.push(Wrong(format!(
            "messages of delay queue `{name}` come back after {} already, by {}: {}",
            millis(there.value),
            there.by,
            there.by.without("message-ttl")
        ))),
        (Some(wanted), None) => findings.push(Wrong(format!(
            "delay queue `{name}` has no `message-ttl`: what waits there never comes back. Delete it once it is \
             empty, and declare it with `x-message-ttl` {wanted}"
        ))),
        (Some(wanted), Some(there)) if there.value < wanted => findings.push(Wrong(format!(
            "messages of delay queue `{name}` come back after {}, by {}, and not after {}: {}",
            millis(there.value),
            there.by,
            millis(wanted),
            there.by.with("message-ttl", wanted)
        ))),
        (Some(wanted), Some(there)) if there.value > wanted => findings.push(Doubtful(format!(
            "messages of delay queue `{name}` come back after {}, by {}: later than {}: {}",
            millis(there.value),
            there.by,
            millis(wanted),
            there.by.with("message-ttl", wanted)
        ))),
        _ => {}
    }
    findings.extend(way_back(needed, found));
    if let Some(most) = found.evicts() {
        findings.push(Wrong(format!(
            "when delay queue `{name}` is full RabbitMQ takes messages off it before their time, by {}: set `overflow` to \
             `reject-publish`, or take the limit away",
            most.by
        )));
    }
    let at_least_once = text(&needed.arguments, "x-dead-letter-strategy").is_some();
    let strategy = found.argument_first("dead-letter-strategy");
    if at_least_once && strategy.is_none_or(|strategy| strategy.value != "at-least-once") {
        findings.push(Doubtful(format!(
            "delay queue `{name}` gives messages back at most once: one may be lost when the broker dies. Set \
             `x-dead-letter-strategy` to `at-least-once`"
        )));
    }
    findings
}

/// Checks that expired messages return to the queue that waits for them.
fn way_back(needed: &Queue, found: &Found) -> Option<Finding> {
    let name = &needed.name;
    for setting in ["dead-letter-exchange", "dead-letter-routing-key"] {
        let there = found.argument_first(setting);
        let Some(wanted) = text(&needed.arguments, &format!("x-{setting}")) else {
            // A policy supplies the setting that the arguments leave out.
            let there = there?;
            return Some(Wrong(format!(
                "delay queue `{name}` has `{setting}` `{}`, by {}, and needs none: what waits there would come back with that \
                 one, which may lead nowhere: {}",
                there.value,
                there.by,
                there.by.without(setting)
            )));
        };
        match there {
            Some(there) if there.value == wanted => {}
            Some(there) => {
                return Some(Wrong(format!(
                    "delay queue `{name}` has `{setting}` `{}`, by {}, and needs `{wanted}`: what waits there would not \
                     come back: {}",
                    there.value,
                    there.by,
                    there.by.with(setting, format_args!("`{wanted}`"))
                )));
            }
            None => {
                return Some(Wrong(format!(
                    "delay queue `{name}` has no `{setting}`, and needs `{wanted}`: what waits there would not come back. Delete \
                     it once it is empty, and declare it with `x-{setting}`"
                )));
            }
        }
    }
    None
}

fn text<'a>(arguments: &'a BTreeMap<String, AMQPValue>, name: &str) -> Option<&'a str> {
    match arguments.get(name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        _ => None,
    }
}

fn whole(arguments: &BTreeMap<String, AMQPValue>, name: &str) -> Option<u64> {
    match arguments.get(name)? {
        AMQPValue::LongLongInt(number) => u64::try_from(*number).ok(),
        AMQPValue::LongInt(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn millis(millis: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(millis))
}

#[cfg(test)]
#[path = "audit_tests.rs"]
mod tests;
