//! What a configuration needs from its broker, compared with what the broker can do before the first message is taken.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::facts::Facts;
use crate::transport_error::OpenError;
use crate::unmet_need::UnmetNeed;

/// What a consumer's layers need from the transport. The consumer collects it from the layers; the transport prepares it at the
/// start (for example one delay queue per wait).
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Needs {
    /// Waits that retries will use, as far as they are known; empty if none is known.
    pub waits: BTreeSet<Duration>,
    /// Waits of each retry policy that an error passes, outermost first. More than one policy is refused: the innermost decides
    /// about every error, and the outer ones never act.
    pub policies: Vec<BTreeSet<Duration>>,
    /// How often a message may be handled before its retries end: [`u32::MAX`] if they have no end, or none is known; `None` if
    /// nothing is retried.
    pub attempts: Option<u32>,
    /// How often a message may be handed out before the layers turn it away.
    pub deliveries: Option<u32>,
    /// True if [`deliveries`](Self::deliveries) is a default that nobody chose: if the broker removes messages earlier, the
    /// layers stay one below the broker's limit.
    pub deliveries_give_way: bool,
    /// Maximum number of deliveries to hold, handled or waiting: no [limit](crate::transport::Receiver::set_limit) is greater. 0: not set; a
    /// transport then chooses any number of at least 1.
    pub prefetch: u32,
    /// Number of deliveries that the handler takes at the same time, to handle them in one batch. The
    /// consumer's concurrency is at least this. 0: no batches.
    pub concurrency: usize,
    /// Maximum time from a delivery to its settlement; `None`: not known.
    pub longest_hold: Option<Duration>,
    /// Maximum time that one request for messages waits, where the transport [polls](Facts::polls); `None`: what the transport
    /// chooses.
    pub max_wait_time: Option<Duration>,
}

