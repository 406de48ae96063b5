//! Draws the page. Decides nothing.

use std::time::SystemTime;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Gauge, Paragraph, Row, Table};

use super::acting::Prompt;
use super::keys::HELP;
use super::state::{Page, Screen};
use super::text::wrap;
use crate::output::{ago, one_line, plural};

/// Draws the page as it is at this time.
pub(super) fn draw(frame: &mut Frame<'_>, page: &Page, now: SystemTime) {
    let [title, body, keys, status] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_title(frame, page, title, now);
    match page.screen() {
        Screen::Shelves => draw_shelves(frame, page, body, now),
        Screen::Groups => draw_groups(frame, page, body, now),
        Screen::Entries(_) => draw_entries(frame, page, body, now),
        Screen::Message(_) => draw_lines(frame, &page.message_lines, page.level().cursor, body),
        Screen::Plan => {
            let lines = page.plan.as_ref().map(super::acting::PlanView::lines).unwrap_or_default();
            draw_lines(frame, &lines, page.level().cursor, body);
        }
        Screen::Run => draw_run(frame, page, body),
    }
    draw_prompt_or_keys(frame, page, keys);
    draw_status(frame, page, status);
    if page.is_help {
        draw_help(frame, body);
    }
}

/// The way to this screen on the left, the age of what is shown on the right.
fn draw_title(frame: &mut Frame<'_>, page: &Page, area: Rect, now: SystemTime) {
    let age = match page.read_at() {
        Some(at) => format!(" read {} ago", ago(Some(at), now)),
        None => " not read yet".to_owned(),
    };
    let width = u16::try_from(age.len()).unwrap_or(u16::MAX);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(area);
    let bar = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(way(page)).style(bar), left);
    frame.render_widget(Paragraph::new(age).style(bar).alignment(Alignment::Right), right);
}

fn way(page: &Page) -> String {
    let mut way = format!("redrive {}", page.broker);
    for level in &page.levels {
        match &level.screen {
            Screen::Shelves => {}
            Screen::Groups => {
                let place = match &page.listing {
                    Some(listing) => Some(listing.place.clone()),
                    None => page.shelves().nth(page.levels[0].cursor).map(|(place, _)| place),
                };
                if let Some(place) = place {
                    way.push_str(&format!(" > {} {}", one_line(&place.queue, 40), place.shelf));
                }
            }
            Screen::Entries(group) => {
                let groups = page.listing.iter().flat_map(|listing| &listing.groups);
                let place = groups.into_iter().position(|row| row.id == *group);
                way.push_str(
                    &place.map_or_else(|| " > group".to_owned(), |place| format!(" > g{}", place + 1)),
                );
            }
            Screen::Message(_) => way.push_str(" > message"),
            Screen::Plan => way.push_str(" > plan"),
            Screen::Run => way.push_str(" > run"),
        }
    }
    if !page.filter.text.is_empty() {
        way.push_str(&format!("  [{}]", one_line(&page.filter.text, 80)));
    }
    way
}

fn draw_shelves(frame: &mut Frame<'_>, page: &Page, area: Rect, now: SystemTime) {
    let rows: Vec<_> = page
        .shelves()
        .map(|(place, counted)| {
            let of_shelf = counted
                .and_then(|counted| counted.shelves.iter().find(|(count, _)| count.shelf == place.shelf));
            let (count, oldest) = match of_shelf {
                None => ("?".to_owned(), None),
                Some((count, oldest)) => (count.shown(), *oldest),
            };
            vec![one_line(&place.queue, 200), place.shelf.to_string(), count, ago(oldest, now)]
        })
        .collect();
    let widths = [Constraint::Fill(1), Constraint::Length(12), Constraint::Length(13), Constraint::Length(8)];
    let heads = ["queue", "shelf", "messages", "oldest"];
    draw_table(frame, &heads, &widths, rows.len(), page.level().cursor, area, |at| rows[at].clone());
}

fn draw_groups(frame: &mut Frame<'_>, page: &Page, area: Rect, now: SystemTime) {
    let Some(listing) = &page.listing else {
        frame.render_widget(Paragraph::new("…"), area);
        return;
    };
    if listing.groups.is_empty() {
        let text = if page.filter.text.is_empty() { "no messages" } else { "no messages match the filter" };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    // The last day needs 24 columns: a narrow terminal shows the failure instead.
    let has_trend = area.width >= 90;
    let mut widths =
        vec![Constraint::Length(4), Constraint::Length(8), Constraint::Length(6), Constraint::Length(6)];
    let mut heads = vec!["", "messages", "first", "last"];
    if has_trend {
        widths.push(Constraint::Length(24));
        heads.push("last day");
    }
    widths.push(Constraint::Fill(1));
    heads.push("failure");
    draw_table(frame, &heads, &widths, listing.groups.len(), page.level().cursor, area, |at| {
        let group = &listing.groups[at];
        let (first, last) = (ago(group.first, now), ago(group.last, now));
        let mut row = vec![format!("g{}", at + 1), group.count.to_string(), first, last];
        row.extend(has_trend.then(|| group.trend.clone()));
        row.push(group.failure.clone());
        row
    });
}

fn draw_entries(frame: &mut Frame<'_>, page: &Page, area: Rect, now: SystemTime) {
    if page.entries.is_empty() {
        frame.render_widget(Paragraph::new("no messages of this group any more"), area);
        return;
    }
    let widths = [
        Constraint::Length(1),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(if area.width >= 90 { 20 } else { 10 }),
        Constraint::Fill(1),
    ];
    let heads = ["", "shelved", "attempts", "redrives", "id", "failure"];
    draw_table(frame, &heads, &widths, page.entries.len(), page.level().cursor, area, |at| {
        let entry = &page.entries[at];
        vec![
            if page.marked.contains(&entry.handle) { "*" } else { "" }.to_owned(),
            ago(entry.shelved, now),
            entry.attempt.clone(),
            entry.redrives.clone(),
            entry.id.clone(),
            entry.failure.clone(),
        ]
    });
}

/// Draws the page of rows that contains the cursor. Other rows are not made.
fn draw_table(
    frame: &mut Frame<'_>,
    heads: &[&'static str],
    widths: &[Constraint],
    count: usize,
    cursor: usize,
    area: Rect,
    row: impl Fn(usize) -> Vec<String>,
) {
    let height = usize::from(area.height).saturating_sub(1).max(1);
    let first = cursor / height * height;
    let rows = (first..count.min(first + height)).map(|at| {
        let style = if at == cursor { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Row::new(row(at)).style(style)
    });
    let head = Row::new(heads.to_vec()).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(rows, widths).header(head), area);
}

fn draw_lines(frame: &mut Frame<'_>, lines: &[String], first: usize, area: Rect) {
    let wrapped = wrap(lines, area.width);
    let shown = wrapped.into_iter().skip(first).take(usize::from(area.height)).map(Line::from);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), area);
}

