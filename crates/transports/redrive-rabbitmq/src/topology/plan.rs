//! The topology of a consumer as a value, for declaring it without redrive. Pure.

use std::fmt;

use serde_json::{Map, Value, json};

use super::parts::{Binding, Exchange, Lifetime, Part, Queue, value_of};

/// The queues, exchanges and bindings that a consumer needs, for [`Topology::Verify`](crate::Topology::Verify), where somebody else
/// declares them. Returned by [`Options::topology_plan`](crate::Options::topology_plan). `Display` prints one line for each.
///
/// A queue that belongs to one connection ([`Entity::exclusive`](crate::Entity::exclusive)) is in neither format: no other
/// connection can declare it.
///
/// ```
/// use std::time::Duration;
/// use redrive_rabbitmq::RabbitMq;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let plan = RabbitMq::options("orders").topology_plan([Duration::from_secs(1), Duration::from_secs(60)])?;
/// std::fs::write(std::env::temp_dir().join("orders.json"), plan.definitions_json("/"))?;
/// assert!(plan.terraform("/").contains(r#"resource "rabbitmq_queue" "orders--retry-60000ms""#));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TopologyPlan {
    /// The target of a message comes before its source.
    parts: Vec<Part>,
}

impl TopologyPlan {
    pub(crate) fn new(parts: Vec<Part>) -> Self {
        Self { parts }
    }

    /// Returns RabbitMQ's definitions, for `rabbitmqctl import_definitions`, the management API (`POST /api/definitions`) or
    /// `definitions.local.path`. An import does not change existing queues and exchanges of these names.
    #[must_use]
    pub fn definitions_json(&self, vhost: &str) -> String {
        let (mut queues, mut exchanges, mut bindings) = (Vec::new(), Vec::new(), Vec::new());
        for part in self.of_everybody() {
            match part {
                Part::Queue(queue @ Queue { name, lifetime: Lifetime { durable, auto_delete, .. }, .. }) => {
                    let arguments = arguments(queue);
                    queues.push(json!({
                        "name": name, "vhost": vhost, "durable": durable, "auto_delete": auto_delete, "arguments": arguments,
                    }));
                }
                Part::Exchange(
                    exchange @ Exchange { name, lifetime: Lifetime { durable, auto_delete, .. }, .. },
                ) => {
                    exchanges.push(json!({
                        "name": name, "vhost": vhost, "type": exchange.kind_name(), "durable": durable,
                        "auto_delete": auto_delete, "internal": false, "arguments": {},
                    }));
                }
                Part::Binding(Binding { queue, exchange, routing_key }) => bindings.push(json!({
                    "source": exchange, "vhost": vhost, "destination": queue, "destination_type": "queue",
                    "routing_key": routing_key, "arguments": {},
                })),
                Part::OtherExchange(_) | Part::OtherQueue(_) => {}
            }
        }
        let definitions = json!({ "exchanges": exchanges, "queues": queues, "bindings": bindings });
        format!("{definitions:#}\n")
    }

    /// Returns resources of the Terraform provider [`cyrilgdn/rabbitmq`](https://registry.terraform.io/providers/cyrilgdn/rabbitmq),
    /// without the configuration of the provider itself (its endpoint and its user).
    #[must_use]
    pub fn terraform(&self, vhost: &str) -> String {
        let mut resources = Resources { vhost: hcl(vhost), ..Resources::default() };
        for part in self.of_everybody() {
            match part {
                Part::Queue(queue) => {
                    resources.add("rabbitmq_queue", &queue.name, queue.lifetime, &encoded(queue));
                }
                Part::Exchange(exchange) => {
                    let kind = format!("    type        = {}", hcl(exchange.kind_name()));
                    resources.add("rabbitmq_exchange", &exchange.name, exchange.lifetime, &kind);
                }
                Part::Binding(_) | Part::OtherExchange(_) | Part::OtherQueue(_) => {}
            }
        }
        // They refer to the resources above.
        for part in self.of_everybody() {
            if let Part::Binding(binding) = part {
                resources.bind(binding);
            }
        }
        resources.written
    }

