//! A drawing of exchanges, queues, bindings and dead-letter routes.

use std::fmt::Write as _;

use super::exchange::Destination;
use super::{Broker, VHostId};

/// A line of the drawing.
struct Arrow {
    from: String,
    to: String,
    label: String,
    dashed: bool,
}

impl Broker {
    /// Draws a virtual host as a Mermaid flowchart.
    pub(crate) fn mermaid(&self, vhost: VHostId) -> String {
        let mut text = "flowchart LR\n".to_owned();
        let (nodes, arrows) = self.drawing(vhost);
        for (number, (name, is_queue)) in nodes.iter().enumerate() {
            let label = escape(name);
            let _ = if *is_queue {
                writeln!(text, "  n{number}[[\"{label}\"]]")
            } else {
                writeln!(text, "  n{number}((\"{label}\"))")
            };
        }
        let number = |wanted: &str| nodes.iter().position(|(name, _)| name == wanted).unwrap_or_default();
        for arrow in arrows {
            let (from, to) = (number(&arrow.from), number(&arrow.to));
            let line = if arrow.dashed { "-." } else { "--" };
            let end = if arrow.dashed { ".->" } else { "-->" };
            let label = escape(&arrow.label);
            let _ = if label.is_empty() {
                writeln!(text, "  n{from} {} n{to}", if arrow.dashed { "-.->" } else { "-->" })
            } else {
                writeln!(text, "  n{from} {line} \"{label}\" {end} n{to}")
            };
        }
        text
    }

    /// Draws a virtual host in the language of Graphviz.
    pub(crate) fn dot(&self, vhost: VHostId) -> String {
        let mut text = "digraph topology {\n  rankdir=LR;\n".to_owned();
        let (nodes, arrows) = self.drawing(vhost);
        for (name, is_queue) in &nodes {
            let shape = if *is_queue { "box" } else { "ellipse" };
            let _ = writeln!(text, "  {:?} [shape={shape}];", name);
        }
        for arrow in arrows {
            let style = if arrow.dashed { ", style=dashed" } else { "" };
            let _ = writeln!(text, "  {:?} -> {:?} [label={:?}{style}];", arrow.from, arrow.to, arrow.label);
        }
        text.push_str("}\n");
        text
    }

    /// Returns the nodes, each with whether it is a queue, and the arrows. The default exchange is left out: it leads to every queue.
    fn drawing(&self, id: VHostId) -> (Vec<(String, bool)>, Vec<Arrow>) {
        let Some(vhost) = self.vhosts.get(&id) else { return Default::default() };
        let mut arrows = Vec::new();
        let mut exchanges: Vec<_> = vhost.exchanges.values().collect();
        exchanges.sort_by(|one, other| one.name.cmp(&other.name));
        let exchange_name = |name: &dyn std::fmt::Display| format!("exchange {name}");
        let queue_name = |name: &dyn std::fmt::Display| format!("queue {name}");
        for exchange in exchanges {
            let from = exchange_name(&exchange.name);
            for binding in exchange.bindings() {
                let to = match &binding.destination {
                    Destination::Queue(queue) => match self.queues.get(queue) {
                        Some(queue) => queue_name(&queue.name),
                        None => continue,
                    },
                    Destination::Exchange(name) => exchange_name(name),
                };
                arrows.push(Arrow { from: from.clone(), to, label: binding.key.to_string(), dashed: false });
            }
            if let Some(alternate) = &exchange.alternate {
                let label = "alternate".to_owned();
                arrows.push(Arrow { from, to: exchange_name(alternate), label, dashed: true });
            }
        }
        let mut nodes: Vec<(String, bool)> = Vec::new();
        for queue in self.queue_ids(id).iter().filter_map(|queue| self.queues.get(queue)) {
            let from = queue_name(&queue.name);
            nodes.push((from.clone(), true));
            let Some(exchange) = &queue.settings.dead_letter_exchange else { continue };
            let key = queue.settings.dead_letter_routing_key.as_ref();
            let mut label = "dead".to_owned();
            if let Some(ttl) = queue.settings.message_ttl {
                let _ = write!(label, ", after {ttl} ms");
            }
            let to = match (exchange.is_empty(), key) {
                (true, Some(key)) => queue_name(key),
                (true, None) => queue_name(&queue.name),
                (false, _) => {
                    if let Some(key) = key {
                        let _ = write!(label, ", key {key}");
                    }
                    exchange_name(exchange)
                }
            };
            arrows.push(Arrow { from, to, label, dashed: true });
        }
        for arrow in &arrows {
            for name in [&arrow.from, &arrow.to] {
                if !nodes.iter().any(|(known, _)| known == name) {
                    nodes.push((name.clone(), name.starts_with("queue ")));
                }
            }
        }
        (nodes, arrows)
    }
}

fn escape(text: &str) -> String {
    text.replace('"', "#quot;").replace(['\n', '\r'], " ")
}
