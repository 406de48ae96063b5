//! Plans, from a decision, what the transport must do. Pure; the only place where redrive's headers are written.

mod budget;
mod hops;

use std::time::{Duration, SystemTime};

use crate::afresh;
use crate::delivery::Delivery;
use crate::disposition::{Disposition, Shelf};
use crate::facts::{Facts, NativeDeadLetter};
use crate::failure::Failure;
use crate::header_names as names;
use crate::headers::{Headers, Timestamp, Value};
use crate::history::{Count, PastFailure, latest_time, write_time, write_wait_left};
use crate::message::Message;
use crate::text::cut;
use crate::times::{FURTHEST, rfc3339};
use crate::trace::TraceParent;
pub(crate) use budget::own_bytes;

use budget::into_budget;
use hops::{Split, most_late, split};

/// Complete instruction for the transport about a delivery: nothing is left to decide.
#[derive(Clone, Debug, PartialEq)]
pub enum Settlement {
    /// Remove the message: it is done.
    Complete,
    /// Store `copy` so that it comes back to this consumer after at least `wait`, then remove the original.
    Reschedule {
        /// Minimum time to hold the copy back.
        wait: Duration,
        /// Message to store.
        copy: Message,
    },
    /// Hold the message itself back for at least `wait`, and hand it out again, counted as failed. Nothing is copied, and nothing
    /// is written on the message. Only if [`Delays::in_place`](crate::transport::Delays::in_place) allows it, and `wait` is not longer than
    /// the broker will hold the message that way.
    RetryInPlace {
        /// Minimum time to hold it back.
        wait: Duration,
    },
    /// Store `copy` on the shelf, then remove the original.
    Shelve {
        /// The shelf.
        shelf: Shelf,
        /// Message to store there.
        copy: Message,
    },
    /// Give the delivery back unchanged; the broker hands it out again at once.
    Release,
    /// Have the broker itself move the delivery onto the dead-letter shelf, without a copy and therefore without its history.
    /// Only if [`Facts::dead_letter`] allows it; the last resort for a message that is too large to be copied. (Where it does not,
    /// [`Shelve`](Self::Shelve) stores a copy of the message as it arrived.)
    NativeDeadLetter,
}

/// Input for planning besides the delivery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planning<'a> {
    /// Current time.
    pub now: SystemTime,
    /// Facts of the broker.
    pub facts: &'a Facts,
    /// Number of bytes that redrive's own headers may take. Default: 4096.
    pub header_budget: usize,
    /// The trace context of this attempt, for the copy. Default: none.
    pub trace: Option<TraceParent>,
}

impl<'a> Planning<'a> {
    /// Plans at this time, on a broker with these facts.
    #[must_use]
    pub fn new(now: SystemTime, facts: &'a Facts) -> Self {
        Self { now, facts, header_budget: DEFAULT_HEADER_BUDGET, trace: None }
    }
}

/// Default number of bytes that redrive's own headers may take.
pub const DEFAULT_HEADER_BUDGET: usize = 4096;

/// Number of first and of last failures that the history keeps.
const FIRST_KEPT: usize = 2;
const LAST_KEPT: usize = 6;
/// Number of bytes kept of a name (queue, exchange, key, id).
const MAX_NAME_BYTES: usize = 256;
/// Approximate number of headers written on a copy.
const MOST_WRITTEN: usize = 16;
const HISTORY_ERROR_BYTES: usize = 160;
const SHORT_ERROR_BYTES: usize = 128;

impl Settlement {
    /// Returns what must be done to carry `disposition` out.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "what is decided is decided once")]
    pub fn plan(delivery: &Delivery, disposition: Disposition, planning: &Planning<'_>) -> Self {
        Self::planned(delivery, &disposition, planning)
    }