    /// Leaves out queues of one connection, and their bindings.
    fn of_everybody(&self) -> impl Iterator<Item = &Part> {
        let is_exclusive = |name: &str| {
            self.parts
                .iter()
                .filter_map(Part::queue)
                .any(|queue| queue.lifetime.exclusive && queue.name == name)
        };
        self.parts.iter().filter(move |part| match part {
            Part::Queue(queue) => !queue.lifetime.exclusive,
            Part::Exchange(_) | Part::OtherExchange(_) | Part::OtherQueue(_) => true,
            Part::Binding(binding) => !is_exclusive(&binding.queue),
        })
    }
}

impl fmt::Display for TopologyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts.iter().try_for_each(|part| writeln!(f, "{part}"))
    }
}

/// Terraform's resources, each with a label of its own.
#[derive(Default)]
struct Resources {
    vhost: String,
    written: String,
    /// Type, name on the broker, and label.
    labels: Vec<(&'static str, String, String)>,
}

impl Resources {
    fn add(&mut self, kind: &'static str, name: &str, lifetime: Lifetime, setting: &str) {
        let Lifetime { durable, auto_delete, .. } = lifetime;
        let (label, name, vhost) = (self.label(kind, name), hcl(name), &self.vhost);
        let resource = format!(
            r#"resource "{kind}" "{label}" {{
  name  = {name}
  vhost = {vhost}
  settings {{
    durable     = {durable}
    auto_delete = {auto_delete}
{setting}
  }}
}}
"#
        );
        self.write(&resource);
    }

    /// Refers to the resources that it connects, so that Terraform creates them first.
    fn bind(&mut self, Binding { queue, exchange, routing_key }: &Binding) {
        let label = self.label("rabbitmq_binding", &format!("{exchange}-{queue}-{routing_key}"));
        let source = self.reference("rabbitmq_exchange", exchange);
        let destination = self.reference("rabbitmq_queue", queue);
        let (key, vhost) = (hcl(routing_key.as_str()), &self.vhost);
        let resource = format!(
            r#"resource "rabbitmq_binding" "{label}" {{
  source           = {source}
  vhost            = {vhost}
  destination      = {destination}
  destination_type = "queue"
  routing_key      = {key}
}}
"#
        );
        self.write(&resource);
    }

    fn write(&mut self, resource: &str) {
        let between = if self.written.is_empty() { "" } else { "\n" };
        self.written.extend([between, resource]);
    }

    fn reference(&self, kind: &str, name: &str) -> String {
        let label = self.labels.iter().find(|(of, named, _)| *of == kind && named == name);
        label.map_or_else(|| hcl(name), |(_, _, label)| format!("{kind}.{label}.name"))
    }

    /// Creates a label, which allows fewer characters than a name.
    fn label(&mut self, kind: &'static str, name: &str) -> String {
        let allowed = |char: char| if char.is_ascii_alphanumeric() || char == '-' { char } else { '_' };
        let mut label: String = name.chars().map(allowed).collect();
        if !label.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_') {
            label.insert(0, '_');
        }
        while self.labels.iter().any(|(of, _, taken)| *of == kind && *taken == label) {
            label.push('_');
        }
        self.labels.push((kind, name.to_owned(), label.clone()));
        label
    }
}

fn arguments(queue: &Queue) -> Map<String, Value> {
    queue.arguments.iter().map(|(name, value)| (name.clone(), value_of(value))).collect()
}

/// Formats like `terraform fmt`.
fn encoded(queue: &Queue) -> String {
    let width = queue.arguments.keys().map(|name| hcl(name.as_str()).len()).max().unwrap_or_default();
    let entry = |(name, value): (String, Value)| format!("      {:width$} = {}\n", hcl(name), hcl(value));
    let entries = arguments(queue).into_iter().map(entry).collect::<String>();
    format!("\n    arguments_json = jsonencode({{\n{entries}    }})")
}

