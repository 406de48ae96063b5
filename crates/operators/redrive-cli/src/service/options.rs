//! Reads the options of a consumer from a section of a file.

use std::fmt::Display;
use std::path::Path;

use anyhow::{Context as _, Result};
use redrive::ConsumerOptions;
use serde_json::Value;

use crate::exit::usage;
use crate::settings::Context;

/// Reads the options of the consumer of this queue from a section of a TOML or JSON file; from the whole file without a section.
///
/// # Errors
///
/// If the file cannot be read, has no such section, an option is wrong (with its path), or the section is that of another queue.
pub(super) fn read(
    context: &Context,
    queue: &str,
    path: &Path,
    section: Option<&str>,
) -> Result<ConsumerOptions> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let is_toml = path.extension().is_some_and(|ending| ending == "toml");
    let whole: Value = if is_toml {
        toml::from_str(&text).map_err(|error| usage(format!("{}: {error}", path.display())))?
    } else {
        serde_json::from_str(&text).map_err(|error| usage(format!("{}: {error}", path.display())))?
    };
    let found = find(&whole, section).ok_or_else(|| {
        usage(format!("{} has no section `{}`", path.display(), section.unwrap_or_default()))
    })?;
    let of_the_section = |error: &dyn Display| {
        usage(format!("{}, section `{}`: {error}", path.display(), section.unwrap_or(".")))
    };
    let options =
        ConsumerOptions::from_deserializer(found.clone()).map_err(|error| of_the_section(&error))?;
    match &options.queue_name {
        Some(name) if context.queue_name(name) != context.queue_name(queue) => {
            let other = format!(
                "QueueName is `{name}`, and this is about `{queue}`: name that queue, or another section"
            );
            Err(of_the_section(&other))
        }
        _ => Ok(options),
    }
}

/// Returns the section of this path: `services.orders`.
fn find<'a>(whole: &'a Value, section: Option<&str>) -> Option<&'a Value> {
    section.map_or(Some(whole), |section| section.split('.').try_fold(whole, |value, key| value.get(key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_path() {
        let whole = serde_json::json!({ "services": { "orders": { "MaxDeliveryCount": 3 } } });
        assert!(find(&whole, Some("services.orders")).unwrap().is_object());
        assert!(find(&whole, Some("services.bills")).is_none());
        assert_eq!(find(&whole, None), Some(&whole));
    }
}
