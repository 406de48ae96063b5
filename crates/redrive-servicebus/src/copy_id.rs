//! The ids of copies. An entity with duplicate detection swallows, without a word, a copy that has the id of its original:
//! completing the original would then lose the message. A copy therefore gets an id of its own, the same one however often
//! it is sent: sending it again after a doubtful failure adds nothing where duplicates are detected.

use ring::digest;

/// How many characters the id of a message may have.
const MAX_CHARS: usize = 128;

/// The id of the copy that stands for hop `hop` of the message `original`, made of the delivery with this sequence number.
///
/// The number is in it because ids need not be unique: two messages of one id that fail alike must not swallow each other.
pub(crate) fn copy_id(original: &str, hop: u32, sequence_number: i64) -> String {
    let suffix = format!("#r{hop}.{sequence_number}");
    if original.chars().count() + suffix.len() <= MAX_CHARS {
        return format!("{original}{suffix}");
    }
    // As much of it as a person needs to find it again, and a hash to tell it from others that begin alike.
    let hash = digest::digest(&digest::SHA256, original.as_bytes());
    let hash: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let kept = MAX_CHARS - suffix.len() - hash.len() - 1;
    let beginning: String = original.chars().take(kept).collect();
    format!("{beginning}~{hash}{suffix}")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_id_stays_readable() {
        assert_eq!(copy_id("order-7", 2, 41), "order-7#r2.41");
    }

    #[test]
    fn long_ids_that_begin_alike_are_told_apart() {
        let long = |end: &str| format!("{}{end}", "ä".repeat(127));
        let ids: HashSet<_> = ["1", "2", "12"].map(|end| copy_id(&long(end), 1, 9)).into();
        assert_eq!(ids.len(), 3);
    }

    proptest! {
        #[test]
        fn an_id_is_never_too_long_nor_that_of_its_original(
            original in ".{0,200}", hop in 1..u32::MAX, number in 0..i64::MAX
        ) {
            let id = copy_id(&original, hop, number);
            prop_assert!(id.chars().count() <= MAX_CHARS);
            prop_assert_ne!(&id, &original);
            prop_assert_eq!(copy_id(&original, hop, number), id);
        }
    }
}
