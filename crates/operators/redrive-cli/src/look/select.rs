//! Which entries a command means.

use std::collections::HashSet;
use std::time::SystemTime;

use anyhow::Result;
use redrive::Shelf;
use redrive::ops::{Entries, Filter, GroupId, ShelfView, ViewEntry, ViewOptions};
use redrive::shelves::EntryHandle;

use crate::args::Which;
use crate::desk::{Desk, State, connect, within};
use crate::exit::usage;
use crate::look::jq;
use crate::look::shelves::explained;
use crate::output::{note, one_line, plural, printable};
use crate::settings::{Context, Global};

/// A shelf that was read, and the entries that a command means.
pub(crate) struct Selected {
    pub(crate) desk: Desk,
    pub(crate) view: ShelfView,
    filter: Filter,
    /// The group and the filter, for people and the audit log.
    pub(crate) text: String,
    group: Option<Filter>,
    /// The entries that `--where` selects.
    only: Option<HashSet<EntryHandle>>,
    /// Into how many bodies the filter, and `--where`, could not look.
    pub(crate) not_looked_into: usize,
    pub(crate) now: SystemTime,
}

impl Selected {
    pub(crate) fn entries(&self) -> Entries<'_> {
        // First the group: what is unknown of others does not count.
        let entries = self.view.entries();
        let entries = match &self.group {
            Some(group) => entries.matching(group, self.now),
            None => entries,
        };
        let entries = entries.matching(&self.filter, self.now);
        match &self.only {
            Some(only) => entries.only(|entry| only.contains(&entry.entry.handle)),
            None => entries,
        }
    }

    /// Says that nothing is selected, if that is so: an empty shelf, or a filter that matches nothing of a full one.
    pub(crate) fn nothing(&self) -> Option<String> {
        let shelf = self.view.entries().len();
        match (self.entries().len(), shelf) {
            (0, 0) => Some("no messages".to_owned()),
            (0, _) => Some(format!("0 of {} match", plural(shelf, "message"))),
            _ => None,
        }
    }

    /// Returns the entry that is meant, where one is.
    ///
    /// # Errors
    ///
    /// If none is selected, or more than one.
    pub(crate) fn only(&self) -> Result<&ViewEntry> {
        let (entries, queue) = (self.entries(), &self.desk.queue);
        match (entries.len(), entries.iter().next()) {
            (1, Some(entry)) => Ok(entry),
            (0, _) | (_, None) => Err(usage(format!(
                "{} on the {} shelf of `{queue}`: `redrive browse {queue}` lists its messages",
                self.nothing().unwrap_or_default(),
                self.view.shelf(),
            ))),
            (count, _) => Err(usage(format!(
                "{count} messages match, and one is meant: `redrive browse {queue}` with the same filter prints their handles"
            ))),
        }
    }

    /// True if no filter and no group was given.
    pub(crate) fn is_all(&self) -> bool {
        self.text.is_empty()
    }
}

