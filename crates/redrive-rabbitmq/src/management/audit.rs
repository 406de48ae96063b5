//! What is wrong with a queue that is there, compared with the one that is needed. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use lapin::types::AMQPValue;

use super::found::Found;
use crate::topology::Queue;

/// What a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Work,
    Shelf,
    Delay,
}

/// What the options say of the work queue that the queue itself must bear out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    pub(crate) native_dead_letter: Option<bool>,
    pub(crate) delivery_limit: Option<u32>,
}

/// Something that is not as it should be: one sentence, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Messages would be lost, come back too early, or never.
    Wrong(String),
    /// It can be lived with, by those who know.
    Doubtful(String),
}

use Finding::{Doubtful, Wrong};

/// Compares.
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
            "`{name}` is a {there} queue, and a {wanted} queue is configured: say so with `queue_type` or `retry_queue_type`"
        )
    } else {
        format!("`{name}` is a {there}, and a {wanted} queue is needed: name another queue")
    }))
}

fn expires(needed: &Queue, found: &Found) -> Option<Finding> {
    let wanted = whole(&needed.arguments, "x-expires");
    let found = found.lower("expires").filter(|found| wanted.is_none_or(|wanted| found.value < wanted))?;
    let (name, after) = (&needed.name, millis(found.value));
    Some(Wrong(format!(
        "RabbitMQ deletes `{name}`, with its messages, when it is unused for {after}: take `expires` out of {}",
        found.by
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
    findings.extend(delayed_retry(needed, found));
    if let (Some(said), Some(found)) = (said.delivery_limit, found.lower("delivery-limit"))
        && found.value < u64::from(said)
    {
        findings.push(Wrong(format!(
            "the delivery limit of `{name}` is {} by {}, and the options say {said}: say {0}, or raise it",
            found.value, found.by
        )));
    }
    findings
}

/// Where the queue itself is to hold failed messages back.
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
            "messages on the shelf `{name}` disappear after {}, by {}",
            millis(ttl.value),
            ttl.by
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
            "messages of delay queue `{name}` come back after {} already, by {}: take `message-ttl` out of it",
            millis(there.value),
            there.by
        ))),
        (Some(wanted), None) => findings.push(Wrong(format!(
            "delay queue `{name}` has no `message-ttl`: what waits there never comes back. It must be {}",
            millis(wanted)
        ))),
        (Some(wanted), Some(there)) if there.value < wanted => findings.push(Wrong(format!(
            "messages of delay queue `{name}` come back after {}, by {}, and not after {}",
            millis(there.value),
            there.by,
            millis(wanted)
        ))),
        (Some(wanted), Some(there)) if there.value > wanted => findings.push(Doubtful(format!(
            "messages of delay queue `{name}` come back after {}, by {}: later than {}",
            millis(there.value),
            there.by,
            millis(wanted)
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

/// What waits must come back where it is waited for.
fn way_back(needed: &Queue, found: &Found) -> Option<Finding> {
    let name = &needed.name;
    for setting in ["dead-letter-exchange", "dead-letter-routing-key"] {
        let there = found.argument_first(setting);
        let Some(wanted) = text(&needed.arguments, &format!("x-{setting}")) else {
            // A policy fills in the one that the arguments do not have.
            let there = there?;
            return Some(Wrong(format!(
                "delay queue `{name}` has `{setting}` `{}`, by {}, and needs none: what waits there would come back with that \
                 one, which may lead nowhere",
                there.value, there.by
            )));
        };
        match there {
            Some(there) if there.value == wanted => {}
            Some(there) => {
                return Some(Wrong(format!(
                    "delay queue `{name}` has `{setting}` `{}`, by {}, and needs `{wanted}`: what waits there would not \
                     come back",
                    there.value, there.by
                )));
            }
            None => {
                return Some(Wrong(format!(
                    "delay queue `{name}` has no `{setting}`, and needs `{wanted}`: what waits there would not come back"
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