impl Needs {
    /// Creates needs that ask for nothing.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Combines these needs with those of `other`, which is inside them.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.waits.extend(other.waits);
        self.policies.extend(other.policies);
        self.attempts = self.attempts.max(other.attempts);
        self.deliveries_give_way = match self.deliveries.cmp(&other.deliveries) {
            Ordering::Less => other.deliveries_give_way,
            Ordering::Equal => self.deliveries_give_way && other.deliveries_give_way,
            Ordering::Greater => self.deliveries_give_way,
        };
        self.deliveries = self.deliveries.max(other.deliveries);
        self.prefetch = self.prefetch.max(other.prefetch);
        self.concurrency = self.concurrency.max(other.concurrency);
        self.longest_hold = self.longest_hold.max(other.longest_hold);
        self.max_wait_time = self.max_wait_time.max(other.max_wait_time);
        self
    }

    /// Combines the needs of alternatives: each message goes to only one of them, as with the routes of a
    /// `Router`. The policies are those of the alternative that nests most.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let most = if self.policies.len() < other.policies.len() { &other } else { &self };
        let policies = most.policies.clone();
        Self { policies, ..self.and(other) }
    }

    /// Returns how often a message may be handed out before the layers turn it away, given the limit of this broker.
    #[must_use]
    pub fn deliveries_on(&self, facts: &Facts) -> Option<u32> {
        match (self.deliveries, facts.limits.deliveries) {
            (Some(wanted), Some(limit)) if self.deliveries_give_way => Some(below(limit, wanted)),
            (asked, _) => asked,
        }
    }

    /// Runs the preflight: refuses what the broker cannot honour. [`Transport::open`](crate::Transport::open) calls it once, as
    /// soon as the facts are known, and a second time only if preparing the queue changed them.
    ///
    /// # Errors
    ///
    /// [`OpenError::Refused`] if any need is [`unmet`](Self::unmet).
    pub fn check(&self, queue: &str, facts: &Facts) -> Result<(), OpenError> {
        let unmet = self.unmet(queue, facts);
        if unmet.is_empty() { Ok(()) } else { Err(OpenError::Refused(unmet)) }
    }

    /// Returns the needs that the broker cannot honour. Empty if it can honour all.
    #[must_use]
    pub fn unmet(&self, queue: &str, facts: &Facts) -> Vec<UnmetNeed> {
        let mut unmet = Vec::from_iter(self.nested_policies(queue));
        if let (Some(&wait), Some(longest)) = (self.waits.last(), facts.delays.longest)
            && wait > longest
        {
            unmet.push(UnmetNeed::WaitTooLong {
                queue: queue.to_owned(),
                system: facts.system,
                wait,
                longest,
            });
        }
        if let (Some(deliveries), Some(limit)) = (self.deliveries_on(facts), facts.limits.deliveries)
            && deliveries >= limit
        {
            unmet.push(UnmetNeed::DeliveryLimit { queue: queue.to_owned(), deliveries, limit });
        }
        if let (Some(attempts), Some(_)) = (self.attempts, facts.delays.in_place) {
            unmet.extend(self.unmet_in_place(attempts, queue, facts));
        }
        unmet
    }

    /// Finds two policies around one handler.
    fn nested_policies(&self, queue: &str) -> Option<UnmetNeed> {
        let [outer, .., inner] = &self.policies[..] else { return None };
        Some(UnmetNeed::NestedPolicies {
            queue: queue.to_owned(),
            inner: inner.clone(),
            outer: outer.clone(),
        })
    }

    /// Checks a broker that retries by itself. Each attempt is a delivery of the same message there, so the limits of deliveries
    /// must leave room for all attempts.
    fn unmet_in_place(&self, attempts: u32, queue: &str, facts: &Facts) -> Vec<UnmetNeed> {
        let mut unmet = Vec::new();
        if let Some(limit) = facts.limits.deliveries.filter(|&limit| attempts > limit) {
            unmet.push(UnmetNeed::AttemptsAboveBroker { queue: queue.to_owned(), attempts, limit });
        }
        if let Some(limit) = self.deliveries_on(facts).filter(|&limit| attempts > limit) {
            let gives_way = Some(limit) != self.deliveries;
            unmet.push(UnmetNeed::AttemptsAboveLayers {
                queue: queue.to_owned(),
                attempts,
                limit,
                gives_way,
            });
        }
        unmet
    }

    /// Returns the needs that the broker may not always honour: one sentence each, with what to do. They are no reason to refuse
    /// the start.
    #[must_use]
    pub fn doubtful(&self, queue: &str, facts: &Facts) -> Vec<String> {
        let system = facts.system;
        let mut doubtful = Vec::new();
        if let (Some(asked), Some(limit)) = (self.longest_hold, facts.limits.hold)
            && asked >= limit
        {
            doubtful.push(format!(
                "a delivery of queue `{queue}` may be held for {}, but {system} takes an unsettled delivery back after {}, \
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

    /// Returns the sentence about a setting that has no effect on this broker. It harms nothing.
    #[must_use]
    pub fn unused(&self, queue: &str, facts: &Facts) -> Option<String> {
        let wait = self.max_wait_time.filter(|_| !facts.polls)?;
        Some(format!(
            "the longest wait of one receive of queue `{queue}`, {} (`MaxWaitTime`), has no effect: {} pushes deliveries, and no \
             request waits for them; leave the setting out",
            humantime::format_duration(wait),
            facts.system,
        ))
    }
}

/// Returns the wanted number of deliveries, kept below the broker's limit.
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
    fn a_wait_that_no_request_has_is_named() {
        let mut facts = Facts::new("test");
        assert_eq!(Needs::none().unused("orders", &facts), None);
        let needs = Needs { max_wait_time: Some(Duration::from_secs(5)), ..Needs::none() };
        let said = needs.and(Needs::none()).unused("orders", &facts).expect("nothing waits");
        assert!(said.contains("orders") && said.contains("5s") && said.contains("no effect"), "{said}");
        assert!(!said.contains("  "), "a gap in the sentence: {said}");
        facts.polls = true;
        let needs = Needs { max_wait_time: Some(Duration::from_secs(5)), ..Needs::none() };
        assert_eq!(needs.unused("orders", &facts), None);
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
        // Of two limits the greater one counts; if they are equal, a chosen one wins over a default.
        assert!(!default.clone().and(said).deliveries_give_way);
        assert!(Needs::none().and(default.clone()).and(Needs::none()).deliveries_give_way);
        let more = Needs { deliveries: Some(12), ..Needs::none() };
        assert!(!default.clone().and(more.clone()).deliveries_give_way);
        assert!(!more.and(default.clone()).deliveries_give_way);
        facts.limits.deliveries = Some(1);
        assert_eq!(default.unmet("q", &facts).len(), 1, "there is no delivery left to turn it away");
    }

    #[test]
    fn a_policy_around_a_policy_is_named() {
        let policy = |seconds: &[u64]| {
            let waits: BTreeSet<_> = seconds.iter().copied().map(Duration::from_secs).collect();
            Needs { policies: vec![waits], ..Needs::none() }
        };
        let unmet = |needs: &Needs| needs.unmet("orders", &Facts::new("test"));
        assert!(unmet(&Needs::none().and(policy(&[1])).and(Needs::none())).is_empty());
        let nested = policy(&[60]).and(policy(&[1, 2, 3, 4, 5, 6]));
        let said = unmet(&nested).remove(0).to_string();
        assert!(said.contains("inner one (waits 1s, 2s, 3s, 4s, 5s, …)"), "{said}");
        assert!(said.contains("outer one (waits 1m)") && said.contains("`orders`"), "{said}");
        assert!(unmet(&policy(&[]).and(policy(&[1])))[0].to_string().contains("outer one (without waits)"));
        // Alternatives are not nested.
        let either = policy(&[1]).or(policy(&[2])).or(Needs::none());
        assert!(unmet(&either).is_empty());
        assert_eq!(unmet(&policy(&[60]).and(either)).len(), 1);
        for either in [nested.clone().or(policy(&[9])), policy(&[9]).or(nested)] {
            assert_eq!(unmet(&either).len(), 1);
        }
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

    #[test]
    fn a_refusal_has_the_fields_of_its_sentence() {
        let wait = Duration::from_secs(90);
        let longest = Duration::from_secs(60);
        let mut facts = Facts::new("test");
        facts.delays.longest = Some(longest);
        facts.limits.deliveries = Some(5);
        let needs = Needs { waits: [wait].into(), deliveries: Some(7), ..Needs::none() };
        let Err(refused @ OpenError::Refused(_)) = needs.check("orders", &facts) else {
            panic!("it opens");
        };
        assert_eq!(
            refused.to_string(),
            "the retry policy asks for a wait of 1m 30s, but test can hold a message of queue `orders` for 1m at most: lower the \
             policy's cap or schedule; the layers turn a message of queue `orders` away after 7 deliveries, but the broker takes \
             it away itself at 5: raise the queue's delivery limit above 7, or lower the layers' limit (`poison_after`) below 5"
        );
        let OpenError::Refused(unmet) = refused else { unreachable!() };
        let queue = || "orders".to_owned();
        let wait = UnmetNeed::WaitTooLong { queue: queue(), system: "test", wait, longest };
        assert_eq!(unmet, [wait, UnmetNeed::DeliveryLimit { queue: queue(), deliveries: 7, limit: 5 }]);
    }

    #[test]
    fn limits_of_attempts_in_place_are_told_apart() {
        let mut facts = Facts::new("test");
        facts.limits.deliveries = Some(4);
        facts.delays.in_place = Some(InPlace::Any { longest: Duration::from_secs(1) });
        let mut needs = Needs { attempts: Some(u32::MAX), deliveries: Some(9), ..Needs::none() };
        needs.deliveries_give_way = true;
        let said = needs.unmet("q", &facts).iter().map(ToString::to_string).collect::<Vec<_>>();
        let [broker, layers] = &said[..] else { panic!("{said:?}") };
        assert_eq!(
            broker,
            "the retry policy tries a message of queue `q` without end, and the broker, which retries without copies here, takes \
             it away after it handed it out 4 times: raise the queue's delivery limit, or lower the policy's attempts"
        );
        assert_eq!(
            layers,
            "the retry policy tries a message of queue `q` without end, and the layers turn it away after 3 deliveries, which \
             include the retries here: raise the queue's delivery limit, below which the layers stay, or lower the policy's \
             attempts"
        );
    }
}
