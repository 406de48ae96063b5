//! `redrive show`: one message, with its history.

use std::io::Write as _;
use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::{ExportedEntry, Filter, Template, ViewEntry};
use redrive::{EntryHandle, Message, Shelf, Shelved};

use super::plain;
use super::select::{group_id, is_short, read, select};
use crate::args::{Global, ShelfName, Show, Which};
use crate::desk::connect;
use crate::exit::{Exit, usage};
use crate::output::{ago, one_line, print, print_json, printable};

pub(crate) async fn run(global: &Global, command: Show) -> Result<Exit> {
    let context = global.broker()?;
    let (shelf, wanted) = match (&command.handle, &command.group) {
        (Some(name), _) | (None, Some(name)) if command.group.is_some() || is_short(name) => {
            let id = group_id(global, &context, &command.queue, Shelf::DeadLetter, name)?;
            (Shelf::DeadLetter, Wanted::Group(Filter::group(id)))
        }
        (Some(text), _) => match text.parse::<EntryHandle>() {
            Ok(handle) => (handle.shelf(), Wanted::Handle(handle)),
            Err(_) => {
                let selected = select(global, &context, &filtered(&command.queue, text)).await?;
                return print_entry(global, &command, &selected.desk.queue, selected.only()?, selected.now);
            }
        },
        (None, _) => {
            return Err(usage(
                "which message? Its handle as `browse` prints it, a filter that only one matches, or --group (-g) for the first of a \
                 group",
            ));
        }
    };
    let desk = connect(global, &context, &command.queue).await?;
    let view = read(global, &desk, shelf).await?;
    let now = SystemTime::now();
    let entries = view.entries();
    let found: Option<&ViewEntry> = match &wanted {
        Wanted::Handle(handle) => entries.iter().find(|entry| entry.entry.handle == *handle),
        Wanted::Group(filter) => entries.iter().find(|entry| filter.matches(&entry.entry, entry.group, now)),
    };
    let found = found.ok_or_else(|| {
        anyhow::anyhow!(
            "there is no such message on the {shelf} shelf of `{}` now: `redrive browse {0}` lists them",
            desk.queue
        )
    })?;
    print_entry(global, &command, &desk.queue, found, now)
}

/// The entries of the dead-letter shelf that match.
fn filtered(queue: &str, filter: &str) -> Which {
    let (queue, filter) = (queue.to_owned(), vec![filter.to_owned()]);
    Which { queue, filter, group: None, selecting: None, shelf: ShelfName::DeadLetter }
}

fn print_entry(
    global: &Global,
    command: &Show,
    queue: &str,
    found: &ViewEntry,
    now: SystemTime,
) -> Result<Exit> {
    if command.raw {
        std::io::stdout().write_all(found.entry.message.body())?;
    } else if global.json {
        let line = ExportedEntry::new(queue, &found.entry, now).to_line()?;
        print_json(&serde_json::from_str::<serde_json::Value>(&line)?)?;
    } else {
        for line in description(queue, found, now) {
            print(&printable(&line));
        }
        if found.entry.message.body().len() > SHOWN {
            eprintln!("--raw prints the whole body");
        }
    }
    Ok(Exit::Ok)
}

enum Wanted {
    Handle(EntryHandle),
    Group(Filter),
}

/// Returns the lines that describe an entry.
pub(crate) fn description(queue: &str, viewed: &ViewEntry, now: SystemTime) -> Vec<String> {
    let Shelved { handle, message, history, .. } = &viewed.entry;
    let mut lines = vec![
        format!("{queue} {handle}"),
        format!("  shelved   {} ago", ago(viewed.time(), now)),
        format!("  group     {} ({})", viewed.group, one_line(Template::of(&viewed.entry).text(), 100)),
        format!("  reason    {}", viewed.entry.reason().unwrap_or("-")),
    ];
    if let Some(error) = &history.error {
        lines.push(format!("  error     {}", error.replace('\n', "\n            ")));
    }
    if let Some(reason) = &viewed.entry.broker_reason {
        let description = viewed.entry.broker_description.as_deref().unwrap_or_default();
        lines.push(format!("  broker    {reason} {description}"));
    }
    lines.push(format!(
        "  attempts  {}, redriven {} times",
        history.attempt.or_highest(),
        history.redrives.or_highest()
    ));
    for past in &history.past {
        let wait = past.wait_ms.map(|ms| {
            format!(", then waited {}", humantime::format_duration(std::time::Duration::from_millis(ms)))
        });
        lines.push(format!(
            "    {:>3}  {:>8} ago  {}: {}{}",
            past.attempt,
            ago(past.at, now),
            past.reason,
            one_line(&past.error, 120),
            wait.unwrap_or_default()
        ));
    }
    if let Some(trace) = &history.trace_parent {
        lines.push(format!("  trace     {trace}"));
    }
    lines.push(String::new());
    lines.extend(properties_and_headers(message));
    lines.push(format!("  body      {} bytes{}", message.body().len(), content_type(message)));
    lines.extend(body(message.body()));
    lines
}

