//! Places where redrive's own tests kill the process. Not part of the public API.
//!
//! Without the feature `_fail-points` a point is an empty function, and the binary contains nothing of it. With the feature, the
//! process aborts as on SIGKILL (no destructor runs, nothing is flushed) when it reaches the point that `REDRIVE_FAIL_POINT` names:
//! `copy-confirmed` the first time, `copy-confirmed:7` the seventh time. With `copy-confirmed:7:stop` it stops there as on SIGSTOP,
//! until SIGCONT arrives: this shows what other processes do between two steps.

/// A step between received and settled that has just been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailPoint {
    /// The consumer has a delivery and has done nothing with it yet.
    Received,
    /// The handler has ended, and the layers have decided.
    Decided,
    /// The copy was passed to the channel.
    CopyHandedOver,
    /// The broker confirmed the copy.
    CopyConfirmed,
    /// The acknowledgement was requested; it may wait for others.
    AckHandedOver,
    /// An acknowledgement, of one delivery or of several, was passed to the channel.
    AckFlushed,
    /// The acknowledgement was written. Only reached if a caller waits for that.
    AckWritten,
    /// As [`AckHandedOver`](Self::AckHandedOver), for a delivery that is given back, or dead-lettered by the broker.
    NackHandedOver,
    /// As [`AckFlushed`](Self::AckFlushed), for such a delivery.
    NackFlushed,
    /// As [`AckWritten`](Self::AckWritten), for such a delivery; if the broker confirms it, after the confirm.
    NackWritten,
    /// An operator's program has received a message of a shelf and has done nothing with it yet.
    Taken,
}

impl FailPoint {
    /// All points, in the order in which a delivery passes them.
    pub const ALL: [Self; 11] = [
        Self::Received,
        Self::Decided,
        Self::CopyHandedOver,
        Self::CopyConfirmed,
        Self::AckHandedOver,
        Self::AckFlushed,
        Self::AckWritten,
        Self::NackHandedOver,
        Self::NackFlushed,
        Self::NackWritten,
        Self::Taken,
    ];

    /// Returns the word for it in `REDRIVE_FAIL_POINT`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Decided => "decided",
            Self::CopyHandedOver => "copy-handed-over",
            Self::CopyConfirmed => "copy-confirmed",
            Self::AckHandedOver => "ack-handed-over",
            Self::AckFlushed => "ack-flushed",
            Self::AckWritten => "ack-written",
            Self::NackHandedOver => "nack-handed-over",
            Self::NackFlushed => "nack-flushed",
            Self::NackWritten => "nack-written",
            Self::Taken => "taken",
        }
    }
}

/// Does nothing.
#[cfg(not(feature = "_fail-points"))]
#[inline(always)]
pub fn fail_point(_: FailPoint) {}

/// Aborts or stops the process if `REDRIVE_FAIL_POINT` names this point.
#[cfg(feature = "_fail-points")]
pub fn fail_point(point: FailPoint) {
    chosen::CHOSEN.pass(point);
}

#[cfg(feature = "_fail-points")]
mod chosen {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::FailPoint;

    pub(super) static CHOSEN: LazyLock<Chosen> = LazyLock::new(|| {
        let said = std::env::var("REDRIVE_FAIL_POINT").ok();
        let chosen = said.as_deref().map(|text| {
            // A misspelt name would let the test pass without proving anything.
            read(text).unwrap_or_else(|| panic!("REDRIVE_FAIL_POINT names no fail point: `{text}`"))
        });
        Chosen { chosen, passed: AtomicU64::new(0) }
    });

    pub(super) struct Chosen {
        chosen: Option<Choice>,
        passed: AtomicU64,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Choice {
        point: FailPoint,
        times: u64,
        stop: bool,
    }

    impl Chosen {
        pub(super) fn pass(&self, point: FailPoint) {
            let Some(chosen) = self.chosen.filter(|chosen| chosen.point == point) else { return };
            if self.passed.fetch_add(1, Ordering::SeqCst) + 1 != chosen.times {
                return;
            }
            if chosen.stop {
                eprintln!("stopping at the fail point `{}`", point.name());
                stop();
            } else {
                eprintln!("aborting at the fail point `{}`", point.name());
                std::process::abort();
            }
        }
    }

    /// Sends SIGSTOP to this process. Returns after SIGCONT.
    fn stop() {
        let id = std::process::id().to_string();
        let sent = std::process::Command::new("kill").args(["-STOP", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the process cannot be stopped by `kill -STOP`");
    }

    fn read(text: &str) -> Option<Choice> {
        let mut words = text.split(':');
        let name = words.next()?;
        let point = FailPoint::ALL.into_iter().find(|point| point.name() == name)?;
        let times = words.next().map_or(Ok(1), str::parse).ok()?;
        let stop = match words.next() {
            None => false,
            Some("stop") => true,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Choice { point, times, stop })
    }

    #[test]
    fn a_point_and_its_pass_are_read() {
        let choice = |point, times, stop| Some(Choice { point, times, stop });
        assert_eq!(read("copy-confirmed"), choice(FailPoint::CopyConfirmed, 1, false));
        assert_eq!(read("taken:12"), choice(FailPoint::Taken, 12, false));
        assert_eq!(read("taken:3:stop"), choice(FailPoint::Taken, 3, true));
        for wrong in ["confirmed", "taken:x", "taken:1:wait", "taken:1:stop:1"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