/// Escapes JSON for HCL: only the beginning of a template differs.
fn hcl(value: impl Into<Value>) -> String {
    value.into().to_string().replace("${", "$${").replace("%{", "%%{")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entity, Options, QueueType, SingleQueue, Topology};
    use std::time::Duration;

    fn plan(options: Options) -> TopologyPlan {
        options.topology(Topology::Verify).topology_plan([Duration::from_secs(1)]).unwrap()
    }

    #[test]
    fn a_ladder_as_definitions() {
        let options =
            Options::new("orders").argument("x-max-length", 7_i64).argument("x-single-active-consumer", true);
        let definitions: Value = serde_json::from_str(&plan(options).definitions_json("shop")).unwrap();
        let names =
            definitions["queues"].as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["orders--dead-letters", "orders--parking-lot", "orders", "orders--retry-1000ms"]
        );
        assert_eq!(
            definitions["queues"][2],
            json!({
                "name": "orders", "vhost": "shop", "durable": true, "auto_delete": false,
                "arguments": {
                    "x-queue-type": "quorum", "x-delivery-limit": 20, "x-overflow": "reject-publish",
                    "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders--dead-letters",
                    "x-dead-letter-strategy": "at-least-once", "x-max-length": 7, "x-single-active-consumer": true,
                },
            })
        );
    }

    #[test]
    fn exchanges_and_bindings_and_what_one_connection_has_for_itself() {
        let shared = SingleQueue::durable().queue(Entity::durable().named("waiting"));
        let options = Options::new("orders").delay(shared).queue_type(QueueType::Classic);
        let definitions: Value = serde_json::from_str(&plan(options).definitions_json("/")).unwrap();
        assert_eq!(definitions["exchanges"][0]["name"], "orders--retry");
        assert_eq!(definitions["exchanges"][0]["type"], "fanout");
        let ends = |binding: &Value| format!("{} → {}", binding["source"], binding["destination"]);
        let bindings: Vec<_> = definitions["bindings"].as_array().unwrap().iter().map(ends).collect();
        assert_eq!(bindings, [r#""orders--retry" → "orders""#, r#""orders--backoff" → "waiting""#]);

        let own = plan(Options::new("orders").delay(SingleQueue::transient())).definitions_json("/");
        assert!(!own.contains("orders--dead-letters"), "{own}");
    }

    #[test]
    fn the_way_back_of_stages_is_said() {
        let staged = crate::Staged::back_to("shop").stage("orders.wait", Duration::from_secs(30));
        let lines = plan(Options::new("orders").delay(staged)).to_string();
        assert!(lines.contains("binding of queue `orders` to exchange `shop` with key `orders`"), "{lines}");
    }

    #[test]
    fn terraform_refers_to_what_it_makes() {
        let delay = SingleQueue::durable().queue(Entity::durable().named("2.${wait}"));
        let written =
            plan(Options::new("orders.eu").delay(delay).queue_type(QueueType::Classic)).terraform("/");
        for part in [
            r#"resource "rabbitmq_queue" "orders_eu" {
  name  = "orders.eu"
  vhost = "/"
  settings {
    durable     = true
    auto_delete = false

    arguments_json = jsonencode({
      "x-dead-letter-exchange"    = ""
      "x-dead-letter-routing-key" = "orders.eu--failed"
      "x-queue-type"              = "classic"
    })
  }
}
"#,
            r#"  source           = rabbitmq_exchange.orders_eu--backoff.name
  vhost            = "/"
  destination      = rabbitmq_queue._2___wait_.name
"#,
            r#"  name  = "2.$${wait}""#,
        ] {
            assert!(written.contains(part), "{part}\nis not in\n{written}");
        }
    }

    #[test]
    fn names_that_differ_have_labels_that_differ() {
        let mut resources = Resources::default();
        let labels = ["a.b", "a_b", "a b"].map(|name| resources.label("rabbitmq_queue", name));
        assert_eq!(labels, ["a_b", "a_b_", "a_b__"]);
    }

    #[test]
    fn displayed_it_has_a_line_for_each() {
        let plan = plan(Options::new("orders").delay(SingleQueue::durable()));
        let lines = plan.to_string();
        for line in [
            "queue `orders--parking-lot` (durable, x-delivery-limit=2147483647, x-queue-type=\"quorum\")",
            "exchange `orders--retry` (fanout, durable)",
            "binding of queue `orders` to exchange `orders--retry` with key `#`",
        ] {
            assert!(lines.lines().any(|said| said == line), "{line}\nis not in\n{lines}");
        }
    }
}
