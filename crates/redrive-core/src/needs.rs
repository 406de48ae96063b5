//! What a configuration asks of its broker, and whether the broker can do it: compared before the
//! first message is taken.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::transport::{Facts, OpenError};

/// What a consumer's layers will ask of the transport. Gathered from the layers; the transport
/// prepares it at the start (for example one delay queue per wait).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Needs {
    /// The waits that retries will use, as far as they are known; empty when nothing is known.
    pub waits: BTreeSet<Duration>,
    /// How often a message may be handled before its retries end: [`u32::MAX`] when they have no end, or none is known;
    /// `None` when nothing is retried.
    pub attempts: Option<u32>,
    /// A message may be handed out this often before the layers turn it away.
    pub deliveries: Option<u32>,
    /// [`deliveries`](Self::deliveries) was nobody's choice: where the broker takes messages away earlier, the layers stay
    /// one below it.
    pub deliveries_give_way: bool,
    /// How many deliveries to hold at most, being handled or about to be: no [limit](crate::Receiver::set_limit) is greater. 0:
    /// nobody said; a transport then holds as many as it likes, or 1.
    pub prefetch: u32,
    /// How long a delivery is held at most, from its delivery to its settlement; `None`: not known.
    pub longest_hold: Option<Duration>,
}

impl Needs {
    /// Nothing asked for.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// These needs and those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.waits.extend(other.waits);
        self.attempts = self.attempts.max(other.attempts);
        self.deliveries_give_way = match self.deliveries.cmp(&other.deliveries) {
            Ordering::Less => other.deliveries_give_way,
            Ordering::Equal => self.deliveries_give_way && other.deliveries_give_way,
            Ordering::Greater => self.deliveries_give_way,
        };
        self.deliveries = self.deliveries.max(other.deliveries);
        self.prefetch = self.prefetch.max(other.prefetch);
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self
    }

    /// How often a message may be handed out before the layers turn it away, with the limit of this broker.
    #[must_use]
    pub fn deliveries_on(&self, facts: &Facts) -> Option<u32> {
        match (self.deliveries, facts.limits.deliveries) {
            (Some(wanted), Some(limit)) if self.deliveries_give_way => Some(below(limit, wanted)),
            (asked, _) => asked,
        }
    }

    /// The preflight: refuses what the broker cannot honour. [`Transport::open`](crate::Transport::open) calls it once, as soon
    /// as the facts are known, and once more only where preparing the queue changed them.
    ///
    /// # Errors
    ///
    /// [`OpenError::Refused`], where anything is [`unmet`](Self::unmet).
    pub fn check(&self, queue: &str, facts: &Facts) -> Result<(), OpenError> {
        let unmet = self.unmet(queue, facts);
        if unmet.is_empty() { Ok(()) } else { Err(OpenError::Refused(unmet)) }
    }

    /// What of these needs the broker cannot honour: one sentence each, with what to do. Empty when all
    /// is well.
    #[must_use]
    pub fn unmet(&self, queue: &str, facts: &Facts) -> Vec<String> {
        let mut unmet = Vec::new();
        if let (Some(&asked), Some(longest)) = (self.waits.last(), facts.delays.longest)
            && asked > longest
        {
            unmet.push(format!(
                "the retry policy asks for a wait of {}, but {} can hold a message of queue `{queue}` for {} at \
                 most: lower the policy's cap or schedule",
                humantime::format_duration(asked),
                facts.system,
                humantime::format_duration(longest),
            ));
        }
        if let (Some(asked), Some(limit)) = (self.deliveries_on(facts), facts.limits.deliveries)
            && asked >= limit
        {
            unmet.push(format!(
                "the layers turn a message of queue `{queue}` away after {asked} deliveries, but the broker takes it \
                 away itself at {limit}: raise the queue's delivery limit above {asked}, or lower the layers' limit \
                 (`poison_after`) below {limit}"
            ));
        }
        if let (Some(attempts), Some(_)) = (self.attempts, facts.delays.in_place) {
            unmet.extend(self.unmet_in_place(attempts, queue, facts));
        }
        unmet
    }

    /// Where the broker retries by itself, each attempt is a delivery of the same message: what limits these must leave room
    /// for those.
    fn unmet_in_place(&self, attempts: u32, queue: &str, facts: &Facts) -> Vec<String> {
        let asked = match attempts {
            u32::MAX => "without end".to_owned(),
            attempts => format!("{attempts} times"),
        };
        let mut unmet = Vec::new();
        if let Some(limit) = facts.limits.deliveries.filter(|&limit| attempts > limit) {
            unmet.push(format!(
                "the retry policy tries a message of queue `{queue}` {asked}, and the broker, which retries without copies \
                 here, takes it away after it handed it out {limit} times: raise the queue's delivery limit, or lower the \
                 policy's attempts"
            ));
        }
        if let Some(allowed) = self.deliveries_on(facts).filter(|&allowed| attempts > allowed) {
            let which = if Some(allowed) == self.deliveries {
                "the layers' limit (`poison_after`)"
            } else {
                "the queue's delivery limit, which that of the layers stays below"
            };
            unmet.push(format!(
                "the retry policy tries a message of queue `{queue}` {asked}, and the layers turn it away after {allowed} \
                 deliveries, among which the retries are here: raise {which}, or lower the policy's attempts"
            ));
        }
        unmet
    }

    /// What of these needs the broker may not honour at all times: one sentence each, with what to do. Not worth refusing
    /// to start.
    #[must_use]
    pub fn doubtful(&self, queue: &str, facts: &Facts) -> Vec<String> {
        let system = facts.system;
        let mut doubtful = Vec::new();
        if let (Some(asked), Some(limit)) = (self.longest_hold, facts.limits.hold)
            && asked >= limit
        {
            doubtful.push(format!(
                "a delivery of queue `{queue}` may be held for {}, but {system} takes back after {} what is not settled, \
                 and hands it out again: raise the broker's limit, lower the prefetch, or put a timeout around the handler",
                humantime::format_duration(asked),
                humantime::format_duration(limit),
            ));
        }
        if self.deliveries.is_some() && !facts.counting.deliveries {
            doubtful.push(format!(
                "queue `{queue}` does not count how often it hands a message out: one that kills the process will come \
                 again without end; use a queue that counts (on RabbitMQ: a quorum queue), or give the consumer a ledger"
            ));
        }
        doubtful
    }
}

