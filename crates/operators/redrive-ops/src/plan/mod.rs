//! Plans: exactly which entries an action takes, and where each goes. Pure.
//!
//! | module | contains |
//! |---|---|
//! | [`options`] | what a plan allows |
//! | [`entry`] | what a plan says of one entry |
//! | [`digest`] | digests of messages and of plans |

mod digest;
mod entry;
mod options;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::SystemTime;

use redrive_core::shelves::{Owner, Shelved};
use redrive_core::{Shelf, parse_rfc3339, redact, rfc3339};
use serde::{Deserialize, Serialize};

use crate::as_text;
use crate::group::{Template, cut, error_text};

use self::digest::Hasher;
pub use self::digest::{ContentDigest, ParseDigestError};
pub use self::entry::{LeftOutEntry, PlanAction, PlanSample, PlannedEntry, Target, WhyLeftOut};
pub use self::options::PlanOptions;

/// Version of the form of a plan.
const VERSION: u32 = 1;
/// Maximum number of samples.
const MAX_SAMPLES: usize = 5;
/// Maximum number of bytes of a text of a sample, and of a name that a message claims.
const MAX_TEXT_BYTES: usize = 256;

/// A plan: exactly which entries of a shelf an action takes, where each of them goes, and which are left out and why.
///
/// A plan is made from entries that were read, changes nothing, and can be stored as JSON and [run](crate::Run) later, by another
/// process. Its [digest](Self::digest) covers the action and every entry with its content: what was looked at is what is done.
/// Reading a plan checks the digest.
///
/// It contains no body and no header of a message; up to five [samples](Self::samples) contain the id, and the recorded failure.
///
/// ```
/// use std::time::SystemTime;
///
/// use redrive_core::{Message, Shelf};
/// use redrive_core::shelves::{EntryHandle, Shelved};
/// use redrive_ops::{Plan, PlanAction, PlanOptions};
///
/// let entry = |number: &str| Shelved::new(EntryHandle::new(Shelf::DeadLetter, number), Message::new("1 book"));
/// let entries = [entry("1"), entry("2")];
/// let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"), SystemTime::now());
/// assert_eq!(plan.entries().len(), 2);
///
/// let stored = serde_json::to_string(&plan)?;
/// assert_eq!(serde_json::from_str::<Plan>(&stored)?, plan);
/// let changed = stored.replace("orders", "invoices");
/// assert!(serde_json::from_str::<Plan>(&changed).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Plan {
    v: u32,
    id: String,
    digest: String,
    action: PlanAction,
    #[serde(with = "as_text::shelf")]
    shelf: Shelf,
    queue: String,
    #[serde(with = "as_text::time")]
    made_at: SystemTime,
    entries: Vec<PlannedEntry>,
    left_out: Vec<LeftOutEntry>,
    samples: Vec<PlanSample>,
}

impl Plan {
    /// Makes the plan of an action on these entries, which are those of one shelf, in the order in which they were read.
    ///
    /// Entries that are to be redriven come first, in that order; then those that are parked instead.
    #[must_use]
    pub fn new(
        action: PlanAction,
        shelf: Shelf,
        entries: &[Shelved],
        options: &PlanOptions,
        now: SystemTime,
    ) -> Self {
        let mut plan = Self {
            v: VERSION,
            id: String::new(),
            digest: String::new(),
            action,
            shelf,
            queue: options.queue.clone(),
            // Kept to the millisecond, as it is stored.
            made_at: rfc3339(now).and_then(|text| parse_rfc3339(&text)).unwrap_or(now),
            entries: Vec::new(),
            left_out: Vec::new(),
            samples: Vec::new(),
        };
        let (mut seen, mut groups) = (HashSet::new(), HashSet::new());
        for entry in entries {
            let handle = entry.handle.clone();
            let target = if handle.shelf() != shelf {
                Err(WhyLeftOut::OtherShelf)
            } else if !seen.insert(handle.clone()) {
                Err(WhyLeftOut::Twice)
            } else if plan.entries.len() == options.limit {
                Err(WhyLeftOut::BeyondLimit)
            } else {
                target(action, shelf, entry, options)
            };
            match target {
                Err(why) => {
                    let failed_in = entry.failed_in.as_deref().filter(|_| why == WhyLeftOut::OtherQueue);
                    plan.left_out.push(LeftOutEntry { handle, why, failed_in: failed_in.map(shown) });
                }
                Ok(target) => {
                    let planned = planned(entry, target);
                    // One of each group tells more than five of the first.
                    if plan.samples.len() < MAX_SAMPLES && groups.insert(planned.group) {
                        plan.samples.push(sample(entry));
                    }
                    plan.entries.push(planned);
                }
            }
        }
        plan.entries.sort_by_key(|entry| entry.target.action() != action);
        plan.digest = plan.computed_digest();
        plan.id = id_of(&plan.digest);
        plan
    }

    /// Returns the id: the beginning of the digest, so that the same plan has the same id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the digest: SHA-256 over action, shelf, queue, and the handle, content and target of each entry, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns the action.
    #[must_use]
    pub fn action(&self) -> PlanAction {
        self.action
    }

    /// Returns the shelf.
    #[must_use]
    pub fn shelf(&self) -> Shelf {
        self.shelf
    }

    /// Returns the work queue of the shelf.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Returns when the plan was made.
    #[must_use]
    pub fn made_at(&self) -> SystemTime {
        self.made_at
    }

    /// Returns the entries that the plan acts on, in the order of the work; a run that finds them in another order on the shelf takes that.
    #[must_use]
    pub fn entries(&self) -> &[PlannedEntry] {
        &self.entries
    }

