//! `redrive show`: one message, with its story.

use std::io::Write as _;
use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::{EditText, ExportedEntry, Filter, Template, ViewEntry};
use redrive::{EntryHandle, Shelf, Shelved};

use super::select::{group_id, read};
use crate::args::{Global, Show};
use crate::connect::connect;
use crate::exit::{Exit, usage};
use crate::output::{ago, one_line, print, print_json, printable};

pub(crate) async fn run(global: &Global, command: Show) -> Result<Exit> {
    let context = global.broker()?;
    let (shelf, wanted) = match (&command.handle, &command.group) {
        (Some(handle), _) => {
            let handle: EntryHandle = handle.parse().map_err(|error| usage(format!("{error}")))?;
            (handle.shelf(), Wanted::Handle(handle))
        }
        (None, group) => {
            let name = group.as_deref().unwrap_or_default();
            let id = group_id(global, &context, &command.queue, Shelf::DeadLetter, name)?;
            (Shelf::DeadLetter, Wanted::Group(Filter::group(id)))
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
    if command.raw {
        std::io::stdout().write_all(found.entry.message.body())?;
    } else if global.json {
        let line = ExportedEntry::new(&desk.queue, &found.entry, now).to_line()?;
        print_json(&serde_json::from_str::<serde_json::Value>(&line)?)?;
    } else {
        for line in story(&desk.queue, found, now)? {
            print(&printable(&line));
        }
    }
    Ok(Exit::Ok)
}

enum Wanted {
    Handle(EntryHandle),
    Group(Filter),
}

/// Returns the lines that tell the story of an entry.
fn story(queue: &str, viewed: &ViewEntry, now: SystemTime) -> Result<Vec<String>> {
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
    match EditText::of(message) {
        Ok(text) => lines.extend(text.as_str().lines().map(str::to_owned)),
        Err(error) => lines
            .push(format!("the message cannot be shown as text ({error}): --json, or --raw for its body")),
    }
    Ok(lines)
}