/// Reads the shelf once, and selects entries.
///
/// # Errors
///
/// If the filter or the group is wrong, or the broker cannot be read. A wrong filter is found before the broker is asked.
pub(crate) async fn select(global: &Global, context: &Context, which: &Which) -> Result<Selected> {
    let (group, filter) = group_and_filter(which);
    let text = filter.join(" ");
    let parsed: Filter = if text.trim().is_empty() {
        Filter::all()
    } else {
        text.parse().map_err(|error| usage(format!("{error}")))?
    };
    let shelf = Shelf::from(which.shelf);
    require_shelf(parsed.handles(), shelf)?;
    let group = group.map(|name| group_id(global, context, &which.queue, shelf, name)).transpose()?;
    let desk = connect(global, context, &which.queue).await?;
    let view = read(global, &desk, shelf).await?;
    say_others(&desk.queue, &view);
    let there: HashSet<_> = view.entries().iter().map(|entry| &entry.entry.handle).collect();
    if let Some(missing) = parsed.handles().find(|handle| !there.contains(handle)) {
        return Err(usage(format!(
            "{missing} is not on the {shelf} shelf of `{0}` now: `redrive browse {0}` lists what is there. To look for such a \
             text, quote it: '\"{missing}\"'",
            desk.queue
        )));
    }
    drop(there);
    let text = match group {
        Some(group) => format!("group {group} {text}").trim_end().to_owned(),
        None => text,
    };
    let (group, now) = (group.map(Filter::group), SystemTime::now());
    let mut selected =
        Selected { desk, view, filter: parsed, text, group, only: None, not_looked_into: 0, now };
    selected.not_looked_into = selected.entries().not_looked_into();
    if let Some(note) = not_looked_into(selected.not_looked_into) {
        note!("the filter left out {note}");
    }
    if let Some(program) = &which.selecting {
        let entries: Vec<_> = selected.entries().iter().collect();
        let matching = jq::matching(global, program, &selected.desk.queue, &entries).await?;
        if let Some(note) = matching.note(entries.len())? {
            note!("{}", printable(&note));
        }
        drop(entries);
        if let Some(note) = not_looked_into(matching.not_looked_into) {
            note!("--where saw `.body` as null in {note}");
        }
        selected.not_looked_into += matching.not_looked_into;
        selected.only = Some(matching.handles);
        selected.text = format!("{} --where {program}", selected.text).trim_start().to_owned();
    }
    Ok(selected)
}

/// Says of how many messages a filter could not see the body; `None`: of none.
pub(crate) fn not_looked_into(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!("{}: it cannot look into the body, and `redrive show` says why", plural(count, "message"))
    })
}

/// Says that there are messages of other queues on the shelf, if that is so.
fn say_others(queue: &str, view: &ShelfView) {
    let others = view.entries().of_others();
    if others.is_empty() {
        return;
    }
    let queues = others.iter().map(|(queue, count)| format!("{count} in `{}`", one_line(queue, 80)));
    note!(
        "{} of the {} shelf of `{}` failed in other queues, and no action takes them: {}. `shelves-shared-with` of a context lists \
         queues that share a shelf",
        plural(others.values().sum::<usize>(), "message"),
        view.shelf(),
        printable(queue),
        queues.collect::<Vec<_>>().join(", ")
    );
}

/// Refuses to mean a whole shelf that nobody asked for. `action` is what would be done to it.
///
/// # Errors
///
/// If nothing selects: no filter, group, program or handle, and not `--all`.
pub(crate) fn require_selection(which: &Which, handles: &[String], all: bool, action: &str) -> Result<()> {
    let is_filtered = which.filter.iter().any(|term| !term.trim().is_empty());
    if is_filtered || which.group.is_some() || which.selecting.is_some() || !handles.is_empty() || all {
        return Ok(());
    }
    Err(usage(format!(
        "which messages? A filter, a group as `g1`, a handle, or --all to {action} the whole shelf"
    )))
}

/// Refuses handles of entries that are on another shelf than the one that is looked at.
///
/// # Errors
///
/// If there is one.
pub(crate) fn require_shelf<'a>(
    mut handles: impl Iterator<Item = &'a EntryHandle>,
    shelf: Shelf,
) -> Result<()> {
    let Some(other) = handles.find(|handle| handle.shelf() != shelf) else { return Ok(()) };
    Err(usage(format!(
        "{other} names an entry of the {0} shelf, and this is the {shelf} shelf: pass --shelf {0}",
        other.shelf()
    )))
}

/// Reads a shelf in one pass.
///
/// # Errors
///
/// If the broker cannot be read, or not in time.
pub(crate) async fn read(global: &Global, desk: &Desk, shelf: Shelf) -> Result<ShelfView> {
    let options = ViewOptions::new();
    let view = within(global.timeout, async {
        Ok(ShelfView::read(&*desk.shelves, shelf, &options, SystemTime::now()).await?)
    })
    .await
    .map_err(|error| explained(error, "read", &desk.queue, shelf))?;
    if let Some(holder) = view.holder() {
        note!("perhaps not all of the {shelf} shelf of `{}` was read: {holder}", printable(&desk.queue));
    }
    if view.is_truncated() {
        note!("only {} read: the shelf has more", plural(view.entries().len(), "message"));
    }
    Ok(view)
}