    /// Returns the same, for callers that still need the disposition afterwards.
    #[must_use]
    pub fn planned(delivery: &Delivery, disposition: &Disposition, planning: &Planning<'_>) -> Self {
        let uncopied = || Self::without_history(delivery, planning.facts);
        match *disposition {
            Disposition::Ack | Disposition::Discard(_) => Self::Complete,
            Disposition::Release => release(delivery, planning),
            Disposition::Snooze(wait) => {
                let snoozes = delivery.history().snoozes.saturating_add(1);
                let mut copy = next_copy(delivery, planning);
                copy.headers_mut().insert_own(names::SNOOZES, i64::from(snoozes));
                // The handler came to an end: earlier deliveries are no sign of a message that kills its process.
                copy.headers_mut().remove(names::HANDED_OUT);
                reschedule(wait, most_late(wait), copy, planning).unwrap_or_else(uncopied)
            }
            Disposition::Retry(wait, _) if stays_in_place(delivery, wait, planning) => {
                Self::RetryInPlace { wait }
            }
            Disposition::Retry(wait, ref failure) => {
                let mut copy = failed_copy(delivery, failure, Some(wait), planning);
                copy.headers_mut().remove(names::HANDED_OUT);
                reschedule(wait, most_late(wait), copy, planning).unwrap_or_else(uncopied)
            }
            // The transport is configured to let the broker dead-letter.
            Disposition::DeadLetter(_) if planning.facts.dead_letter == NativeDeadLetter::Preferred => {
                Self::NativeDeadLetter
            }
            Disposition::DeadLetter(ref failure) => shelve(Shelf::DeadLetter, delivery, failure, planning),
            Disposition::Park(ref failure) => shelve(Shelf::Parking, delivery, failure, planning),
        }
    }

    /// Plans the rest of a wait, for a delivery that arrived early because its wait takes several hops. `None` if it is due.
    #[must_use]
    pub fn wait_on(delivery: &Delivery, planning: &Planning<'_>) -> Option<Self> {
        let history = delivery.history();
        let remaining = history.not_before?.duration_since(planning.now).ok()?;
        // Longer than any wait that the broker accepts: redrive did not write this time, and the message would circulate forever.
        let least = history.wait_left.map_or(remaining, |left| left.min(remaining));
        if planning.facts.delays.longest.is_some_and(|longest| least > longest) {
            return None;
        }
        // Without a remaining wait of its own, a short rest is a difference between clocks, not another hop.
        const CLOCKS_DIFFER: Duration = Duration::from_millis(100);
        let (wait, most_late) = match history.wait_left {
            None if remaining <= CLOCKS_DIFFER => return None,
            None => (remaining, most_late(remaining)),
            // Hops were put together for exactly this. The time may come from another clock, or the clock may have been set since.
            Some(left) if remaining >= left - left / 50 => (left, Duration::ZERO),
            // It lay in its queue for longer.
            Some(_) => (remaining, most_late(remaining)),
        };
        let is_due = wait.is_zero();
        (!is_due).then(|| {
            let planned = reschedule(wait, most_late, next_copy(delivery, planning), planning);
            planned.unwrap_or_else(|| Self::without_history(delivery, planning.facts))
        })
    }

    /// Plans the rest of a wait, `remaining`, for a waiting message that is moved to another place. Only its due time changes: if
    /// a crash leaves it in both places, both are handled, as the same attempt. `None`: its headers leave no room for that time.
    #[must_use]
    pub fn moved(waiting: &Message, remaining: Duration, planning: &Planning<'_>) -> Option<Self> {
        let mut copy = waiting.clone();
        // It would end the wait early, and it is not the publisher's: redrive's copies carry no expiration of the publisher.
        if copy.properties().expiration.is_some() {
            copy.properties_mut().expiration = None;
        }
        for name in [names::NOT_BEFORE, names::WAIT_LEFT, names::DUE_AT] {
            copy.headers_mut().remove(name);
        }
        reschedule(remaining, most_late(remaining), copy, planning)
    }

