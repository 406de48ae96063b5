//! Which entities can be received from, by what their links meet. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::TransportError;
use redrive_core::transport::Signal;

/// Which entities can be received from.
#[derive(Debug, Default)]
pub(super) struct Reachable {
    entities: BTreeMap<Arc<str>, Reached>,
    /// The error of the connection, until the broker says something of an entity again.
    outage: Option<TransportError>,
}

/// What the links to one entity meet.
#[derive(Debug, Default)]
struct Reached {
    /// The number of links that the broker delivers on, or looks for a session for.
    links: usize,
    /// The last refusal while there were no such links.
    refused: Option<TransportError>,
}

impl Reachable {
    /// Records that a link can receive.
    pub(super) fn began(&mut self, entity: &Arc<str>) {
        self.outage = None;
        let reached = self.entities.entry(Arc::clone(entity)).or_default();
        reached.links += 1;
        reached.refused = None;
    }

    /// Records that such a link ended.
    pub(super) fn ended(&mut self, entity: &str) {
        if let Some(reached) = self.entities.get_mut(entity) {
            reached.links = reached.links.saturating_sub(1);
        }
    }

    /// Records that another link was refused, or ended with an error. While other links receive, it concerns only that one: sessions
    /// have a link each.
    pub(super) fn refused(&mut self, entity: &Arc<str>, error: TransportError) {
        self.outage = None;
        let reached = self.entities.entry(Arc::clone(entity)).or_default();
        if reached.links == 0 {
            reached.refused = Some(error);
        }
    }

    /// Records that the connection ended or could not be made, and with it all links: that is no refusal of an entity.
    pub(super) fn disconnected(&mut self, error: TransportError) {
        self.outage = Some(error);
    }

    /// Returns the signal to the consumer. An entity whose link ended without an error, as in a pause, can be received from.
    pub(super) fn signal(&self) -> Signal {
        if let Some(error) = &self.outage {
            return Signal::Disconnected(error.clone());
        }
        let mut refused = self.entities.values().filter_map(|reached| reached.refused.as_ref());
        let Some(first) = refused.next() else { return Signal::Connected };
        let others: Vec<_> = refused.map(ToString::to_string).collect();
        if 1 + others.len() < self.entities.len() {
            return Signal::PartlyConnected(first.clone());
        }
        let all = [vec![first.to_string()], others].concat().join("; ");
        Signal::Disconnected(TransportError::new(first.kind(), all))
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::TransportErrorKind;

    use super::*;

    fn error(text: &str) -> TransportError {
        TransportError::new(TransportErrorKind::Topology, text)
    }

    fn said(reachable: &Reachable) -> Option<String> {
        match reachable.signal() {
            Signal::Disconnected(error) => Some(error.to_string()),
            Signal::PartlyConnected(error) => Some(format!("partly: {error}")),
            _ => None,
        }
    }

    #[test]
    fn an_entity_is_refused_when_no_link_to_it_receives() {
        let (mut reachable, entity) = (Reachable::default(), Arc::from("orders"));
        assert_eq!(said(&reachable), None);
        reachable.refused(&entity, error("disabled"));
        assert_eq!(said(&reachable).as_deref(), Some("disabled"));
        reachable.refused(&entity, error("gone"));
        assert_eq!(said(&reachable).as_deref(), Some("gone"), "the last one counts");
        reachable.began(&entity);
        assert_eq!(said(&reachable), None);
    }

    #[test]
    fn one_link_of_several_that_ends_does_not_stop_the_others() {
        let (mut reachable, entity) = (Reachable::default(), Arc::from("orders"));
        reachable.began(&entity);
        reachable.began(&entity);
        reachable.ended(&entity);
        reachable.refused(&entity, error("detached"));
        assert_eq!(said(&reachable), None, "another session is held");
        reachable.ended(&entity);
        assert_eq!(said(&reachable), None, "it was released, and nothing was refused since");
        reachable.refused(&entity, error("disabled"));
        assert_eq!(said(&reachable).as_deref(), Some("disabled"));
    }

    #[test]
    fn the_end_of_the_connection_is_no_refusal_of_one_entity() {
        let [billing, back] = ["topic/Subscriptions/billing", "back"].map(Arc::from);
        let mut reachable = Reachable::default();
        reachable.began(&billing);
        reachable.began(&back);
        for _ in 0..2 {
            reachable.ended(&billing);
            reachable.disconnected(error("cut"));
            assert_eq!(said(&reachable).as_deref(), Some("cut"), "each intake says so");
        }
        reachable.began(&back);
        assert_eq!(said(&reachable), None, "the other one was not refused");
        reachable.refused(&billing, error("disabled"));
        assert_eq!(said(&reachable).as_deref(), Some("partly: disabled"));
        reachable.disconnected(error("cut"));
        reachable.began(&back);
        assert_eq!(said(&reachable).as_deref(), Some("partly: disabled"), "it may still be so");
    }

    #[test]
    fn an_entity_that_is_refused_says_nothing_of_the_others() {
        let billing = Arc::from("topic/Subscriptions/billing");
        let mut reachable = Reachable::default();
        reachable.began(&billing);
        reachable.refused(&Arc::from("back"), error("disabled"));
        assert_eq!(said(&reachable).as_deref(), Some("partly: disabled"));
        reachable.ended(&billing);
        assert_eq!(said(&reachable).as_deref(), Some("partly: disabled"), "it was paused, not refused");
        reachable.refused(&billing, error("gone"));
        assert_eq!(said(&reachable).as_deref(), Some("disabled; gone"), "each is named");
        reachable.began(&Arc::from("back"));
        assert_eq!(said(&reachable).as_deref(), Some("partly: gone"));
    }
}
