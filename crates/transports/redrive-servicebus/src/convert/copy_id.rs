//! The ids of copies.
//!
//! An entity with duplicate detection silently drops a copy that has the id of its original; completing the original then loses
//! the message. So a copy has its own id. Sending the same copy again uses the same id: with duplicate detection, a second
//! attempt after an unanswered one stores nothing.

use std::time::SystemTime;

use redrive_core::{Message, Timestamp};
use ring::digest;

/// The most characters that the id of a message may have.
const MAX_ID_CHARS: usize = 128;
/// Separates the id of the original from the suffix of the copy.
const COPY_MARK: &str = "#r";
const FINGERPRINT_BYTES: usize = 8;

/// The original of a copy, identified among all messages of its broker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopySource<'a> {
    /// The path of the queue, subscription or shelf in which it is stored.
    pub(crate) entity: &'a str,
    /// Its sequence number in that entity.
    pub(crate) sequence_number: i64,
    /// The time when it came there: an entity that was deleted and created again restarts its sequence numbers.
    pub(crate) enqueued_at: Option<SystemTime>,
}

impl CopySource<'_> {
    /// Returns a hash of the entity, the time and the edit. Entity names are hashed in lower case, because the broker ignores
    /// case.
    fn fingerprint(&self, edit: Option<&Message>) -> String {
        let millis = self.enqueued_at.map(|time| Timestamp::from(time).unix_millis());
        let mut text = format!("{}\n{}", self.entity.to_lowercase(), millis.unwrap_or_default()).into_bytes();
        if let Some(edit) = edit {
            // Derived `Debug` omits nothing and quotes every text, so two different edits are written differently.
            text.extend(format!("\n{:?}\n{:?}\n", edit.properties(), edit.headers()).into_bytes());
            text.extend_from_slice(edit.body());
        }
        hex(&text, FINGERPRINT_BYTES)
    }
}

/// Returns the id of copy number `hop` of the message `original`: `ORIGINAL#rHOP.NUMBER.FINGERPRINT`.
///
/// Ids need not be unique, and sequence numbers are unique only within one entity. Two messages with one id that fail alike, or
/// that are in two entities, must have different copies.
pub(crate) fn copy_id(original: &str, hop: u32, source: &CopySource<'_>) -> String {
    make_id(original, hop, source, None)
}

/// Returns the id of a copy that an operator edited. The same edit has the same id, and another edit has another one: otherwise
/// the broker would drop it as a duplicate of the first, and the message would be completed without being stored.
pub(crate) fn edited_copy_id(original: &str, hop: u32, source: &CopySource<'_>, edit: &Message) -> String {
    make_id(original, hop, source, Some(edit))
}

fn make_id(original: &str, hop: u32, source: &CopySource<'_>, edit: Option<&Message>) -> String {
    let suffix = format!("{COPY_MARK}{hop}.{}.{}", source.sequence_number, source.fingerprint(edit));
    with_suffix(original, &suffix)
}

/// Returns true if [`copy_id`] makes this id from `original`, for any copy number and any source.
pub(crate) fn is_copy_id(id: &str, original: &str) -> bool {
    let Some((_, suffix)) = id.rfind(COPY_MARK).map(|at| id.split_at(at)) else { return false };
    is_suffix(suffix) && id == with_suffix(original, suffix)
}

fn is_suffix(suffix: &str) -> bool {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_fingerprint =
        |part: &str| part.len() == 2 * FINGERPRINT_BYTES && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut parts = suffix.trim_start_matches(COPY_MARK).split('.');
    let numbered = parts.next().is_some_and(is_number) && parts.next().is_some_and(is_number);
    numbered && parts.next().is_some_and(is_fingerprint) && parts.next().is_none()
}

fn with_suffix(original: &str, suffix: &str) -> String {
    if original.chars().count() + suffix.len() <= MAX_ID_CHARS {
        return format!("{original}{suffix}");
    }
    // The beginning helps a person to find it, and the hash distinguishes ids with the same beginning.
    let hash = hex(original.as_bytes(), 16);
    let kept = MAX_ID_CHARS.saturating_sub(suffix.len() + hash.len() + 1);
    let beginning: String = original.chars().take(kept).collect();
    format!("{beginning}~{hash}{suffix}")
}

