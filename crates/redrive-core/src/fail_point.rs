//! Places where redrive's own tests kill the process. Not part of the public API.
//!
//! Without the feature `_fail-points` a point is an empty function, and nothing of it is in the binary. With it, the
//! process aborts (no destructor runs, nothing is flushed: as with SIGKILL) when it comes by the point that
//! `REDRIVE_FAIL_POINT` names: `copy-confirmed` the first time, `copy-confirmed:7` the seventh time. With
//! `copy-confirmed:7:stop` it stops there instead, as by SIGSTOP, until somebody sends it SIGCONT: for what happens to others
//! between two steps.

/// A step between received and settled, just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailPoint {
    /// The consumer has a delivery and did nothing with it yet.
    Received,
    /// The handler has ended, and what becomes of the message is decided.
    Decided,
    /// The copy was handed to the channel.
    CopyHandedOver,
    /// The broker confirmed the copy.
    CopyConfirmed,
    /// The acknowledgement was asked for; it may wait for others.
    AckHandedOver,
    /// An acknowledgement, of one or many, was handed to the channel.
    AckFlushed,
    /// It was written, where somebody waits for that.
    AckWritten,
    /// The same for a delivery that is given back, or dead-lettered by the broker.
    NackHandedOver,
    /// Likewise.
    NackFlushed,
    /// Likewise: the broker has said that it is done, where it says so.
    NackWritten,
    /// An operator's program has a message of a shelf in flight and did nothing with it yet.
    Taken,
}

impl FailPoint {
    /// All of them, in the order in which a delivery passes them.
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

    /// Its word in `REDRIVE_FAIL_POINT`.
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

/// Nothing.
#[cfg(not(feature = "_fail-points"))]
#[inline(always)]
pub fn fail_point(_: FailPoint) {}

/// Aborts or stops the process if this is where it shall die, or stop.
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
            // Misspelt, the test that set it would prove nothing.
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

    /// Sends SIGSTOP to this process, and goes on after SIGCONT.
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