    /// Returns what is left to do for a message of which no copy with its history can be stored: the broker moves it to the
    /// dead-letter shelf itself; where it cannot, or not surely, a copy of the message as it arrived is stored there.
    ///
    /// The copy names its queue all the same: on a shelf that several queues share, it would be taken for another one's.
    #[must_use]
    pub fn without_history(delivery: &Delivery, facts: &Facts) -> Self {
        if facts.dead_letter.is_possible() {
            return Self::NativeDeadLetter;
        }
        let mut copy = delivery.message().clone();
        keep_expiration(&mut copy);
        // One that another program carried on: only a copy with its history has the time at which it was shelved.
        copy.headers_mut().remove(names::SHELVED);
        write_copy_number(delivery, copy.headers_mut());
        copy.headers_mut().insert_own(names::SOURCE_QUEUE, delivery.queue());
        Self::Shelve { shelf: Shelf::DeadLetter, copy }
    }

    /// Returns true if the message leaves its queue by this without a word about its failure.
    #[must_use]
    pub fn leaves_history_out(&self) -> bool {
        match self {
            Self::NativeDeadLetter => true,
            // Whatever has a history on a shelf has the time of that.
            Self::Shelve { copy, .. } => !copy.headers().contains(names::SHELVED),
            _ => false,
        }
    }

    /// Returns true if carrying it out stores a copy.
    #[must_use]
    pub fn stores_copy(&self) -> bool {
        matches!(self, Self::Reschedule { .. } | Self::Shelve { .. })
    }

    /// Returns the name of this settlement in logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Reschedule { .. } => "reschedule",
            Self::RetryInPlace { .. } => "retry-in-place",
            Self::Shelve { .. } => "shelve",
            Self::Release => "release",
            Self::NativeDeadLetter => "native-dead-letter",
        }
    }
}

/// Returns the message as an operator's redrive sends it back: a first attempt again, with its history.
#[must_use]
pub fn redriven(shelved: &Message) -> Message {
    let history = crate::FailureHistory::read(shelved);
    let mut copy = shelved.clone();
    let headers = copy.headers_mut();
    afresh::remove_counts(headers);
    headers.insert_own(names::HOP, i64::from(history.copy_number.saturating_add(1)));
    headers.insert_own(names::REDRIVES, i64::from(history.redrives.or_highest().saturating_add(1)));
    copy
}

/// Returns true if the broker itself can hold the message back long enough and no copy is needed. A copy is needed, once, for a
/// message whose id was assigned on arrival: without it, the id would change with every attempt. It is also needed for a message
/// with an expiration, which would keep running: a copy carries it as a deadline; for a copy that is not stored: the broker would
/// hold its original, on which the last attempts are not written; and for a message that another program put back: the original keeps
/// the counts of before.
fn stays_in_place(delivery: &Delivery, wait: Duration, planning: &Planning<'_>) -> bool {
    let failures = delivery.failures_in_place().saturating_add(1);
    let held = planning.facts.delays.in_place.map(|in_place| in_place.longest_after(failures));
    let must_be_copied = delivery.history().id_assigned
        || delivery.is_unstored_copy()
        || delivery.put_back().is_some()
        || delivery.message().properties().expiration.is_some();
    held.is_some_and(|held| held >= wait) && !must_be_copied
}

/// Plans a release. If giving back raises the broker's delivery count, a message that is given back again and again would look
/// like one that kills its process. In that case a copy restarts the broker's count and carries redrive's.
fn release(delivery: &Delivery, planning: &Planning<'_>) -> Settlement {
    let facts = planning.facts;
    let counted_before = delivery.broker_delivery_count() - 1;
    if !(facts.counting.releases && facts.counting.deliveries) || counted_before == 0 {
        return Settlement::Release;
    }
    let mut copy = next_copy(delivery, planning);
    copy.headers_mut().insert_own(names::HANDED_OUT, i64::from(counted_before));
    // The message may not be due yet: the copy continues to wait.
    if delivery.history().not_before.is_some()
        && let Some(not_before) = delivery.message().headers().get(names::NOT_BEFORE)
    {
        copy.headers_mut().insert_own(names::NOT_BEFORE, not_before.clone());
    }
    if let Some(left) = delivery.history().wait_left {
        write_wait_left(copy.headers_mut(), left);
    }
    if fits(&copy, planning) {
        let planned = reschedule(Duration::ZERO, Duration::ZERO, copy, planning);
        planned.unwrap_or(Settlement::Release)
    } else {
        Settlement::Release
    }
}

