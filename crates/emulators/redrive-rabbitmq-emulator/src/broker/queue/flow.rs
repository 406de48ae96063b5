//! Which publishers a quorum queue with `reject-publish` refuses: it tells them when it is full, and again when it has room.

/// A full queue takes publishes again once it is down to this share of its limits.
const RESUMES_AT: (u64, u64) = (4, 5);

/// What a quorum queue told its publishers last. A channel hears nothing of what was told before its first publish.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    /// Grows with everything that is told.
    told: u64,
    refuses: bool,
    /// It was down to where it resumes when last looked at.
    had_room: bool,
}

/// What a channel was told at its first publish to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration {
    told: u64,
    refused: bool,
}

/// How full a queue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    /// It has no limit.
    Unlimited,
    /// Down to where it resumes.
    Room,
    /// Up to its limits.
    Between,
    /// Above one of its limits.
    Over,
}

impl Fill {
    /// Compares counts with their limits: of messages, and of bytes.
    pub(crate) fn of(counts: [(u64, Option<u64>); 2]) -> Self {
        let mut fill = Self::Unlimited;
        for (count, limit) in counts {
            let Some(limit) = limit else { continue };
            let (part, whole) = RESUMES_AT;
            let this = if count > limit {
                Self::Over
            } else if u128::from(count) * u128::from(whole) > u128::from(limit) * u128::from(part) {
                Self::Between
            } else {
                Self::Room
            };
            fill = match (fill, this) {
                (Self::Over, _) | (_, Self::Over) => Self::Over,
                (Self::Between, _) | (_, Self::Between) => Self::Between,
                _ => Self::Room,
            };
        }
        fill
    }
}

impl Flow {
    /// Notes how full the queue is after a change. `rejects`: it has `reject-publish`; `frees`: a limit that is taken away frees its
    /// publishers (4.3; on 3.10 they stay refused).
    pub(crate) fn update(&mut self, fill: Fill, rejects: bool, frees: bool) {
        match fill {
            Fill::Over if rejects => self.tell(true),
            Fill::Room if rejects && !self.had_room => self.tell(false),
            Fill::Unlimited if frees && self.refuses => self.tell(false),
            _ => {}
        }
        self.had_room = fill == Fill::Room;
    }

    fn tell(&mut self, refuses: bool) {
        self.told += 1;
        self.refuses = refuses;
    }

    /// Registers a channel that publishes for the first time. `full`: the queue is over a limit and has `reject-publish`.
    pub(crate) fn register(&self, full: bool) -> Registration {
        Registration { told: self.told, refused: full }
    }

    /// Returns whether a publish of a channel is refused.
    pub(crate) fn refuses(&self, channel: Registration) -> bool {
        if channel.told < self.told { self.refuses } else { channel.refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_full_above_its_limit_and_has_room_below_four_fifths() {
        let of = |count, limit| Fill::of([(count, Some(limit)), (0, None)]);
        assert_eq!([0, 1, 2].map(|count| of(count, 1)), [Fill::Room, Fill::Between, Fill::Over]);
        assert_eq!([4, 5, 6].map(|count| of(count, 5)), [Fill::Room, Fill::Between, Fill::Over]);
        assert_eq!(Fill::of([(0, Some(1)), (9, Some(10))]), Fill::Between);
        assert_eq!(Fill::of([(9, None), (9, None)]), Fill::Unlimited);
    }

    #[test]
    fn who_was_refused_waits_for_room_and_who_comes_then_does_not() {
        let mut flow = Flow::default();
        let old = flow.register(false);
        flow.update(Fill::Over, true, false);
        assert!(flow.refuses(old) && flow.refuses(flow.register(true)));
        flow.update(Fill::Between, true, false);
        let new = flow.register(false);
        assert!(flow.refuses(old) && !flow.refuses(new));
        flow.update(Fill::Room, true, false);
        assert!(!flow.refuses(old));
        flow.update(Fill::Over, true, false);
        assert!(flow.refuses(old) && flow.refuses(new));
    }

    #[test]
    fn a_limit_that_goes_frees_on_4_3_only() {
        for (frees, refused) in [(true, false), (false, true)] {
            let mut flow = Flow::default();
            let channel = flow.register(false);
            flow.update(Fill::Over, true, frees);
            flow.update(Fill::Unlimited, false, frees);
            assert_eq!(flow.refuses(channel), refused);
        }
    }
}