/// Returns the lines of what the application set: redrive's own headers are described above.
fn properties_and_headers(message: &Message) -> Vec<String> {
    let set = properties(message).map(|(name, text)| format!("  {name:<9} {}", one_line(&text, 200)));
    let own = headers(message)
        .map(|(name, text)| format!("  header    {}: {}", one_line(name, 60), one_line(&text, 200)));
    set.chain(own).collect()
}

/// Returns the properties that are set, for a person; secrets are masked.
pub(crate) fn properties(message: &Message) -> impl Iterator<Item = (String, String)> {
    // Every copy of redrive is persistent.
    let set = plain::properties(message.properties()).filter(|(name, _)| name != "persistent");
    set.map(|(name, json)| {
        let text = plain::masked(&format!("property {name}"), &json);
        (name, text)
    })
}

/// Returns the headers that the application set, for a person; secrets are masked.
pub(crate) fn headers(message: &Message) -> impl Iterator<Item = (&str, String)> {
    let own = message.headers().iter().filter(|(name, _)| !name.starts_with("redrive-"));
    own.map(|(name, value)| (name, plain::masked(&format!("header {name}"), &plain::value(value))))
}

fn content_type(message: &Message) -> String {
    message.properties().content_type.as_ref().map_or_else(String::new, |name| format!(", {name}"))
}

/// How many bytes of a body are shown.
const SHOWN: usize = 64 * 1024;

/// Returns the lines of a body: JSON is set out, other text is as it is.
pub(crate) fn body(body: &[u8]) -> Vec<String> {
    let text = match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(json @ (serde_json::Value::Object(_) | serde_json::Value::Array(_))) => format!("{json:#}"),
        _ => match std::str::from_utf8(body) {
            Ok(text) => text.to_owned(),
            Err(_) => return vec!["(no text: --raw prints it)".to_owned()],
        },
    };
    let (shown, cut) = beginning(&text, SHOWN);
    let rest = cut.then(|| format!("… (cut after {SHOWN} bytes)"));
    shown.lines().map(str::to_owned).chain(rest).collect()
}

/// Returns at most `most` bytes of a text, and whether there are more.
fn beginning(text: &str, most: usize) -> (&str, bool) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], end < text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_properties_are_plain_and_their_secrets_masked() {
        let mut message = Message::new("")
            .with_id("order-7")
            .with_header("authorization", "Bearer abcdef123456")
            .with_header("checked", true)
            .with_header("redrive-attempt", 1_i64)
            .with_header("nothing", redrive::Value::Null);
        message.properties_mut().priority = Some(4);
        message.properties_mut().expiration = Some(std::time::Duration::from_millis(1500));
        message.properties_mut().timestamp = Some(redrive::Timestamp::from_unix_seconds(1_800_000_000));
        let expected = [
            "  id        order-7",
            "  priority  4",
            "  timestamp 2027-01-15T08:00:00Z",
            "  expiration 1.5s",
            "  header    authorization: Bearer ***",
            "  header    checked: true",
            "  header    nothing: null",
        ];
        assert_eq!(properties_and_headers(&message), expected);
    }

    #[test]
    fn a_body_is_set_out_if_it_is_json_and_never_guessed() {
        assert_eq!(body(br#"{"a":1}"#), ["{", "  \"a\": 1", "}"]);
        assert_eq!(body(b"2 books"), ["2 books"]);
        assert_eq!(body(&[0xff, 0]), ["(no text: --raw prints it)"]);
        let large = body("ä".repeat(SHOWN).as_bytes());
        assert_eq!((large[0].len(), large.len()), (SHOWN, 2));
    }
}