/// Plans a copy that waits, and ends later by `most_late` at most if hops can be put together for that. `None`: there is no room for it.
fn reschedule(
    wait: Duration,
    most_late: Duration,
    mut copy: Message,
    planning: &Planning<'_>,
) -> Option<Settlement> {
    // A handler or an error may ask for any wait; a due time beyond the longest one is taken for foreign when the copy arrives.
    let wait = planning.facts.delays.longest.map_or(wait, |longest| wait.min(longest));
    let hops = planning.facts.delays.hop_durations.as_deref();
    let Split { first: hop, whole: wait } = split(wait, most_late, hops.unwrap_or_default());
    if !wait.is_zero() {
        // After its hop, no later time is believed.
        let due_in = if wait > hop { wait.min(FURTHEST) } else { wait };
        let due = write_time(planning.now.checked_add(due_in).unwrap_or_else(latest_time));
        if wait > hop {
            write_wait_left(copy.headers_mut(), wait - hop);
            copy.headers_mut().insert_own(names::NOT_BEFORE, due.clone());
        }
        copy.headers_mut().insert_own(names::DUE_AT, due);
    }
    let fits = into_budget(&mut copy, planning);
    fits.then_some(Settlement::Reschedule { wait: hop, copy })
}

fn shelve(shelf: Shelf, delivery: &Delivery, failure: &Failure, planning: &Planning<'_>) -> Settlement {
    let mut copy = failed_copy(delivery, failure, None, planning);
    copy.headers_mut().insert_own(names::HANDED_OUT, i64::from(delivery.broker_delivery_count()));
    afresh::mark(copy.headers_mut(), planning.now);
    let fits = into_budget(&mut copy, planning);
    if !fits {
        return Settlement::without_history(delivery, planning.facts);
    }
    Settlement::Shelve { shelf, copy }
}

/// Creates the next copy. Every copy differs from the one before, so that no copy is ever taken for its original.
fn next_copy(delivery: &Delivery, planning: &Planning<'_>) -> Message {
    let mut copy = delivery.message().clone();
    keep_expiration(&mut copy);
    let headers = copy.headers_mut();
    headers.reserve(MOST_WRITTEN);
    if let Some(deadline) = delivery.deadline() {
        headers.insert_own(names::DEADLINE, write_time(deadline));
    }
    write_copy_number(delivery, headers);
    headers.remove(names::NOT_BEFORE);
    headers.remove(names::WAIT_LEFT);
    headers.remove(names::DUE_AT);
    headers.remove(names::SHELVED);
    // The broker counts a copy from the beginning: keep what it has counted so far.
    if let (Count::Known(failures), counted @ 1..) =
        (delivery.history().attempt, delivery.failures_in_place())
    {
        headers.insert_own(names::ATTEMPT, i64::from(failures.saturating_add(counted)));
    }
    if let Some(trace) = planning.trace {
        headers.insert_own(names::TRACE_PARENT, trace.to_string());
    }
    write_source(delivery, headers);
    copy
}

fn write_copy_number(delivery: &Delivery, headers: &mut Headers) {
    headers.insert_own(names::HOP, i64::from(delivery.history().copy_number.saturating_add(1)));
}

/// Moves the publisher's time to live into a header: what is left of it would end a wait early, and a copy on a shelf.
fn keep_expiration(copy: &mut Message) {
    if let Some(expiration) = copy.properties().expiration {
        copy.properties_mut().expiration = None;
        let millis = i64::try_from(expiration.as_millis()).unwrap_or(i64::MAX);
        copy.headers_mut().insert_own(names::EXPIRATION, millis);
    }
}

