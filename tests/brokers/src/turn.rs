//! One node for several tests of a process: a start costs ten times as much as most of what they do with it.

use crate::{Node, Version, own_node};
use std::ops::Deref;
use tokio::sync::{Mutex, MutexGuard};

/// Nodes that nobody uses now.
static KEPT: [Mutex<Option<Node>>; 2] = [Mutex::const_new(None), Mutex::const_new(None)];

/// A node that this test has for itself until it [passes it on](Turn::pass_on).
#[derive(Debug)]
pub struct Turn {
    node: Node,
    kept: MutexGuard<'static, Option<Node>>,
}

/// Waits until no other test of this process uses the node of `version`, and returns it. Use names of your own: the queues of others
/// may still be there.
///
/// # Panics
/// As [`own_node`].
pub async fn node_in_turn(version: Version) -> Turn {
    let mut kept = KEPT[usize::from(version == Version::V4_3)].lock().await;
    let node = match kept.take() {
        Some(node) => node,
        None => tokio::task::spawn_blocking(move || own_node(version)).await.expect("a node"),
    };
    Turn { node, kept }
}

impl Turn {
    /// Lets the next test have the node, which must run and be as it was. A test that fails before takes its node with it.
    pub fn pass_on(mut self) {
        *self.kept = Some(self.node);
    }
}

impl Deref for Turn {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}