/// Returns the first bytes of the SHA-256 hash in hexadecimal.
pub(crate) fn hex(of: &[u8], bytes: usize) -> String {
    let hash = digest::digest(&digest::SHA256, of);
    hash.as_ref().iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn source(entity: &str, sequence_number: i64, millis: u64) -> CopySource<'_> {
        let enqueued_at = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
        CopySource { entity, sequence_number, enqueued_at }
    }

    #[test]
    fn a_short_id_stays_readable() {
        let id = copy_id("order-7", 2, &source("orders", 41, 1));
        assert!(id.starts_with("order-7#r2.41."), "{id}");
        assert_eq!(id, copy_id("order-7", 2, &source("Orders", 41, 1)), "names have no case");
    }

    #[test]
    fn equal_numbers_in_other_entities_and_at_other_times_are_told_apart() {
        let sources = [
            source("orders", 1, 5),
            source("orders/$DeadLetterQueue", 1, 5),
            source("topic/Subscriptions/orders", 1, 5),
            source("orders", 1, 6),
            source("orders", 2, 5),
            CopySource { enqueued_at: None, ..source("orders", 1, 5) },
        ];
        let ids: HashSet<_> = sources.iter().map(|source| copy_id("order-7", 1, source)).collect();
        assert_eq!(ids.len(), sources.len());
    }

    #[test]
    fn long_ids_that_begin_alike_are_told_apart() {
        let long = |end: &str| format!("{}{end}", "ä".repeat(127));
        let ids: HashSet<_> = ["1", "2", "12"].map(|end| copy_id(&long(end), 1, &source("q", 9, 1))).into();
        assert_eq!(ids.len(), 3);
    }

    /// The processes that consume one queue must give a copy one id, whatever their versions.
    #[test]
    fn an_id_is_this_value() {
        assert_eq!(copy_id("order-7", 2, &source("orders", 41, 1)), "order-7#r2.41.c7e7d76cf98e220d");
    }

    #[test]
    fn another_edit_has_another_id() {
        let original = Message::new("body").with_id("order-7").with_header("tenant", "blue");
        let changed = |change: fn(&mut Message)| {
            let mut message = original.clone();
            change(&mut message);
            message
        };
        let long = |last: &str| format!("{}{last}", "x".repeat(100_000));
        let edits = [
            original.clone(),
            Message::new("another body").with_id("order-7").with_header("tenant", "blue"),
            original.clone().with_header("tenant", "green"),
            original.clone().with_header("tenant", long("1")),
            original.clone().with_header("tenant", long("2")),
            original.clone().with_header("tenant", redrive_core::Value::Bytes("blue".into())),
            original.clone().with_header("count", 1_i64),
            original.clone().with_header("count", 1_i32),
            changed(|message| drop(message.headers_mut().remove("tenant"))),
            changed(|message| message.properties_mut().session_id = Some("blue".to_owned())),
            changed(|message| message.properties_mut().kind = Some("blue".to_owned())),
            changed(|message| message.properties_mut().expiration = Some(Duration::from_millis(1))),
        ];
        let source = source("orders/$DeadLetterQueue", 41, 1);
        let id = |edit: &Message| edited_copy_id("order-7", 2, &source, edit);
        let mut ids: HashSet<_> = edits.iter().map(id).collect();
        assert!(ids.iter().all(|id| is_copy_id(id, "order-7")), "{ids:?}");
        assert_eq!(id(&edits[0]), id(&original.clone()), "the same edit");
        ids.insert(copy_id("order-7", 2, &source));
        assert_eq!(ids.len(), edits.len() + 1);
    }

    proptest! {
        #[test]
        fn an_id_is_never_too_long_nor_that_of_its_original(
            original in ".{0,200}", hop in 1..u32::MAX, number in 0..i64::MAX, entity in ".{0,300}", millis in 0_u64..1 << 50
        ) {
            let source = source(&entity, number, millis);
            let id = copy_id(&original, hop, &source);
            prop_assert!(id.chars().count() <= MAX_ID_CHARS);
            prop_assert_ne!(&id, &original);
            prop_assert_eq!(copy_id(&original, hop, &source), &*id);
            prop_assert!(is_copy_id(&id, &original));
            let without_fingerprint = with_suffix(&original, &format!("#r{hop}.{number}"));
            prop_assert!(!is_copy_id(&without_fingerprint, &original));
            let another = format!("{original}x");
            prop_assert!(!is_copy_id(&id, &another));
            prop_assert!(!is_copy_id(&original, &original));
        }
    }
}
