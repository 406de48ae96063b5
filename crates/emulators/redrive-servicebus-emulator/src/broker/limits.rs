//! The values that Azure allows, each with the text of its refusal. Configuration files and the builder share these rules.
//!
//! Locks and times to live may be shorter than Azure's 5 seconds and 1 second, because tests wait for them to end.

use std::time::Duration;

use super::Settings;

const MAX_LOCK: Duration = Duration::from_secs(5 * 60);
const MAX_DELIVERY_COUNT: u32 = 2000;
const MIN_DUPLICATE_WINDOW: Duration = Duration::from_secs(20);
const MAX_DUPLICATE_WINDOW: Duration = Duration::from_secs(7 * 24 * 3600);
/// Maximum size of a message in the Premium tier, in bytes.
const MAX_MESSAGE_SIZE: u64 = 100 << 20;

/// Refuses values that Azure refuses; the text names the value and its limit.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    let named = |name: &str, outcome: Result<(), String>| outcome.map_err(|why| format!("{name}: {why}"));
    named("LockDuration", lock_duration(settings.lock_duration))?;
    named("MaxDeliveryCount", delivery_count(settings.max_delivery_count))?;
    if let Some(time) = settings.default_time_to_live {
        named("DefaultMessageTimeToLive", time_to_live(time))?;
    }
    if let Some(window) = settings.duplicate_detection {
        named("DuplicateDetectionHistoryTimeWindow", duplicate_window(window))?;
    }
    named("MaxSizeInMegabytes", size(settings.max_size))?;
    named("MaxMessageSizeInKilobytes", message_size(settings.max_message_size))
}

pub(crate) fn lock_duration(time: Duration) -> Result<(), String> {
    time_to_live(time)?;
    must(time <= MAX_LOCK, "a lock lasts 5 minutes (PT5M) at most")
}

pub(crate) fn delivery_count(count: u32) -> Result<(), String> {
    must(
        (1..=MAX_DELIVERY_COUNT).contains(&count),
        "there must be at least 1 delivery, and there are 2000 at most",
    )
}

pub(crate) fn time_to_live(time: Duration) -> Result<(), String> {
    must(!time.is_zero(), "the duration must be longer than nothing")
}

pub(crate) fn duplicate_window(time: Duration) -> Result<(), String> {
    must(
        (MIN_DUPLICATE_WINDOW..=MAX_DUPLICATE_WINDOW).contains(&time),
        "the window lasts from 20 seconds (PT20S) to 7 days (P7D)",
    )
}

pub(crate) fn size(bytes: u64) -> Result<(), String> {
    must(bytes > 0, "the size must be at least 1")
}

pub(crate) fn message_size(bytes: u64) -> Result<(), String> {
    size(bytes)?;
    must(bytes <= MAX_MESSAGE_SIZE, "a message has 102400 KB at most")
}

fn must(holds: bool, text: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(text.to_owned()) }
}
