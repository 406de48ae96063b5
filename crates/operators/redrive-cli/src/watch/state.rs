//! The page as a value: keys and answers change it, and it asks for work. No broker, no terminal, no clock.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use redrive::Shelf;
use redrive::ops::GroupId;
use redrive::shelves::EntryHandle;

use super::acting::{PlanView, Prompt, RunView};
use super::ask::{Answer, Ask, Counted, Place};
use super::listing::{EntryRow, FilterText, Listing};
use super::text::wrap;
use crate::output::{one_line, plural};

/// How often the counts are asked for while they are on the page.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// Lines of the page that are not its body: title, keys or prompt, status.
pub(super) const FRAME: u16 = 3;

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Screen {
    Shelves,
    Groups,
    Entries(GroupId),
    Message(EntryHandle),
    Plan,
    Run,
}

/// A screen, and where its cursor is: the row, or the first line.
pub(super) struct Level {
    pub(super) screen: Screen,
    pub(super) cursor: usize,
}

/// A queue, and what is known of its shelves.
pub(super) struct QueueRow {
    pub(super) queue: String,
    pub(super) counted: Option<Counted>,
}

/// The line at the bottom.
pub(super) struct Status {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// The page.
pub(super) struct Page {
    /// The broker, as contexts call it.
    pub(super) broker: String,
    /// Why this page may not act, if it may not.
    pub(super) refusal: Option<String>,
    pub(super) queues: Vec<QueueRow>,
    /// The queues whose counts are awaited.
    pub(super) counting: usize,
    counted_last: Option<SystemTime>,
    /// The screens one above the other; never empty.
    pub(super) levels: Vec<Level>,
    pub(super) filter: FilterText,
    pub(super) listing: Option<Listing>,
    /// The entries of the group that is open.
    pub(super) entries: Vec<EntryRow>,
    pub(super) marked: HashSet<EntryHandle>,
    /// The lines of the message that is open.
    pub(super) message_lines: Vec<String>,
    pub(super) plan: Option<PlanView>,
    pub(super) run: Option<RunView>,
    pub(super) prompt: Option<Prompt>,
    pub(super) status: Option<Status>,
    /// The shelf that is read or planned for now; other answers are late.
    pub(super) awaited: Option<(Place, &'static str)>,
    pub(super) is_help: bool,
    /// Columns and lines of the terminal.
    pub(super) size: (u16, u16),
}

impl Page {
    pub(super) fn new(broker: &str, queues: &[String], refusal: Option<String>) -> Self {
        let queues = queues.iter().map(|queue| QueueRow { queue: queue.clone(), counted: None }).collect();
        Self {
            broker: one_line(broker, 60),
            refusal,
            queues,
            counting: 0,
            counted_last: None,
            levels: vec![Level { screen: Screen::Shelves, cursor: 0 }],
            filter: FilterText::all(),
            listing: None,
            entries: Vec::new(),
            marked: HashSet::new(),
            message_lines: Vec::new(),
            plan: None,
            run: None,
            prompt: None,
            status: None,
            awaited: None,
            is_help: false,
            size: (80, 24),
        }
    }

    /// Returns the screen on top, with its cursor.
    pub(super) fn level(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }

    pub(super) fn screen(&self) -> &Screen {
        &self.level().screen
    }

    /// Returns the shelves of all queues, in the order of the page.
    pub(super) fn shelves(&self) -> impl Iterator<Item = (Place, Option<&Counted>)> {
        self.queues.iter().flat_map(|row| {
            [Shelf::DeadLetter, Shelf::Parking]
                .map(|shelf| (Place { queue: row.queue.clone(), shelf }, row.counted.as_ref()))
        })
    }

    /// Returns when what is shown was read; for the shelves, when the oldest of the counts was.
    pub(super) fn read_at(&self) -> Option<SystemTime> {
        match self.screen() {
            Screen::Shelves => self.queues.iter().filter_map(|row| Some(row.counted.as_ref()?.at)).min(),
            _ => self.listing.as_ref().map(|listing| listing.view.taken_at()),
        }
    }

    /// Returns the number of lines of the body.
    pub(super) fn body_height(&self) -> usize {
        usize::from(self.size.1.saturating_sub(FRAME))
    }

    /// Returns the number of rows, or of lines to scroll over, of the screen.
    pub(super) fn rows(&self) -> usize {
        let lines = |lines: &[String]| {
            wrap(lines, self.size.0).len().saturating_sub(self.body_height().max(1) - 1).max(1)
        };
        match self.screen() {
            Screen::Shelves => self.queues.len() * 2,
            Screen::Groups => self.listing.as_ref().map_or(0, |listing| listing.groups.len()),
            Screen::Entries(_) => self.entries.len(),
            Screen::Message(_) => lines(&self.message_lines),
            Screen::Plan => self.plan.as_ref().map_or(0, |plan| lines(&plan.lines())),
            Screen::Run => 0,
        }
    }

    /// Moves the cursor to a row, or to the last one.
    pub(super) fn go_to(&mut self, row: usize) {
        let last = self.rows().saturating_sub(1);
        if let Some(level) = self.levels.last_mut() {
            level.cursor = row.min(last);
        }
    }