fn draw_run(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    let Some(run) = &page.run else { return };
    let [bar, rest] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let gauge = Gauge::default().ratio(run.ratio().clamp(0.0, 1.0)).gauge_style(Style::new().fg(Color::Cyan));
    frame.render_widget(gauge, bar);
    let lines = if run.progress.is_none() && run.goes_on() {
        vec!["writes the originals to the disk; nothing was changed yet".to_owned()]
    } else {
        run.lines()
    };
    draw_lines(frame, &lines, 0, rest);
}

fn draw_prompt_or_keys(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    let action = || page.plan.as_ref().map_or_else(String::new, |plan| plan.saved.plan.action().to_string());
    let count = page.plan.as_ref().map_or(0, super::acting::PlanView::count);
    let (question, typed) = match &page.prompt {
        None => {
            let style = Style::new().add_modifier(Modifier::DIM);
            frame.render_widget(Paragraph::new(keys(page)).style(style), area);
            return;
        }
        Some(Prompt::Filter(text)) => ("filter: ".to_owned(), text.as_str()),
        Some(Prompt::Reason(text)) => ("reason, for the audit log: ".to_owned(), text.as_str()),
        Some(Prompt::Count(text)) => (format!("type {count} to {} them: ", action()), text.as_str()),
        Some(Prompt::Confirm) => (format!("{} {}? [y/N] ", action(), plural(count, "message")), ""),
    };
    let typed = one_line_end(typed, usize::from(area.width).saturating_sub(question.len() + 1));
    let line = Line::from(vec![
        Span::styled(question, Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(typed),
        Span::styled(" ", Style::new().add_modifier(Modifier::REVERSED)),
    ]);
    frame.render_widget(Paragraph::new(line), area);
}

/// Returns the end of what is typed: the cursor is there.
fn one_line_end(text: &str, chars: usize) -> String {
    let text = crate::output::printable(text).replace(['\n', '\t'], " ");
    let skipped = text.chars().count().saturating_sub(chars);
    text.chars().skip(skipped).collect()
}

fn keys(page: &Page) -> &'static str {
    match page.screen() {
        Screen::Shelves => "Enter open  / filter  R count again  ? help  q quit",
        Screen::Groups => "Enter open  r redrive  p park  d discard  / filter  R read  ?",
        Screen::Entries(_) => "Space mark  Enter open  r redrive  p park  d discard  ? help",
        Screen::Message(_) => "r redrive  p park  d discard  Esc back  ? help",
        Screen::Plan => "Enter do it  + - rate  Esc back: nothing was changed",
        Screen::Run if page.run.as_ref().is_some_and(super::acting::RunView::goes_on) => {
            "p pause  c continue  a abort  + - rate  Esc look elsewhere"
        }
        Screen::Run => "Esc back  q quit",
    }
}

fn draw_status(frame: &mut Frame<'_>, page: &Page, area: Rect) {
    let mut parts = Vec::new();
    let mut style = Style::new();
    if let Some(status) = &page.status {
        parts.push(status.text.clone());
        if status.is_error {
            style = style.fg(Color::Red);
        }
    }
    // Elsewhere the keys mean other messages.
    if matches!(page.screen(), Screen::Entries(_)) && !page.marked.is_empty() {
        parts.push(format!("{} marked", page.marked.len()));
    }
    if let Some((_, what)) = &page.awaited {
        parts.push(format!("{what} …"));
    }
    if page.counting > 0 && *page.screen() == Screen::Shelves {
        parts.push("counting …".to_owned());
    }
    if let (Some(run), false) = (&page.run, *page.screen() == Screen::Run)
        && run.goes_on()
    {
        parts.push(format!("Tab: {}", run.short()));
    }
    if let (Some(listing), true) = (&page.listing, *page.screen() == Screen::Groups) {
        let not_listed = match listing.not_listed {
            0 => String::new(),
            count => format!(", {count} of them in groups that are not shown"),
        };
        parts.push(format!("{}{not_listed}", plural(listing.count, "message")));
        if listing.not_looked_into > 0 {
            parts.push(format!("the filter cannot look into {}", plural(listing.not_looked_into, "body")));
        }
    }
    if page.refusal.is_some() {
        parts.push("read-only".to_owned());
    }
    let text = one_line(&parts.join("  |  "), usize::from(area.width).saturating_sub(1));
    frame.render_widget(Paragraph::new(text).style(style), area);
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    frame.render_widget(Clear, area);
    let lines = HELP.iter().map(|(key, what)| {
        let key = Span::styled(format!("{key:<16}"), Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![key, Span::raw(*what)])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}