    /// Returns the entries that stay where they are.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOutEntry] {
        &self.left_out
    }

    /// Returns up to five entries to look at, of different groups.
    #[must_use]
    pub fn samples(&self) -> &[PlanSample] {
        &self.samples
    }

    /// Returns how many entries go there by this action.
    #[must_use]
    pub fn count(&self, action: PlanAction) -> usize {
        self.entries.iter().filter(|entry| entry.target.action() == action).count()
    }

    fn computed_digest(&self) -> String {
        let mut hash = Hasher::new("redrive-plan/1");
        hash.text(&self.action.to_string());
        hash.text(&self.shelf.to_string());
        hash.text(&self.queue);
        for entry in &self.entries {
            hash.text(&entry.handle.to_string());
            hash.text(&entry.content.to_string());
            match &entry.target {
                Target::Queue(queue) => hash.part(3, queue.as_bytes()),
                Target::Parking => hash.part(4, &[]),
                Target::Nowhere => hash.part(5, &[]),
            }
        }
        hash.finish()
    }
}

fn id_of(digest: &str) -> String {
    format!("p{}", &digest[..12])
}

fn target(
    action: PlanAction,
    shelf: Shelf,
    entry: &Shelved,
    options: &PlanOptions,
) -> Result<Target, WhyLeftOut> {
    if entry.owner == Owner::Other {
        return Err(WhyLeftOut::OtherQueue);
    }
    if entry.owner == Owner::Unknown && !options.takes_unknown {
        return Err(WhyLeftOut::UnknownQueue);
    }
    if action == PlanAction::Discard {
        return Ok(Target::Nowhere);
    }
    if entry.history.read_without.is_some() || entry.history.packed_history_unreadable {
        return Err(WhyLeftOut::NotReadable);
    }
    let is_parked = shelf == Shelf::Parking;
    match action {
        PlanAction::Park if is_parked => Err(WhyLeftOut::ParkedAlready),
        PlanAction::Park => Ok(Target::Parking),
        _ if entry.history.redrives.or_highest() < options.max_redrives => {
            let listed = entry.failed_in.as_ref().filter(|_| entry.owner == Owner::Listed);
            Ok(Target::Queue(listed.unwrap_or(&options.queue).clone()))
        }
        _ if is_parked => Err(WhyLeftOut::RedrivenTooOften),
        _ => Ok(Target::Parking),
    }
}

fn planned(entry: &Shelved, target: Target) -> PlannedEntry {
    let named = entry.history.source_queue.as_deref();
    let names = named.filter(|named| matches!(&target, Target::Queue(queue) if queue != named));
    PlannedEntry {
        handle: entry.handle.clone(),
        content: ContentDigest::of(&entry.message),
        identity: ContentDigest::of_identity(entry.message.id(), entry.message.body()),
        has_id: entry.message.id().is_some(),
        redrives: entry.history.redrives.or_highest(),
        group: Template::of(entry).id(),
        target,
        names: names.map(shown),
        of_unknown_queue: entry.owner == Owner::Unknown,
    }
}

fn sample(entry: &Shelved) -> PlanSample {
    PlanSample {
        handle: entry.handle.clone(),
        message_id: entry.message.id().map(shown),
        reason: entry.reason().map(shown),
        text: error_text(entry).as_deref().map(shown),
    }
}

/// Returns a text of a message as a person may see it.
fn shown(text: &str) -> String {
    let text = redact(text);
    cut(text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect(), MAX_TEXT_BYTES)
}

/// The plan cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Another version of redrive wrote it.
    #[error(
        "the plan has version {0}, and this program reads version {VERSION}: make the plan again with this program"
    )]
    Version(u32),
    /// It was changed after it was made.
    #[error(
        "the plan was changed after it was made: its digest is {computed}, and it says {said}; make a new plan"
    )]
    Digest {
        /// The digest that it contains.
        said: String,
        /// The digest of what it contains.
        computed: String,
    },
    /// It has an entry of another shelf, or the same entry twice.
    #[error("the plan names `{0}` twice, or on another shelf than its own: make a new plan")]
    Entry(String),
}

/// A plan as it was read.
#[derive(Deserialize)]
struct Unchecked {
    v: u32,
    digest: String,
    action: PlanAction,
    #[serde(with = "as_text::shelf")]
    shelf: Shelf,
    queue: String,
    #[serde(with = "as_text::time")]
    made_at: SystemTime,
    entries: Vec<PlannedEntry>,
    left_out: Vec<LeftOutEntry>,
    samples: Vec<PlanSample>,
}

impl TryFrom<Unchecked> for Plan {
    type Error = PlanError;

    fn try_from(read: Unchecked) -> Result<Self, PlanError> {
        let Unchecked { v, digest, action, shelf, queue, made_at, entries, left_out, samples } = read;
        if v != VERSION {
            return Err(PlanError::Version(v));
        }
        let mut seen = HashSet::new();
        for entry in &entries {
            if entry.handle.shelf() != shelf || !seen.insert(&entry.handle) {
                return Err(PlanError::Entry(entry.handle.to_string()));
            }
        }
        let id = String::new();
        let mut plan = Self { v, id, digest, action, shelf, queue, made_at, entries, left_out, samples };
        let computed = plan.computed_digest();
        if computed != plan.digest {
            return Err(PlanError::Digest { said: plan.digest, computed });
        }
        plan.id = id_of(&plan.digest);
        Ok(plan)
    }
}
