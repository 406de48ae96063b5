//! What a run observed, as lines that can be compared and read.

use crate::client::{Delivery, Event};
use crate::message::Message;
use crate::names::Names;
use crate::wire::{Table, Value};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::RangeInclusive;

/// What one step showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The step.
    pub step: String,
    /// What the broker answered, and what it sent after.
    pub lines: Vec<Line>,
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// What was seen.
    pub text: String,
    /// Where order is promised: among the lines of one lane.
    pub lane: String,
}

impl Line {
    pub(crate) fn new(text: impl Into<String>) -> Line {
        Line { text: text.into(), lane: String::new() }
    }
}

/// Shows what the broker sends in the words of the scenario.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    pub(crate) names: Names,
    pub(crate) vhost: String,
    /// Seconds since 1970 that count as "during the run".
    pub(crate) during: RangeInclusive<u64>,
}

impl Words {
    pub(crate) fn error(&self, text: &str) -> String {
        self.names.normalize(text).replace(&format!("vhost '{}'", self.vhost), "vhost 'V'")
    }

    pub(crate) fn event(&self, event: &Event) -> Line {
        let lane = match event {
            Event::Deliver { channel, delivery, .. } => {
                format!("{channel} {}", origin(&delivery.message, &self.names))
            }
            Event::Return { channel, .. }
            | Event::Ack { channel, .. }
            | Event::Nack { channel, .. }
            | Event::Cancel { channel, .. }
            | Event::ChannelClosed { channel, .. } => channel.to_string(),
            Event::ConnectionClosed { .. } | Event::Gone => "connection".to_owned(),
        };
        Line { text: self.event_text(event), lane }
    }

    fn event_text(&self, event: &Event) -> String {
        match event {
            Event::Deliver { channel, consumer, delivery } => {
                format!("channel {channel}: {consumer} is delivered {}", self.delivery(delivery, true))
            }
            Event::Return { channel, code, text, exchange, key, message } => format!(
                "channel {channel}: returned {code} {text}, {exchange:?} {key:?}, {}",
                self.message(message),
                exchange = self.names.normalize(exchange),
                key = self.names.normalize(key),
            ),
            // One publish is confirmed at a time: `multiple` says nothing then.
            Event::Ack { channel, tag, .. } => format!("channel {channel}: ack {tag}"),
            Event::Nack { channel, tag, .. } => format!("channel {channel}: nack {tag}"),
            Event::Cancel { channel, consumer } => format!("channel {channel}: {consumer} is cancelled"),
            Event::ChannelClosed { channel, code, text, method } => {
                format!("channel {channel}: closed {code} {} {method:?}", self.error(text))
            }
            Event::ConnectionClosed { code, text, method } => {
                format!("connection closed {code} {} {method:?}", self.error(text))
            }
            Event::Gone => "connection gone".to_owned(),
        }
    }

    pub(crate) fn delivery(&self, delivery: &Delivery, tag: bool) -> String {
        let mut text = String::new();
        if tag {
            write!(text, "{} ", delivery.tag).expect("a string takes all");
        }
        if delivery.redelivered {
            text.push_str("again ");
        }
        let (exchange, key) = (self.names.normalize(&delivery.exchange), self.names.normalize(&delivery.key));
        write!(text, "{} of {exchange:?} {key:?}", self.message(&delivery.message))
            .expect("a string takes all");
        text
    }

