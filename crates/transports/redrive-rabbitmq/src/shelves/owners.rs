//! Whose the entries of a shelf are, and where they failed. Pure.

use redrive_core::shelves::{Owner, Shelved};

use crate::broker::deaths::{Death, DeathHistory};
use crate::topology::Names;

/// The queues that share a shelf, as far as the operator listed them.
#[derive(Debug)]
pub(super) struct Owners {
    names: Names,
    listed: Vec<String>,
}

impl Owners {
    pub(super) fn new(names: Names, listed: Vec<String>) -> Self {
        Self { names, listed }
    }

    /// Writes on an entry where it failed, and whose it is.
    ///
    /// What the broker wrote counts before redrive's header: redrive removes it from every copy that it stores on a shelf for a consumer,
    /// so it is later than the header.
    pub(super) fn mark(&self, mut entry: Shelved) -> Shelved {
        let deaths = DeathHistory::read(entry.message.headers()).deaths;
        if let Some(death) = self.last_failure(&deaths) {
            entry.failed_in = Some(death.queue.clone());
        }
        entry.owner = Owner::of(entry.failed_in.as_deref(), &self.names.work, &self.listed);
        entry
    }

    /// Returns the death that tells where the consumer failed. Messages expire in the retry queues of any program too, so an expiration
    /// tells it only in a queue that is known, or if there is nothing else.
    fn last_failure<'a>(&self, deaths: &'a [Death]) -> Option<&'a Death> {
        let mut failures =
            deaths.iter().filter(|death| !death.queue.is_empty() && !self.is_passed(&death.queue));
        let newest = failures.clone().next();
        failures.find(|death| death.reason != "expired" || self.is_known(&death.queue)).or(newest)
    }

    fn is_known(&self, queue: &str) -> bool {
        queue == self.names.work || self.listed.iter().any(|listed| listed == queue)
    }

    /// Returns true for a queue of redrive's own that no consumer reads: a delay queue, or a shelf.
    fn is_passed(&self, queue: &str) -> bool {
        let is_delay =
            queue.strip_prefix(&*self.names.retry_prefix).is_some_and(|rest| rest.starts_with('-'));
        is_delay || queue == self.names.dead_letters || queue == self.names.parking
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::shelves::EntryHandle;
    use redrive_core::{Headers, Message, Shelf, Value, header_names};

    use super::*;
    use crate::topology::GivenNames;

    /// The deaths, newest first.
    fn marked(deaths: &[(&str, &str)], header: Option<&str>) -> (Option<String>, Owner) {
        let owners = Owners::new(GivenNames::of("orders").settled("dead-letters"), vec!["bills".into()]);
        let death = |(queue, reason): &(&str, &str)| {
            let entry =
                [("queue", Value::from(*queue)), ("reason", Value::from(*reason)), ("count", Value::I64(1))];
            Value::Table(Headers::from_iter(entry))
        };
        let mut message = Message::new("");
        if !deaths.is_empty() {
            message.headers_mut().insert("x-death", Value::List(deaths.iter().map(death).collect()));
        }
        if let Some(queue) = header {
            message.headers_mut().insert(header_names::SOURCE_QUEUE, queue);
        }
        let entry = owners.mark(Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message));
        (entry.failed_in, entry.owner)
    }

    #[test]
    fn the_newest_death_tells_where_a_message_failed() {
        let (this, listed, other) = (Owner::This, Owner::Listed, Owner::Other);
        for (deaths, queue, owner) in [
            (&[("orders", "rejected")][..], "orders", this),
            (&[("bills", "rejected")], "bills", listed),
            (&[("wages", "delivery_limit")], "wages", other),
            (&[("wages", "maxlen"), ("orders", "rejected")], "wages", other),
            (&[("bills", "expired"), ("orders", "rejected")], "bills", listed),
            (&[("orders", "expired")], "orders", this),
            // Retry queues: of any program, and of redrive.
            (&[("orders.wait", "expired"), ("orders", "rejected")], "orders", this),
            (&[("wages.wait", "expired"), ("wages", "rejected"), ("orders", "rejected")], "wages", other),
            (&[("orders--retry-1000ms", "expired"), ("bills", "rejected")], "bills", listed),
            (&[("orders--dead-letters", "maxlen"), ("bills", "rejected")], "bills", listed),
            // Nothing else tells it.
            (&[("wages", "expired")], "wages", other),
            (&[("wages", "a reason of tomorrow")], "wages", other),
        ] {
            assert_eq!(marked(deaths, None), (Some(queue.to_owned()), owner), "{deaths:?}");
        }
        assert_eq!(
            marked(&[("orders--retry-1000ms", "expired"), ("", "rejected")], None),
            (None, Owner::Unknown)
        );
    }

    #[test]
    fn the_header_counts_where_the_broker_says_nothing() {
        for (header, owner) in [("orders", Owner::This), ("bills", Owner::Listed), ("wages", Owner::Other)] {
            assert_eq!(marked(&[], Some(header)), (Some(header.to_owned()), owner));
            let broker = Some("orders".to_owned());
            assert_eq!(marked(&[("orders", "rejected")], Some(header)), (broker, Owner::This), "{header}");
        }
        assert_eq!(marked(&[], None), (None, Owner::Unknown));
    }
}