    pub(super) fn open(&mut self, screen: Screen) {
        self.levels.push(Level { screen, cursor: 0 });
    }

    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.status = Some(Status { text: one_line(&text.into(), 400), is_error: false });
    }

    pub(super) fn complain(&mut self, text: &str) {
        self.status = Some(Status { text: one_line(text, 400), is_error: true });
    }

    /// Time has gone by: the counts are asked for again while they are on the page.
    pub(super) fn tick(&mut self, now: SystemTime) -> Option<Ask> {
        let is_due = self
            .counted_last
            .is_none_or(|last| now.duration_since(last).is_ok_and(|since| since >= COUNT_EVERY));
        let is_shown = *self.screen() == Screen::Shelves;
        (is_shown && is_due && self.counting == 0).then(|| self.count(now))
    }

    pub(super) fn count(&mut self, now: SystemTime) -> Ask {
        (self.counting, self.counted_last) = (self.queues.len(), Some(now));
        Ask::Count
    }

    pub(super) fn read(&mut self, place: Place) -> Ask {
        self.awaited = Some((place.clone(), "reading"));
        Ask::Read(place)
    }

    /// Takes an answer.
    pub(super) fn on_answer(&mut self, answer: Answer, now: SystemTime) -> Option<Ask> {
        match answer {
            Answer::Counted(queue, counted) => {
                self.counting = self.counting.saturating_sub(1);
                match counted {
                    Ok(counted) => {
                        if let Some(row) = self.queues.iter_mut().find(|row| row.queue == queue) {
                            row.counted = Some(counted);
                        }
                    }
                    Err(error) => self.complain(&error),
                }
                None
            }
            Answer::Read(place, read) => {
                self.takes(&place).then_some(())?;
                match read {
                    Ok(view) => {
                        if view.is_truncated() {
                            let read = view.entries().len();
                            self.say(format!("only {} read: the shelf has more", plural(read, "message")));
                        }
                        if let Some(holder) = view.holder() {
                            self.say(format!("perhaps not all of the shelf was read: {holder}"));
                        }
                        let listing = Listing::new(place, view, &self.filter, now);
                        return Some(self.list(listing));
                    }
                    Err(error) => self.complain(&error),
                }
                None
            }
            Answer::Planned(place, planned) => {
                self.takes(&place).then_some(())?;
                match planned {
                    Ok(saved) => {
                        self.plan = Some(PlanView::new(saved));
                        self.open(Screen::Plan);
                    }
                    Err(error) => self.complain(&error),
                }
                None
            }
            Answer::Begun { id, originals } => {
                let run = self.run.as_mut()?;
                (run.id, run.originals) = (Some(id), originals);
                None
            }
            Answer::Progress(progress) => {
                self.run.as_mut()?.progress = Some(progress);
                None
            }
            Answer::Ended(ended) => {
                let run = self.run.as_mut()?;
                if let (Ok(finished), Some(progress)) = (&ended, &mut run.progress) {
                    progress.report = finished.report;
                }
                run.ended = Some(ended);
                let short = run.short();
                match run.ended {
                    Some(Err(_)) => self.complain(&short),
                    _ => self.say(short),
                }
                // What was acted on has left the shelf.
                self.marked.clear();
                let place = self.listing.as_ref()?.place.clone();
                Some(self.read(place))
            }
            Answer::Failed(error) => {
                self.complain(&error);
                None
            }
        }
    }

    /// Returns true if this answer is the awaited one, and awaits it no more.
    fn takes(&mut self, place: &Place) -> bool {
        let is_awaited = self.awaited.as_ref().is_some_and(|(awaited, _)| awaited == place);
        if is_awaited {
            self.awaited = None;
        }
        is_awaited
    }

    /// Shows another listing. The cursor stays on its group or its entry, wherever that is now.
    pub(super) fn list(&mut self, listing: Listing) -> Ask {
        let old_groups: Vec<_> =
            self.listing.iter().flat_map(|old| old.groups.iter().map(|group| group.id)).collect();
        let old_entries: Vec<_> = self.entries.iter().map(|entry| entry.handle.clone()).collect();
        for level in &mut self.levels {
            match &level.screen {
                Screen::Groups => {
                    let at = old_groups.get(level.cursor);
                    let place = at.and_then(|id| listing.groups.iter().position(|group| group.id == *id));
                    level.cursor = place.unwrap_or(0);
                }
                Screen::Entries(group) => {
                    self.entries = listing.entries(*group);
                    let at = old_entries.get(level.cursor);
                    let place = at.and_then(|at| self.entries.iter().position(|entry| entry.handle == *at));
                    level.cursor = place.unwrap_or(0);
                }
                _ => {}
            }
        }
        let shown: HashSet<_> = self.entries.iter().map(|entry| entry.handle.clone()).collect();
        self.marked.retain(|handle| shown.contains(handle));
        let names = listing.groups.iter().map(|group| group.id).collect();
        let place = listing.place.clone();
        self.listing = Some(listing);
        Ask::NameGroups(place, names)
    }
}
