//! What of a message will differ once it is restored. Pure.

use std::collections::BTreeMap;

use redrive::ops::ExportedEntry;
use redrive::{Message, Shelves};

use crate::output::{one_line, plural};

/// Returns a line about what will differ from the originals, if anything will.
pub(crate) fn differs<'a>(
    shelves: &dyn Shelves,
    entries: impl Iterator<Item = &'a ExportedEntry>,
) -> Option<String> {
    let mut parts = BTreeMap::<String, usize>::new();
    let mut messages = 0_usize;
    for entry in entries {
        let differing = parts_that_differ(&entry.message, &shelves.as_restored(&entry.for_shelf()));
        messages += usize::from(!differing.is_empty());
        for part in differing {
            *parts.entry(part).or_default() += 1;
        }
    }
    let parts: Vec<_> = parts.into_iter().map(|(part, count)| format!("{part} ({count})")).collect();
    (messages > 0).then(|| {
        format!("{} will differ from the original: {}", plural(messages, "message"), parts.join(", "))
    })
}

fn parts_that_differ(original: &Message, restored: &Message) -> Vec<String> {
    let mut parts = Vec::new();
    let (before, after) = (original.properties(), restored.properties());
    for ((name, before), (_, after)) in before.texts().zip(after.texts()) {
        if before != after {
            parts.push(name.to_owned());
        }
    }
    if before.expiration != after.expiration {
        parts.push("expiration".to_owned());
    }
    // A message that did not say is stored to survive, which loses nothing.
    if before.persistent == Some(false) && after.persistent != Some(false) {
        parts.push("persistent".to_owned());
    }
    let (before, after) = (original.headers(), restored.headers());
    let differing =
        before.iter().filter(|(name, value)| after.get(name) != Some(value)).map(|(name, _)| name);
    let added = after.iter().filter(|(name, _)| !before.contains(name)).map(|(name, _)| name);
    parts.extend(differing.chain(added).map(|name| format!("header {}", one_line(name, 60))));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_does_not_carry_back_is_named() {
        let mut original = Message::new("x").with_header("CC", "a").with_header("kept", 1_i64);
        original.properties_mut().user_id = Some("ada".into());
        let mut restored = Message::new("x").with_header("kept", 1_i64).with_header("redrive-user-id", "ada");
        restored.properties_mut().persistent = Some(true);
        let parts = parts_that_differ(&original, &restored);
        assert_eq!(parts, ["user-id", "header CC", "header redrive-user-id"]);
        assert!(parts_that_differ(&original, &original.clone()).is_empty());
    }
}
