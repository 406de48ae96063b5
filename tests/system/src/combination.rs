//! Configuration of a test on RabbitMQ: a version, and a type of queue.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redrive::rabbitmq::{Options, QueueType, RabbitMq};
use redrive_brokers::Version;

use crate::delays::Delays;

/// One of the four combinations that redrive is tested on.
#[derive(Clone, Copy, Debug)]
pub struct Combination {
    /// Of the broker.
    pub version: Version,
    /// Of the work queue and the shelves; delay queues are quorum queues in every combination.
    pub queue_type: QueueType,
    /// How retries wait.
    pub delays: Delays,
}

impl Combination {
    /// With the default delay mode.
    #[must_use]
    pub fn new(version: Version, queue_type: QueueType) -> Self {
        Self { version, queue_type, delays: Delays::Ladder }
    }

    /// The options of a consumer of `queue` in this combination.
    pub fn options(&self, queue: &str) -> Options {
        self.delays.set(RabbitMq::options(queue).queue_type(self.queue_type), queue)
    }

    /// `classic` or `quorum`.
    #[must_use]
    pub fn type_word(&self) -> &'static str {
        match self.queue_type {
            QueueType::Classic => "classic",
            _ => "quorum",
        }
    }

    /// A name of a queue that no other test uses, not even in another process on the same broker.
    #[must_use]
    pub fn unique(&self, what: &str) -> String {
        static NAMES: AtomicU32 = AtomicU32::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        let micros = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros());
        format!("redrive-test.{what}.{}.{}-{micros:x}-{number}", self.type_word(), std::process::id())
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RabbitMQ {} {}", self.version, self.type_word())?;
        match self.delays {
            Delays::Ladder => Ok(()),
            delays => write!(f, ", {}", delays.word()),
        }
    }
}

/// Returns the output of `test`, with a time limit. The time in which this program waits for its turn to start a node does not count.
///
/// # Panics
/// If the limit is exceeded.
pub async fn within<T>(limit: Duration, what: &str, test: impl Future<Output = T>) -> T {
    let mut test = pin!(test);
    let mut left = limit;
    while !left.is_zero() {
        let before = redrive_brokers::waited_to_start();
        if let Ok(output) = tokio::time::timeout(left, test.as_mut()).await {
            return output;
        }
        left = redrive_brokers::waited_to_start() - before;
    }
    panic!("{what}: not within {limit:?}")
}

/// A test, of this many seconds at most, for each of these functions on each version and type of queue: `v3_10::classic::name`, …
/// With `emulator:` before the seconds it runs on the emulator, as `as_3_10::classic::name`, and is given the URL.
#[macro_export]
macro_rules! on_four_combinations {
    (emulator: $seconds:literal; $($test:ident),+ $(,)?) => {
        mod as_3_10 {
            use super::{$($test),+};
            mod classic { $crate::on_one_combination!(emulator: V3_10, Classic, $seconds; $($test),+); }
            mod quorum { $crate::on_one_combination!(emulator: V3_10, Quorum, $seconds; $($test),+); }
        }
        mod as_4_3 {
            use super::{$($test),+};
            mod classic { $crate::on_one_combination!(emulator: V4_3, Classic, $seconds; $($test),+); }
            mod quorum { $crate::on_one_combination!(emulator: V4_3, Quorum, $seconds; $($test),+); }
        }
    };
    ($seconds:literal; $($test:ident),+ $(,)?) => {
        mod v3_10 {
            use super::{$($test),+};
            mod classic { $crate::on_one_combination!(V3_10, Classic, $seconds; $($test),+); }
            mod quorum { $crate::on_one_combination!(V3_10, Quorum, $seconds; $($test),+); }
        }
        mod v4_3 {
            use super::{$($test),+};
            mod classic { $crate::on_one_combination!(V4_3, Classic, $seconds; $($test),+); }
            mod quorum { $crate::on_one_combination!(V4_3, Quorum, $seconds; $($test),+); }
        }
    };
}

/// A test, of this many seconds at most, for each of these functions on each version, on quorum queues: `v3_10::name`, …
/// With `emulator:` before the seconds it runs on the emulator, as `as_3_10::name`, and is given the URL.
#[macro_export]
macro_rules! on_both_versions {
    (emulator: $seconds:literal; $($test:ident),+ $(,)?) => {
        mod as_3_10 { $crate::on_one_combination!(emulator: V3_10, Quorum, $seconds; $($test),+); }
        mod as_4_3 { $crate::on_one_combination!(emulator: V4_3, Quorum, $seconds; $($test),+); }
    };
    ($seconds:literal; $($test:ident),+ $(,)?) => {
        mod v3_10 { $crate::on_one_combination!(V3_10, Quorum, $seconds; $($test),+); }
        mod v4_3 { $crate::on_one_combination!(V4_3, Quorum, $seconds; $($test),+); }
    };
}

/// Implements the two macros above.
#[macro_export]
macro_rules! on_one_combination {
    (emulator: $version:ident, $queue_type:ident, $seconds:literal; $($test:ident),+) => {
        $( $crate::on_one_combination! { @test $version $queue_type $seconds $test on => {
            let broker = redrive_brokers::emulator(on.version).await;
            super::$test(on, &broker.url).await;
        } } )+
    };
    ($version:ident, $queue_type:ident, $seconds:literal; $($test:ident),+) => {
        $( $crate::on_one_combination! { @test $version $queue_type $seconds $test on => {
            super::$test(on).await;
        } } )+
    };
    (@test $version:ident $queue_type:ident $seconds:literal $test:ident $on:ident => $run:block) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let $on = $crate::Combination::new($crate::Version::$version, $crate::QueueType::$queue_type);
            let what = format!("{} on {}", stringify!($test), $on);
            $crate::within(std::time::Duration::from_secs($seconds), &what, async move { $run }).await;
        }
    };
}
