//! The real brokers: private nodes with the management API, which sets the policies, or those that a person keeps running.

use crate::campaign::Real;
use redrive_brokers::{Node, Version, own_node_with_plugins};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A running node; it ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Running {
    /// How to reach it.
    pub real: Real,
    _node: Option<Arc<Node>>,
}

/// The nodes of this process, while tests use them.
static NODES: [Mutex<Weak<Node>>; 2] = [Mutex::new(Weak::new()), Mutex::new(Weak::new())];

/// Returns the node of `version`, and starts it if no other test of this process has. Set `REDRIVE_DIFFERENTIAL_AMQP_V4_3` and
/// `REDRIVE_DIFFERENTIAL_HTTP_V4_3` (or `…_V3_10`) to URLs to use a broker that runs already.
///
/// # Panics
/// If the version is not installed, or its node does not start.
#[must_use]
pub fn real(version: Version) -> Running {
    let mark = version.mark().to_uppercase();
    let variable = |name: &str| std::env::var(format!("REDRIVE_DIFFERENTIAL_{name}_{mark}")).ok();
    if let (Some(amqp), Some(management)) = (variable("AMQP"), variable("HTTP")) {
        return Running { real: Real { amqp, management }, _node: None };
    }
    let place = usize::from(version == Version::V4_3);
    // Held while the node starts: the second test waits for it.
    let mut known = NODES[place].lock().unwrap_or_else(PoisonError::into_inner);
    let node = known
        .upgrade()
        .unwrap_or_else(|| Arc::new(own_node_with_plugins(version, &[], &["rabbitmq_management"])));
    *known = Arc::downgrade(&node);
    Running { real: Real { amqp: node.url(), management: node.management_url() }, _node: Some(node) }
}
