//! `redrive groups`: the failures on a shelf, by what they have in common.

use anyhow::Result;
use redrive::Shelf;
use redrive::ops::{SnapshotOptions, TrendOptions};
use serde_json::json;

use super::select::select;
use super::shelves::note_work;
use crate::args::{Global, Groups};
use crate::desk::State;
use crate::exit::Exit;
use crate::output::{ago, failure, note, one_line, plural, print_json, rfc3339, short, table};

pub(crate) async fn run(global: &Global, command: Groups) -> Result<Exit> {
    let context = global.broker()?;
    let selected = select(global, &context, &command.which).await?;
    note_work(global, &selected.desk, Shelf::from(command.which.shelf));
    let now = selected.now;
    let entries = selected.entries();
    let summary = entries.summary(&SnapshotOptions::new());
    let by_group = entries.by_group();
    let shelf = Shelf::from(command.which.shelf);
    // Later commands mean these groups by g1, g2, whatever is on the shelf then.
    let ids = summary.groups.iter().map(|group| group.id);
    State::open(global)?.list_groups(context.label(), &selected.desk.queue, shelf, ids)?;

    let since = command.since.as_ref();
    if let Some(note) = since.and_then(|since| since.note.as_ref()) {
        note!("{note}");
    }
    let since = since.map(|since| since.at);
    let is_new = |group: &redrive::ops::GroupSummary| since.is_some_and(|since| group.is_new_since(since));
    if global.json {
        let groups: Vec<_> = summary
            .groups
            .iter()
            .enumerate()
            .map(|(place, group)| {
                json!({
                    "name": format!("g{}", place + 1), "id": group.id.to_string(), "count": group.count,
                    "first_seen": rfc3339(group.first_seen), "last_seen": rfc3339(group.last_seen),
                    "new": since.map(|_| is_new(group)),
                    "reason": group.template.reason(), "type": group.template.error_type(), "text": group.template.text(),
                    "sample": { "handle": group.sample.handle.to_string(), "message_id": group.sample.message_id, "text": group.sample.text },
                })
            })
            .collect();
        let data = json!({
            "queue": selected.desk.queue, "shelf": shelf.to_string(), "read_at": rfc3339(Some(selected.view.taken_at())),
            "count": summary.count, "of_other_queues": entries.of_others(), "truncated": summary.truncated,
            "not_read": selected.view.holder().map(|holder| holder.to_string()), "not_looked_into": selected.not_looked_into, "groups": groups,
        });
        print_json(&data)?;
        return Ok(Exit::Ok);
    }
    let shown = selected.nothing().unwrap_or_else(|| {
        format!("{} in {}", plural(summary.count, "message"), plural(by_group.len(), "group"))
    });
    note!("{} {shelf}: {shown}, read {} ago", selected.desk.queue, short(selected.view.age(now)));
    let mut rows = table(["", "messages", "first", "last", "last day", "", "failure", "for example"]);
    for (place, group) in summary.groups.iter().enumerate() {
        let template = &group.template;
        let trend =
            by_group.get(&group.id).map(|entries| spark(&entries.trend(&TrendOptions::until(now)).counts));
        rows.row([
            format!("g{}", place + 1),
            group.count.to_string(),
            ago(group.first_seen, now),
            ago(group.last_seen, now),
            trend.unwrap_or_default(),
            if is_new(group) { "NEW" } else { "" }.to_owned(),
            one_line(&failure(Some(template.reason()), template.text()), 100),
            for_example(group),
        ]);
    }
    rows.print();
    if summary.left_out.of_groups > 0 {
        note!("groups that are not shown have {}", plural(summary.left_out.of_groups, "more message"));
    }
    Ok(Exit::Ok)
}

/// Returns the text of one failure of the group, without its placeholders; its id, if the text says no more.
pub(crate) fn for_example(group: &redrive::ops::GroupSummary) -> String {
    let text = group.sample.text.as_deref().map(|text| one_line(text, 100));
    let text = text.filter(|text| *text != one_line(group.template.text(), 100));
    text.or_else(|| group.sample.message_id.clone()).unwrap_or_else(|| "-".to_owned())
}

/// Draws counts as bars of eight heights.
pub(crate) fn spark(counts: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    counts.iter().map(|&count| BARS[usize::try_from(count * 7 / most).unwrap_or(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::spark;

    #[test]
    fn the_highest_bar_is_the_largest_count() {
        assert_eq!(spark(&[0, 1, 7, 14]), "▁▁▄█");
        assert_eq!(spark(&[0, 0]), "▁▁");
    }
}
