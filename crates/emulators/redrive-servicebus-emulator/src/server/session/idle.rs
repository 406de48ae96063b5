//! Detaches links without traffic for too long, as Azure does after ten minutes. A client that uses such a link attaches it
//! again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Link;
use super::Session;
use crate::amqp::state::AmqpError;
use crate::broker::Timestamp;
use crate::server::context::Context;

/// When each link of a session to an entity was last used, by handle. Empty if idle links are not detached.
#[derive(Debug, Default)]
pub(super) struct LastUsed(BTreeMap<u32, Timestamp>);

impl LastUsed {
    pub(super) fn forget(&mut self, handle: u32) {
        self.0.remove(&handle);
    }
}

impl Session {
    /// Records traffic on this link.
    pub(super) fn touch(&mut self, context: &Context, handle: u32) {
        let is_watched = |link: &Link| match link {
            Link::Incoming(incoming) => incoming.entity().is_some(),
            Link::Consumer(_) => true,
            Link::Replies(_) | Link::Accepting(_) => false,
        };
        if context.shared.idle_links.is_some() && self.links.get(&handle).is_some_and(is_watched) {
            self.last_used.0.insert(handle, context.shared.clock.now());
        }
    }

    pub(in crate::server) fn detach_idle(&mut self, context: &mut Context) {
        let Some(patience) = context.shared.idle_links else { return };
        let now = context.shared.clock.now();
        let idle = self.last_used.0.iter().filter(|(_, used)| now.since(**used) >= patience);
        let idle: Vec<u32> = idle.map(|(handle, _)| *handle).collect();
        for handle in idle {
            let error = AmqpError::new("amqp:link:detach-forced", reason(&self.links, handle, patience));
            self.detach(context, handle, error);
        }
    }

    /// Returns when the next link may be idle, by the machine's clock; `None` also if the clock moves only when advanced.
    pub(in crate::server) fn next_idle(&self, context: &Context) -> Option<Instant> {
        let patience = context.shared.idle_links.filter(|_| context.shared.clock.runs())?;
        let oldest = self.last_used.0.values().min()?;
        Some(Instant::now() + (*oldest + patience).since(context.shared.clock.now()))
    }
}

/// Uses Azure's text, because people search for it.
fn reason(links: &BTreeMap<u32, Link>, handle: u32, patience: Duration) -> String {
    let who = if matches!(links.get(&handle), Some(Link::Incoming(_))) { "Publisher" } else { "Consumer" };
    let (seconds, minutes) = (patience.as_secs() % 60, patience.as_secs() / 60);
    let (minutes, hours) = (minutes % 60, minutes / 60);
    format!(
        "The link is force detached. Details: AmqpMessage{who}.IdleTimerExpired: Idle timeout: {hours:02}:{minutes:02}:{seconds:02}."
    )
}
