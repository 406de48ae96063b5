//! What the keys do.

use std::time::SystemTime;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use redrive::ops::PlanAction;

use super::acting::{Prompt, RunView, next_rate};
use super::ask::{Ask, Planning};
use super::listing::{FilterText, Listing};
use super::state::{Page, Screen};
use super::text::lines_of;
use crate::desk::asks;
use crate::look::show::description;

/// The keys, for `?`.
pub(super) const HELP: [(&str, &str); 12] = [
    ("j k, arrows", "down, up; PgDn PgUp; g G first, last"),
    ("Enter", "open; in a plan: do it"),
    ("Esc, Backspace", "back"),
    ("/", "filter: reason:Late error~\"timed out\" age>1h"),
    ("Space", "mark an entry of a group"),
    ("r", "redrive the marked entries, else the group"),
    ("p", "park: move them to the parking shelf"),
    ("d", "discard: remove them, after an export"),
    ("R", "read again"),
    ("Tab; p c a + -", "the run; pause, continue, abort, rate"),
    ("Ctrl-C", "abort a run after its step; twice: at once"),
    ("q", "quit"),
];

impl Page {
    /// Takes a key.
    pub(super) fn on_key(&mut self, key: KeyEvent, now: SystemTime) -> Option<Ask> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return if key.code == KeyCode::Char('c') { self.interrupt() } else { None };
        }
        if std::mem::take(&mut self.is_help) {
            return None;
        }
        self.status = None;
        if let Some(prompt) = self.prompt.take() {
            return self.on_prompt(prompt, key.code, now);
        }
        let page = self.body_height().saturating_sub(1).max(1);
        let cursor = self.level().cursor;
        match key.code {
            KeyCode::Char('q') => return self.quit(),
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('j') | KeyCode::Down => self.go_to(cursor + 1),
            KeyCode::Char('k') | KeyCode::Up => self.go_to(cursor.saturating_sub(1)),
            KeyCode::PageDown => self.go_to(cursor + page),
            KeyCode::PageUp => self.go_to(cursor.saturating_sub(page)),
            KeyCode::Char('g') | KeyCode::Home => self.go_to(0),
            KeyCode::Char('G') | KeyCode::End => self.go_to(usize::MAX),
            KeyCode::Enter => return self.enter(now),
            KeyCode::Esc | KeyCode::Backspace => self.back(),
            KeyCode::Tab if self.run.is_none() => self.say("there is no run yet"),
            KeyCode::Tab if *self.screen() != Screen::Run => self.open(Screen::Run),
            KeyCode::Char('R') => return self.refresh(now),
            _ if *self.screen() == Screen::Run => return self.on_run(key.code),
            KeyCode::Char(sign @ ('+' | '-')) => self.change_plan_rate(sign == '+'),
            KeyCode::Char('/') => match self.screen() {
                Screen::Plan => self.complain("this plan has its messages: Esc, then / for other ones"),
                _ => self.prompt = Some(Prompt::Filter(self.filter.text.clone())),
            },
            KeyCode::Char(' ') => self.mark(),
            KeyCode::Char('r') => return self.plan_for(PlanAction::Redrive),
            KeyCode::Char('p') => return self.plan_for(PlanAction::Park),
            KeyCode::Char('d') => return self.plan_for(PlanAction::Discard),
            _ => {}
        }
        None
    }

    fn run_goes_on(&self) -> bool {
        self.run.as_ref().is_some_and(RunView::goes_on)
    }

    fn quit(&mut self) -> Option<Ask> {
        if self.run_goes_on() {
            self.complain("a run is active: Tab shows it, `a` there ends it after its step");
            return None;
        }
        Some(Ask::Quit)
    }

    /// The first Ctrl-C ends a run after its step, the second the page.
    fn interrupt(&mut self) -> Option<Ask> {
        let goes_on = self.run_goes_on();
        match &mut self.run {
            Some(run) if goes_on && !run.is_interrupted => {
                run.is_interrupted = true;
                self.say("the run ends after its step; Ctrl-C again leaves at once");
                Some(Ask::Control(asks::Ask::Abort))
            }
            _ => Some(Ask::Quit),
        }
    }

    fn enter(&mut self, now: SystemTime) -> Option<Ask> {
        let cursor = self.level().cursor;
        match self.screen().clone() {
            Screen::Shelves => {
                let (place, _) = self.shelves().nth(cursor)?;
                if self.listing.as_ref().is_none_or(|listing| listing.place != place) {
                    (self.listing, self.entries) = (None, Vec::new());
                }
                self.open(Screen::Groups);
                return Some(self.read(place));
            }
            Screen::Groups => {
                let listing = self.listing.as_ref()?;
                let group = listing.groups.get(cursor)?.id;
                self.entries = listing.entries(group);
                self.marked.clear();
                self.open(Screen::Entries(group));
            }
            Screen::Entries(_) => {
                let handle = self.entries.get(cursor)?.handle.clone();
                let listing = self.listing.as_ref()?;
                let entry = listing.entry(&handle)?;
                self.message_lines = lines_of(&description(&listing.place.queue, entry, now));
                self.open(Screen::Message(handle));
            }
            Screen::Plan => return self.ask_next(),
            Screen::Message(_) | Screen::Run => {}
        }
        None
    }

    fn back(&mut self) {
        if self.levels.len() == 1 {
            self.say("q quits");
            return;
        }
        match self.levels.pop().map(|level| level.screen) {
            // What is marked is what is seen.
            Some(Screen::Entries(_)) => self.marked.clear(),
            Some(Screen::Plan) => self.plan = None,
            // Late answers open no screen that was left.
            Some(Screen::Groups) => self.awaited = None,
            _ => {}
        }
    }

    fn refresh(&mut self, now: SystemTime) -> Option<Ask> {
        if *self.screen() == Screen::Shelves {
            return Some(self.count(now));
        }
        let place = self.listing.as_ref().map(|listing| listing.place.clone());
        let place = place.or_else(|| self.shelves().nth(self.levels[0].cursor).map(|(place, _)| place))?;
        Some(self.read(place))
    }

    fn mark(&mut self) {
        let cursor = self.level().cursor;
        if !matches!(self.screen(), Screen::Entries(_)) {
            return;
        }
        if let Some(entry) = self.entries.get(cursor) {
            let handle = entry.handle.clone();
            if !self.marked.remove(&handle) {
                self.marked.insert(handle);
            }
            self.go_to(cursor + 1);
        }
    }

    fn change_plan_rate(&mut self, is_faster: bool) {
        if let (Screen::Plan, Some(plan)) = (&self.levels[self.levels.len() - 1].screen, &mut self.plan) {
            plan.rate = next_rate(plan.rate, is_faster);
        }
    }

    /// Asks for a plan of the marked entries, else of the message that is open, else of the group.
    fn plan_for(&mut self, action: PlanAction) -> Option<Ask> {
        if let Some(refusal) = self.refusal.clone() {
            self.complain(&refusal);
            return None;
        }
        if self.run_goes_on() {
            self.complain("a run is active: Tab shows it");
            return None;
        }
        if self.awaited.is_some() {
            self.complain("wait: the shelf is being read");
            return None;
        }
        let (screen, cursor) = (self.screen().clone(), self.level().cursor);
        let Some(listing) = self.listing.as_ref().filter(|_| screen != Screen::Shelves) else {
            self.complain("open a shelf first: Enter");
            return None;
        };
        let (handles, is_marked, filter) = match screen {
            Screen::Groups => {
                let group = listing.groups.get(cursor)?.id;
                (listing.handles(group), false, listing.text(group))
            }
            Screen::Entries(group) if self.marked.is_empty() => {
                (listing.handles(group), false, listing.text(group))
            }
            Screen::Entries(_) => {
                let marked = self.entries.iter().map(|entry| &entry.handle);
                let marked = marked.filter(|handle| self.marked.contains(*handle)).cloned();
                (marked.collect(), true, String::new())
            }
            Screen::Message(handle) => (vec![handle], true, String::new()),
            Screen::Shelves | Screen::Plan | Screen::Run => return None,
        };
        let (place, view) = (listing.place.clone(), listing.view.clone());
        self.awaited = Some((place.clone(), "planning"));
        Some(Ask::Plan(Planning { place, view, action, handles, is_marked, filter }))
    }

    /// Asks the next question of the plan, or begins its run.
    fn ask_next(&mut self) -> Option<Ask> {
        let plan = self.plan.as_ref()?;
        if plan.count() == 0 {
            self.complain("there is nothing to do");
            return None;
        }
        if let Some(question) = plan.question() {
            self.prompt = Some(question);
            return None;
        }
        let plan = self.plan.take()?;
        self.levels.pop();
        self.open(Screen::Run);
        self.run = Some(RunView::new(plan.saved.plan.action(), plan.rate));
        Some(Ask::Begin { saved: plan.saved, rate: plan.rate, reason: plan.reason })
    }

    fn on_prompt(&mut self, prompt: Prompt, key: KeyCode, now: SystemTime) -> Option<Ask> {
        match (prompt, key) {
            (Prompt::Filter(_), KeyCode::Esc) => None,
            (_, KeyCode::Esc) => self.give_up(),
            (Prompt::Confirm, KeyCode::Char('y' | 'Y')) => {
                self.plan.as_mut()?.agree();
                self.ask_next()
            }
            (Prompt::Confirm, _) => self.give_up(),
            (Prompt::Filter(text), KeyCode::Enter) => self.set_filter(text, now),
            (Prompt::Reason(text), KeyCode::Enter) => {
                self.plan.as_mut()?.reason = Some(text);
                self.ask_next()
            }
            (Prompt::Count(text), KeyCode::Enter) => {
                if self.plan.as_mut()?.agree_by_count(&text) {
                    return self.ask_next();
                }
                self.give_up();
                self.complain("cancelled: the number does not match");
                None
            }
            (mut prompt, key) => {
                if let Prompt::Filter(text) | Prompt::Reason(text) | Prompt::Count(text) = &mut prompt {
                    match key {
                        KeyCode::Char(c) => text.push(c),
                        KeyCode::Backspace => {
                            text.pop();
                        }
                        _ => {}
                    }
                }
                self.prompt = Some(prompt);
                None
            }
        }
    }

    fn give_up(&mut self) -> Option<Ask> {
        if let Some(plan) = &mut self.plan {
            plan.forget();
        }
        self.say("cancelled");
        None
    }

    /// Sets the filter. A wrong one stays in its line with its error, and the old one in force.
    fn set_filter(&mut self, text: String, now: SystemTime) -> Option<Ask> {
        match FilterText::parse(&text) {
            Err(error) => {
                self.complain(&error);
                self.prompt = Some(Prompt::Filter(text));
                None
            }
            Ok(filter) => {
                self.filter = filter;
                let old = self.listing.as_ref()?;
                let listing = Listing::new(old.place.clone(), old.view.clone(), &self.filter, now);
                Some(self.list(listing))
            }
        }
    }

    fn on_run(&mut self, key: KeyCode) -> Option<Ask> {
        let run = self.run.as_mut()?;
        if !run.goes_on() {
            return None;
        }
        let ask = match key {
            KeyCode::Char('p') => asks::Ask::Pause,
            KeyCode::Char('c') => asks::Ask::Resume,
            KeyCode::Char('a') => asks::Ask::Abort,
            KeyCode::Char(sign @ ('+' | '-')) => {
                run.rate = next_rate(run.rate, sign == '+');
                asks::Ask::Rate { per_second: run.rate }
            }
            _ => return None,
        };
        if run.id.is_none() {
            // The control is there when the run has begun.
            self.say("wait: the run has not begun");
            return None;
        }
        Some(Ask::Control(ask))
    }
}