/// Returns the group, if the filter is nothing but a short name: `redrive redrive orders g1`.
fn group_and_filter(which: &Which) -> (Option<&str>, &[String]) {
    match (&which.group, &which.filter[..]) {
        (Some(group), filter) => (Some(group), filter),
        (None, [only]) if is_short(only) => (Some(only), &[]),
        (None, filter) => (None, filter),
    }
}

pub(crate) fn is_short(name: &str) -> bool {
    name.strip_prefix('g').is_some_and(|number| {
        !number.is_empty() && number.len() < 6 && number.bytes().all(|b| b.is_ascii_digit())
    })
}

/// Returns the id of a group: a short name means the group that the last `redrive groups` of this shelf called so.
///
/// # Errors
///
/// If it is not known.
pub(crate) fn group_id(
    global: &Global,
    context: &Context,
    queue: &str,
    shelf: Shelf,
    name: &str,
) -> Result<GroupId> {
    if !is_short(name) {
        return name.parse().map_err(|error| usage(format!("{error}")));
    }
    let listed = State::open(global)?.listed_groups(context.label(), &context.queue_name(queue), shelf)?;
    let number: usize = name[1..].parse()?;
    number.checked_sub(1).and_then(|place| listed.get(place)).copied().ok_or_else(|| {
        usage(format!("{name} is not known: `redrive groups {queue}` lists the groups, and listed {} of this shelf last", listed.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::ShelfName;

    #[test]
    fn a_whole_shelf_is_meant_only_if_somebody_says_so() {
        let nothing = || Which {
            queue: "orders".into(),
            filter: vec![" ".into()],
            group: None,
            selecting: None,
            shelf: ShelfName::DeadLetter,
        };
        let is_refused =
            |which: &Which, handles: &[String], all| require_selection(which, handles, all, "plan").is_err();
        assert!(is_refused(&nothing(), &[], false));
        assert!(!is_refused(&nothing(), &[], true));
        assert!(!is_refused(&nothing(), &["dead-letter/1".into()], false));
        for which in [
            Which { filter: vec!["g1".into()], ..nothing() },
            Which { group: Some("g1".into()), ..nothing() },
            Which { selecting: Some("true".into()), ..nothing() },
        ] {
            assert!(!is_refused(&which, &[], false), "{which:?}");
        }
    }

    #[test]
    fn a_handle_of_another_shelf_is_an_error_that_says_so() {
        let handles = ["dead-letter/1", "parking/2"].map(|handle| handle.parse::<EntryHandle>().unwrap());
        assert!(require_shelf(handles[..1].iter(), Shelf::DeadLetter).is_ok());
        let error = require_shelf(handles.iter(), Shelf::DeadLetter).unwrap_err().to_string();
        assert!(error.contains("parking/2") && error.contains("pass --shelf parking"), "{error}");
    }

    #[test]
    fn a_filter_of_one_short_name_is_a_group() {
        let which = |filter: &[&str], group: Option<&str>| Which {
            queue: "orders".into(),
            filter: filter.iter().map(|term| (*term).to_owned()).collect(),
            group: group.map(str::to_owned),
            selecting: None,
            shelf: ShelfName::DeadLetter,
        };
        assert_eq!(group_and_filter(&which(&["g12"], None)).0, Some("g12"));
        assert_eq!(group_and_filter(&which(&["g1", "age>1h"], None)).0, None);
        assert_eq!(
            group_and_filter(&which(&["age>1h"], Some("g1"))),
            (Some("g1"), &["age>1h".to_owned()][..])
        );
        assert!(!is_short("g") && !is_short("g1a") && !is_short("g123456"));
    }
}
