//! What a plan says of one entry.

use std::fmt;

use redrive_core::shelves::EntryHandle;
use serde::{Deserialize, Serialize};

use super::ContentDigest;
use crate::as_text;
use crate::group::GroupId;

/// What a plan does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum PlanAction {
    /// Sends entries back to the consumer that failed.
    Redrive,
    /// Moves entries from the dead-letter shelf to the parking shelf.
    Park,
    /// Removes entries for good.
    Discard,
}

impl fmt::Display for PlanAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redrive => "redrive",
            Self::Park => "park",
            Self::Discard => "discard",
        })
    }
}

/// An entry that a plan acts on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedEntry {
    /// Handle of the entry.
    #[serde(with = "as_text")]
    pub handle: EntryHandle,
    /// Digest of its message. An entry with this handle and another content is not touched.
    #[serde(with = "as_text")]
    pub content: ContentDigest,
    /// Digest of its body and id, by which the message is recognized if it comes back to a shelf.
    #[serde(with = "as_text")]
    pub(crate) identity: ContentDigest,
    /// True if the message has an id.
    pub(crate) has_id: bool,
    /// How often an operator sent it back before.
    pub redrives: u32,
    /// The group of its failure.
    #[serde(with = "as_text")]
    pub group: GroupId,
    /// Where it goes.
    pub target: Target,
    /// The queue that the message itself names, if it is not the target. Any publisher can write that name, so it is not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// True if it [does not tell](redrive_core::shelves::Owner::Unknown) which of the queues that share the shelf it failed in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_unknown_queue: bool,
}

/// Where an entry goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Target {
    /// To the consumer of this queue.
    Queue(String),
    /// To the parking shelf. In a plan that redrives: because it was redriven too often.
    Parking,
    /// Nowhere: it is removed.
    Nowhere,
}

impl Target {
    /// Returns the action that brings an entry there.
    #[must_use]
    pub fn action(&self) -> PlanAction {
        match self {
            Self::Queue(_) => PlanAction::Redrive,
            Self::Parking => PlanAction::Park,
            Self::Nowhere => PlanAction::Discard,
        }
    }
}

/// An entry that a plan leaves where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOutEntry {
    /// Handle of the entry.
    #[serde(with = "as_text")]
    pub handle: EntryHandle,
    /// Why it is left out.
    pub why: WhyLeftOut,
    /// The queue that it failed in, if it is left out for [that](WhyLeftOut::OtherQueue).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_in: Option<String>,
}

/// Why a plan leaves an entry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WhyLeftOut {
    /// It was redriven too often, and is on the parking shelf already: a person decides.
    RedrivenTooOften,
    /// The transport cannot read it whole, so a copy would be incomplete: a person must decide.
    NotReadable,
    /// It failed in another queue, which is not [listed](redrive_core::shelves::Owner::Other) as sharing the shelf: it belongs to its consumer.
    OtherQueue,
    /// It [does not tell](redrive_core::shelves::Owner::Unknown) which queue it failed in, and several share the shelf.
    UnknownQueue,
    /// It is on the parking shelf already.
    ParkedAlready,
    /// It is an entry of the other shelf.
    OtherShelf,
    /// The same entry was given twice.
    Twice,
    /// The plan has reached its maximum number of entries.
    BeyondLimit,
}

impl fmt::Display for WhyLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RedrivenTooOften => "was redriven too often, and is parked already: a person must decide",
            Self::NotReadable => "cannot be read whole, so a copy would be incomplete: a person must decide",
            Self::OtherQueue => "failed in another queue, which is not listed as sharing this shelf",
            Self::UnknownQueue => "does not tell which of the queues that share this shelf it failed in",
            Self::ParkedAlready => "is parked already",
            Self::OtherShelf => "is on the other shelf",
            Self::Twice => "was given twice",
            Self::BeyondLimit => "is beyond the limit of the plan",
        })
    }
}

/// An entry of a plan, to look at. Secrets are removed as in every recorded failure; control characters are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlanSample {
    /// Handle of the entry.
    #[serde(with = "as_text")]
    pub handle: EntryHandle,
    /// Id of its message.
    pub message_id: Option<String>,
    /// Why it is on the shelf.
    pub reason: Option<String>,
    /// Text of its failure.
    pub text: Option<String>,
}