fn write_source(delivery: &Delivery, headers: &mut Headers) {
    let history = delivery.history();
    headers.insert_own(names::SOURCE_QUEUE, delivery.queue());
    // On later hops the delivery shows redrive's own route; the message already carries its first origin. A history that another
    // queue's consumer wrote does not tell how the message came to this queue.
    let written_here = history.source_queue.as_deref() == Some(delivery.queue());
    if !(written_here && headers.contains(names::SOURCE_ROUTING_KEY)) {
        headers.insert_own(names::SOURCE_EXCHANGE, &*cut(delivery.exchange(), MAX_NAME_BYTES));
        headers.insert_own(names::SOURCE_ROUTING_KEY, &*cut(delivery.routing_key(), MAX_NAME_BYTES));
    }
    if !headers.contains(names::MESSAGE_ID) && !delivery.id().is_empty() {
        headers.insert_own(names::MESSAGE_ID, &*cut(delivery.id(), MAX_NAME_BYTES));
    }
}

fn failed_copy(
    delivery: &Delivery,
    failure: &Failure,
    wait: Option<Duration>,
    planning: &Planning<'_>,
) -> Message {
    let history = delivery.history();
    let mut copy = next_copy(delivery, planning);
    let headers = copy.headers_mut();
    // An unreadable count stays unchanged, for people to inspect.
    if let Count::Known(_) = history.attempt {
        headers.insert_own(names::ATTEMPT, i64::from(delivery.attempt()));
    }
    let at = write_time(planning.now);
    headers
        .insert_own(names::FIRST_FAILED_AT, history.first_failed_at.map_or_else(|| at.clone(), write_time));
    headers.insert_own(names::REASON, failure.reason().as_str());
    headers.insert_own(names::ERROR, failure.text());
    headers.insert_own(names::FINGERPRINT, failure.fingerprint());
    match failure.error_type() {
        Some(error_type) => headers.insert_own(names::ERROR_TYPE, error_type),
        None => headers.remove(names::ERROR_TYPE),
    };
    headers.insert_own(names::HISTORY, past_failures(delivery, failure, wait, at.clone()));
    headers.insert_own(names::LAST_FAILED_AT, at);
    copy
}

/// Returns the first and the last failures: how it began, and the latest state.
fn past_failures(delivery: &Delivery, failure: &Failure, wait: Option<Duration>, at: Value) -> Value {
    let past = &delivery.history().past;
    let first = past.len().min(FIRST_KEPT);
    // The current failure is the last one.
    let last = (past.len() + 1).saturating_sub(LAST_KEPT).max(first);
    let mut entries = Vec::with_capacity(first + past.len() - last + 1);
    entries.extend(past[..first].iter().chain(&past[last..]).map(write_past_failure));
    let wait_ms = wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
    let reason = failure.reason().as_str();
    entries.push(history_entry(delivery.attempt(), Some(at), reason, failure.text(), wait_ms));
    Value::List(entries)
}

fn write_past_failure(past: &PastFailure) -> Value {
    // A time that another program wrote, and that has no other form, stays the number that it is.
    let at = past.at.map(|at| match rfc3339(at) {
        Some(_) => write_time(at),
        None => Value::I64(Timestamp::from(at).unix_millis()),
    });
    history_entry(past.attempt, at, &past.reason, &past.error, past.wait_ms)
}

fn history_entry(attempt: u32, at: Option<Value>, reason: &str, error: &str, wait_ms: Option<u64>) -> Value {
    use names::history as key;
    let mut entry = Headers::new();
    entry.reserve(5);
    entry.insert_own(key::ATTEMPT, i64::from(attempt));
    if let Some(at) = at {
        entry.insert_own(key::AT, at);
    }
    entry.insert_own(key::REASON, &*cut(reason, SHORT_ERROR_BYTES));
    entry.insert_own(key::ERROR, &*cut(error, HISTORY_ERROR_BYTES));
    if let Some(wait) = wait_ms {
        entry.insert_own(key::WAIT, i64::try_from(wait).unwrap_or(i64::MAX));
    }
    Value::Table(entry)
}

fn fits(copy: &Message, planning: &Planning<'_>) -> bool {
    planning.facts.limits.headers.is_none_or(|limit| limit.has_room_for(copy))
}

#[cfg(test)]
mod tests;