/// As many deliveries as wanted, and fewer than the broker's limit.
pub(crate) fn below(limit: u32, wanted: u32) -> u32 {
    wanted.min(limit.saturating_sub(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_place::InPlace;

    #[test]
    fn a_handler_that_takes_longer_than_the_broker_waits_is_named() {
        let mut facts = Facts::new("test");
        let mut needs = Needs::none();
        needs.longest_hold = Some(Duration::from_secs(60));
        assert!(needs.doubtful("orders", &facts).is_empty(), "no limit is known");
        facts.limits.hold = Some(Duration::from_secs(61));
        assert!(needs.doubtful("orders", &facts).is_empty());
        facts.limits.hold = Some(Duration::from_secs(60));
        let said = needs.doubtful("orders", &facts).remove(0);
        assert!(said.contains("orders") && said.contains("1m"), "{said}");
    }

    #[test]
    fn a_limit_that_nobody_chose_gives_way_to_that_of_the_broker() {
        let mut facts = Facts::new("test");
        facts.limits.deliveries = Some(10);
        let said = Needs { deliveries: Some(10), ..Needs::none() };
        let default = Needs { deliveries_give_way: true, ..said.clone() };
        assert_eq!(default.deliveries_on(&facts), Some(9));
        assert!(default.unmet("q", &facts).is_empty());
        assert_eq!(said.deliveries_on(&facts), Some(10));
        assert_eq!(said.unmet("q", &facts).len(), 1);
        // Of two limits the greater counts; where they are equal, somebody said it.
        assert!(!default.clone().and(said).deliveries_give_way);
        assert!(Needs::none().and(default.clone()).and(Needs::none()).deliveries_give_way);
        let more = Needs { deliveries: Some(12), ..Needs::none() };
        assert!(!default.clone().and(more.clone()).deliveries_give_way);
        assert!(!more.and(default.clone()).deliveries_give_way);
        facts.limits.deliveries = Some(1);
        assert_eq!(default.unmet("q", &facts).len(), 1, "there is no delivery left to turn it away");
    }

    #[test]
    fn retries_in_place_must_fit_what_limits_hand_outs() {
        let mut facts = Facts::new("test");
        facts.limits.deliveries = Some(21);
        let unmet = |attempts, deliveries, facts: &Facts| {
            let needs = Needs { attempts: Some(attempts), deliveries: Some(deliveries), ..Needs::none() };
            needs.unmet("q", facts).len()
        };
        assert_eq!(unmet(u32::MAX, 10, &facts), 0, "each copy is counted from the start");
        facts.delays.in_place =
            Some(InPlace::Linear { shortest: Duration::from_secs(1), longest: Duration::from_secs(9) });
        assert_eq!(unmet(10, 10, &facts), 0);
        assert_eq!(unmet(11, 10, &facts), 1);
        assert_eq!(unmet(22, 10, &facts), 2);
        assert_eq!(unmet(u32::MAX, 10, &facts), 2);
    }
}
