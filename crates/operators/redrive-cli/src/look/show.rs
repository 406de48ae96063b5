//! `redrive show`: one message, with its history.

use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::{BodyView, ExportedEntry, Filter, ShownFailure, Template, ViewEntry};
use redrive::shelves::{EntryHandle, Owner, Shelved};
use redrive::{FailureHistory, Message, Shelf, header_names};

use super::plain;
use super::select::{group_id, is_short, read, select};
use crate::args::{Global, ShelfName, Show, Which};
use crate::desk::connect;
use crate::exit::{Exit, usage};
use crate::output::{note, one_line, plural, print, print_bytes, print_json, printable, when};

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
        print_bytes(found.entry.message.body());
    } else if global.json {
        let line = ExportedEntry::new(queue, &found.entry, now).to_line()?;
        print_json(&serde_json::from_str::<serde_json::Value>(&line)?)?;
    } else {
        for line in description(queue, found, now) {
            print(&printable(&line));
        }
        if found.entry.message.body().len() > SHOWN {
            note!("--raw prints the whole body");
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
    let told = ShownFailure::of(&viewed.entry);
    let mut lines = vec![
        format!("{queue} {handle}"),
        format!("  shelved   {}", when(shelved_at(viewed), now)),
        format!("  group     {} ({})", viewed.group, one_line(Template::of(&viewed.entry).text(), 100)),
        format!("  reason    {}", told.reason.as_deref().unwrap_or("-")),
    ];
    if let Some(queue) = viewed.entry.failed_in.as_deref().filter(|failed_in| *failed_in != queue) {
        let whose = match viewed.entry.owner {
            Owner::Other => ", which is not listed as sharing this shelf: no action takes it",
            Owner::Listed => ": it goes back there",
            _ => "",
        };
        lines.push(format!("  failed in {}{whose}", one_line(queue, 80)));
    }
    if let Some(error) = &told.error {
        lines.push(format!("  error     {}", error.replace('\n', "\n            ")));
    }
    if let Some(reason) = &told.broker_reason {
        let description = told.broker_description.as_deref().unwrap_or_default();
        lines.push(format!("  broker    {reason} {description}"));
    }
    lines.push(format!(
        "  attempts  {}, redriven {}",
        history.attempt.or_highest(),
        plural(history.redrives.or_highest(), "time")
    ));
    for past in &told.past {
        let wait = past.wait_ms.map(|ms| {
            format!(", then waited {}", humantime::format_duration(std::time::Duration::from_millis(ms)))
        });
        lines.push(format!(
            "    {:>3}  {:>12}  {}: {}{}",
            past.attempt,
            when(past.at, now),
            past.reason,
            one_line(&past.error, 120),
            wait.unwrap_or_default()
        ));
    }
    if let Some(trace) = &history.trace_parent {
        lines.push(format!("  trace     {trace}"));
    }
    let odd = odd_times(message, now);
    lines.extend(
        odd.map(|(name, text)| format!("  time      {name}: {} (not plausible)", one_line(&text, 200))),
    );
    lines.push(String::new());
    lines.extend(properties_and_headers(message));
    lines.push(format!("  body      {}", about_body(message)));
    lines.extend(body(message));
    lines
}

/// Returns when the entry was shelved, as it is told: also a time that nothing decides by.
pub(crate) fn shelved_at(viewed: &ViewEntry) -> Option<SystemTime> {
    let entry = &viewed.entry;
    viewed.time().or(entry.shelved_at).or(entry.history.last_failed_at)
}

/// Returns the times in redrive's headers that no decision takes, as they are written.
pub(crate) fn odd_times(message: &Message, now: SystemTime) -> impl Iterator<Item = (&str, String)> {
    let history = FailureHistory::read(message).believed(now);
    let known = [
        (header_names::FIRST_FAILED_AT, history.first_failed_at),
        (header_names::LAST_FAILED_AT, history.last_failed_at),
        (header_names::DEADLINE, history.deadline),
        (header_names::NOT_BEFORE, history.not_before),
        (header_names::DUE_AT, history.due_at),
    ];
    let odd = known.into_iter().filter(|(_, time)| time.is_none());
    odd.filter_map(|(name, _)| Some((name, message.headers().get(name)?)))
        .map(|(name, value)| (name, plain::masked(&format!("header {name}"), &plain::value(value))))
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

/// Returns the size of a body, its type, and what was undone to look into it.
pub(crate) fn about_body(message: &Message) -> String {
    let view = BodyView::of(message);
    let mut about = plural(message.body().len(), "byte");
    if let Some(name) = &message.properties().content_type {
        about.push_str(&format!(", {name}"));
    }
    for undone in view.undone() {
        about.push_str(&format!(", {undone} undone"));
    }
    about
}

/// How many bytes of a body are shown.
const SHOWN: usize = 64 * 1024;

/// Returns the lines of a body, unpacked: JSON is set out, with its digits, its keys and their order as they are; other text is as it is.
pub(crate) fn body(message: &Message) -> Vec<String> {
    let view = BodyView::of(message);
    let problem = view.problem().map(|problem| format!("(it cannot be read completely: {problem})"));
    let text = match (view.pretty(), view.text()) {
        (Some(pretty), _) => pretty,
        (None, Some(text)) => text.to_owned(),
        // A part may end within a character.
        (None, None) if problem.is_some() && !view.undone().is_empty() => {
            String::from_utf8_lossy(view.bytes()).into_owned()
        }
        (None, None) => {
            return problem.into_iter().chain(["(no text: --raw prints it)".to_owned()]).collect();
        }
    };
    let (shown, cut) = beginning(&text, SHOWN);
    let rest = cut.then(|| format!("… (cut after {SHOWN} bytes)"));
    problem.into_iter().chain(shown.lines().map(str::to_owned)).chain(rest).collect()
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
        let body = |bytes: &[u8]| body(&Message::new(bytes.to_vec()));
        let price = br#"{"price":1.10,"id":12345678901234567890123,"id":1e2}"#;
        let lines = ["{", "  \"price\": 1.10,", "  \"id\": 12345678901234567890123,", "  \"id\": 1e2", "}"];
        assert_eq!(body(price), lines);
        assert_eq!(body(&[b"\xef\xbb\xbf", &price[..]].concat()), lines, "without the byte order mark");
        assert_eq!(body(b"2 books"), ["2 books"]);
        assert_eq!(body(&[0xff, 0]), ["(no text: --raw prints it)"]);
        let large = body("ä".repeat(SHOWN).as_bytes());
        assert_eq!((large[0].len(), large.len()), (SHOWN, 2));
    }

    #[test]
    fn a_body_that_nobody_can_look_into_says_why() {
        let mut message = Message::new(vec![0xff; 9]);
        message.properties_mut().content_encoding = Some("br".to_owned());
        let lines = body(&message);
        assert!(lines[0].contains("its content encoding `br` is not known"), "{lines:?}");
    }

    #[test]
    fn times_beyond_reason_are_shown_as_they_are() {
        let message = Message::new("")
            .with_header(header_names::LAST_FAILED_AT, 1_800_000_000_000_000_000_i64)
            .with_header(header_names::FIRST_FAILED_AT, "2026-11-2")
            .with_header(header_names::DUE_AT, "2026-11-28T13:00:00Z");
        let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
        let odd: Vec<_> = odd_times(&message, now).collect();
        let expected = [
            (header_names::FIRST_FAILED_AT, "2026-11-2".to_owned()),
            (header_names::LAST_FAILED_AT, "1800000000000000000".to_owned()),
        ];
        assert_eq!(odd, expected);
        let entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, "1"), message);
        let view = redrive::ops::ShelfView::new(Shelf::DeadLetter, now, [entry], false);
        let lines = description("orders", view.entries().iter().next().unwrap(), now).join("\n");
        assert!(lines.contains("shelved   1800000000000000000 ms since 1970 (not plausible)"), "{lines}");
    }
}