    fn message(&self, message: &Message) -> String {
        let mut text = format!("[{}", String::from_utf8_lossy(&message.body).trim_end_matches('.'));
        let mut show = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                write!(text, ", {name}={}", self.names.normalize(&value)).expect("a string takes all");
            }
        };
        show("content_type", message.content_type.clone());
        show("content_encoding", message.content_encoding.clone());
        show("delivery_mode", message.delivery_mode.map(|mode| mode.to_string()));
        show("priority", message.priority.map(|priority| priority.to_string()));
        show("correlation_id", message.correlation_id.clone());
        show("reply_to", message.reply_to.clone());
        show("expiration", message.expiration.clone());
        show("message_id", message.message_id.clone());
        show("timestamp", message.timestamp.map(|time| time.to_string()));
        show("type", message.kind.clone());
        show("user_id", message.user_id.clone());
        show("app_id", message.app_id.clone());
        show("cluster_id", message.cluster_id.clone());
        show("headers", message.headers.as_ref().map(|headers| self.table(headers)));
        text.push(']');
        text
    }

    /// Sorted by name: brokers promise no order within a table.
    fn table(&self, table: &Table) -> String {
        let mut fields: Vec<_> =
            table.iter().map(|(name, value)| format!("{name}={}", self.value(value))).collect();
        fields.sort();
        format!("{{{}}}", fields.join(" "))
    }

    fn value(&self, value: &Value) -> String {
        match value {
            Value::Bool(value) => format!("t:{value}"),
            Value::Int(value) => format!("I:{value}"),
            Value::Long(value) => format!("l:{value}"),
            Value::Text(value) => format!("{:?}", self.names.normalize(value)),
            Value::Time(at) if self.during.contains(at) => "T:now".to_owned(),
            Value::Time(at) => format!("T:{at}"),
            Value::Array(values) => {
                let values: Vec<_> = values.iter().map(|value| self.value(value)).collect();
                format!("[{}]", values.join(", "))
            }
            Value::Table(table) => self.table(table),
            Value::Void => "V".to_owned(),
            Value::Other(letter, bytes) => format!("{}:{bytes:?}", char::from(*letter)),
        }
    }
}

/// Where a message comes from: the queue in which it died last. Two sources feed a queue in no promised order.
pub(crate) fn origin(message: &Message, names: &Names) -> String {
    let deaths = message.headers.iter().flatten().find(|(name, _)| name == "x-death");
    let Some((_, Value::Array(entries))) = deaths else { return String::new() };
    let Some(Value::Table(newest)) = entries.first() else { return String::new() };
    let queue = newest.iter().find(|(name, _)| name == "queue");
    queue.map(|(_, queue)| names.normalize(&format!("{queue:?}"))).unwrap_or_default()
}

/// Compares two runs: `None` if they are equal, otherwise the first step that differs, in words.
#[must_use]
pub fn difference(expected: &[Observed], seen: &[Observed]) -> Option<String> {
    let steps = expected.len().max(seen.len());
    for place in 0..steps {
        match (expected.get(place), seen.get(place)) {
            (Some(expected), Some(seen)) if agree(&expected.lines, &seen.lines) => {}
            (expected, seen) => {
                let show = |observed: Option<&Observed>| {
                    let lines = observed
                        .map(|observed| observed.lines.iter().map(|line| format!("\n    {}", line.text)));
                    lines.map_or("\n    (the run ended before)".to_owned(), Iterator::collect)
                };
                let step = expected.or(seen).map_or("", |observed| &observed.step);
                return Some(format!(
                    "step {place}, {step}:\n  expected{}\n  seen{}",
                    show(expected),
                    show(seen)
                ));
            }
        }
    }
    None
}

/// Equal as a whole, and in order within each lane.
fn agree(expected: &[Line], seen: &[Line]) -> bool {
    let lanes = |lines: &[Line]| {
        let mut lanes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for line in lines {
            lanes.entry(line.lane.clone()).or_default().push(line.text.clone());
        }
        lanes
    };
    lanes(expected) == lanes(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(lines: &[(&str, &str)]) -> Vec<Observed> {
        let lines =
            lines.iter().map(|(lane, text)| Line { text: (*text).into(), lane: (*lane).into() }).collect();
        vec![Observed { step: "step".into(), lines }]
    }

    #[test]
    fn order_counts_within_a_lane_only() {
        let one = observed(&[("a", "1"), ("a", "2"), ("b", "3")]);
        assert_eq!(difference(&one, &observed(&[("b", "3"), ("a", "1"), ("a", "2")])), None);
        assert!(difference(&one, &observed(&[("a", "2"), ("a", "1"), ("b", "3")])).is_some());
        assert!(difference(&one, &observed(&[("a", "1"), ("a", "2")])).is_some());
        assert!(difference(&one, &[]).is_some());
    }
}
