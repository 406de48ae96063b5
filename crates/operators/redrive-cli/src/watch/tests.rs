//! The page without a terminal and without a broker: keys and answers in, asks and screens out.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use redrive::ops::{Plan, PlanAction, PlanOptions, ShelfView};
use redrive::shelves::{EntryHandle, Holder, Shelved};
use redrive::{Message, Shelf, header_names as names};

use super::acting::Prompt;
use super::ask::{Answer, Ask, Counted, Place, Planning};
use super::draw::draw;
use super::state::{Page, Screen};
use crate::desk::{SavedPlan, asks};
use crate::look::shelves::ShelfCount;

/// Clears the screen, sets the title, rings, and turns the direction of text.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}evil\r\n";

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn place() -> Place {
    Place { queue: "orders".into(), shelf: Shelf::DeadLetter }
}

fn shelved(number: usize, error: &str) -> Shelved {
    let message = Message::new(format!("{{\"order\": {number}}}"))
        .with_id(format!("order-{number}"))
        .with_header("tenant", "blue")
        .with_header(names::REASON, "RetryableError")
        .with_header(names::ERROR, error)
        .with_header(names::ATTEMPT, 3_i64);
    let mut entry = Shelved::new(EntryHandle::new(Shelf::DeadLetter, number.to_string()), message);
    entry.shelved_at = Some(now() - Duration::from_secs(60));
    entry
}

/// `timeouts` messages of one group, and one of another.
fn view(timeouts: usize) -> Arc<ShelfView> {
    let entries = (0..timeouts).map(|number| shelved(number, "no answer from the stock"));
    let entries = entries.chain([shelved(timeouts, "no such customer")]);
    Arc::new(ShelfView::new(Shelf::DeadLetter, now() - Duration::from_secs(5), entries, false))
}

fn press(page: &mut Page, code: KeyCode) -> Option<Ask> {
    page.on_key(KeyEvent::new(code, KeyModifiers::NONE), now())
}

/// Presses keys one by one; returns what the last one asks for.
fn keys(page: &mut Page, keys: &str) -> Option<Ask> {
    let mut ask = None;
    for key in keys.chars() {
        ask = press(
            page,
            match key {
                '\n' => KeyCode::Enter,
                '\u{8}' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            },
        );
    }
    ask
}

fn page() -> Page {
    Page::new("shop", &["orders".into(), "invoices".into()], None)
}

/// A page with the groups of a shelf open.
fn groups(timeouts: usize) -> Page {
    let mut page = page();
    assert!(matches!(keys(&mut page, "\n"), Some(Ask::Read(read)) if read == place()));
    let named = page.on_answer(Answer::Read(place(), Ok(view(timeouts))), now());
    assert!(matches!(named, Some(Ask::NameGroups(of, groups)) if of == place() && groups.len() == 2));
    page
}

/// Answers what the page asks for with the plan that the desk would make.
fn answer_plan(page: &mut Page, ask: Option<Ask>) -> usize {
    let Some(Ask::Plan(Planning { place, view, action, handles, filter, .. })) = ask else {
        panic!("no plan is asked for: {}", screen(page, 100, 20));
    };
    let entries: Vec<_> = view.entries().iter().map(|entry| entry.entry.clone()).collect();
    let meant: Vec<_> = entries.into_iter().filter(|entry| handles.contains(&entry.handle)).collect();
    let plan = Plan::new(action, place.shelf, &meant, &PlanOptions::new(&place.queue), now());
    let saved = SavedPlan { broker: "shop".into(), filter, is_final: false, not_read: None, plan };
    page.on_answer(Answer::Planned(place, Ok(Arc::new(saved))), now());
    handles.len()
}

/// Draws the page.
fn screen(page: &mut Page, width: u16, height: u16) -> String {
    page.size = (width, height);
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, page, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let rows = (0..height).map(|y| {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        row.trim_end().to_owned()
    });
    let text = rows.collect::<Vec<_>>().join("\n");
    assert!(!text.chars().any(|c| c != '\n' && c.is_control()) && !text.contains('\u{202e}'), "{text:?}");
    text
}

#[track_caller]
fn shows(page: &mut Page, wanted: &[&str]) {
    let text = screen(page, 100, 20);
    for wanted in wanted {
        assert!(text.contains(wanted), "`{wanted}` is not shown:\n{text}");
    }
}

#[test]
fn enter_goes_down_to_a_message_and_esc_back() {
    let mut page = groups(3);
    shows(
        &mut page,
        &["orders dead-letter", "read 5s ago", "g1   3", "no answer from the stock", "4 messages"],
    );
    keys(&mut page, "\n");
    shows(&mut page, &["> g1", "order-0", "Space mark"]);
    keys(&mut page, "j\n");
    shows(&mut page, &["message", "attempts  3", "header    tenant: blue", "\"order\": 1"]);
    for wanted in [2, 1, 0, 0] {
        press(&mut page, KeyCode::Esc);
        assert_eq!(page.levels.len() - 1, wanted);
    }
}

#[test]
fn counts_are_asked_for_again_only_while_they_are_shown() {
    let mut page = page();
    assert!(matches!(page.tick(now()), Some(Ask::Count)));
    let later = now() + Duration::from_secs(60);
    assert!(page.tick(later).is_none(), "the first ones are awaited");
    let shelves = vec![
        (ShelfCount { shelf: Shelf::DeadLetter, count: Some(7), holder: Some(Holder::Lease) }, Some(now())),
        (ShelfCount { shelf: Shelf::Parking, count: None, holder: None }, None),
    ];
    page.on_answer(Answer::Counted("orders".into(), Ok(Counted { at: now(), shelves })), now());
    page.on_answer(Answer::Counted("invoices".into(), Err(format!("no route {HOSTILE}"))), now());
    shows(&mut page, &["dead-letter  at least 7", "no such queue", "no route \\u{1b}[2J", "read 0s ago"]);
    assert!(page.tick(now() + Duration::from_secs(9)).is_none());
    assert!(matches!(page.tick(later), Some(Ask::Count)));
    for queue in ["orders", "invoices"] {
        page.on_answer(Answer::Counted(queue.into(), Err("away".into())), later);
    }
    keys(&mut page, "\n");
    assert!(page.tick(later + Duration::from_secs(60)).is_none());
}

#[test]
fn a_wrong_filter_shows_its_error_and_keeps_the_old_one() {
    let mut page = groups(3);
    keys(&mut page, "/error~customer\n");
    shows(&mut page, &["[error~customer]", "no such customer", "1 message"]);
    keys(&mut page, "/ age>soon\n");
    assert!(page.status.as_ref().is_some_and(|status| status.is_error && status.text.contains("`soon`")));
    shows(&mut page, &["filter: error~customer age>soon", "[error~customer]", "1 message"]);
    press(&mut page, KeyCode::Esc);
    assert_eq!(page.filter.text, "error~customer");
    assert!(page.prompt.is_none());
}

#[test]
fn a_group_is_redriven_after_a_yes() {
    let mut page = groups(3);
    let ask = keys(&mut page, "r");
    assert_eq!(answer_plan(&mut page, ask), 3);
    shows(&mut page, &["redrive 3 messages", "to the consumer of `orders`", "at most 10 a second"]);
    assert!(keys(&mut page, "+\n").is_none());
    shows(&mut page, &["redrive 3 messages? [y/N]", "at most 20 a second"]);
    assert!(keys(&mut page, "n").is_none(), "not agreed");
    assert!(matches!(keys(&mut page, "\ny"), Some(Ask::Begin { rate: 20, reason: None, .. })));
    assert_eq!(*page.screen(), Screen::Run);
    assert!(keys(&mut page, "q").is_none() && !matches!(keys(&mut page, "a"), Some(Ask::Control(_))));
}

#[test]
fn many_messages_need_a_reason_and_their_count() {
    for action in ["r", "p", "d"] {
        let mut page = groups(101);
        let ask = keys(&mut page, action);
        answer_plan(&mut page, ask);
        assert!(keys(&mut page, "\n  \n").is_none());
        assert!(matches!(page.prompt, Some(Prompt::Reason(_))), "a blank reason is none");
        assert!(keys(&mut page, "stock is back\n").is_none());
        shows(&mut page, &["type 101 to "]);
        assert!(keys(&mut page, "100\n").is_none());
        shows(&mut page, &["does not match"]);
        let ask = keys(&mut page, "\nwhy\n101\n");
        assert!(matches!(ask, Some(Ask::Begin { reason: Some(reason), .. }) if reason == "why"), "{action}");
    }
}

#[test]
fn a_discard_of_few_needs_its_count_and_no_yes() {
    let mut page = groups(2);
    let ask = keys(&mut page, "d");
    answer_plan(&mut page, ask);
    assert!(keys(&mut page, "\ny\n").is_none());
    assert!(matches!(keys(&mut page, "\n2\n"), Some(Ask::Begin { .. })));
}

#[test]
fn marked_entries_count_before_the_group_and_are_forgotten_outside() {
    let mut page = groups(4);
    keys(&mut page, "\n j ");
    assert_eq!(page.marked.len(), 2);
    shows(&mut page, &["2 marked"]);
    let ask = keys(&mut page, "p");
    assert!(matches!(&ask, Some(Ask::Plan(plan)) if plan.is_marked && plan.action == PlanAction::Park));
    assert_eq!(answer_plan(&mut page, ask), 2);
    press(&mut page, KeyCode::Esc);
    press(&mut page, KeyCode::Esc);
    assert!(page.marked.is_empty());
    let ask = keys(&mut page, "p");
    assert_eq!(answer_plan(&mut page, ask), 4);
}

#[test]
fn the_cursor_stays_on_its_group_when_another_becomes_the_largest() {
    let mut page = groups(3);
    keys(&mut page, "j");
    assert!(matches!(keys(&mut page, "R"), Some(Ask::Read(_))));
    assert!(keys(&mut page, "d").is_none(), "not while the shelf is read");
    let entries = (0..9).map(|number| shelved(100 + number, "no such customer"));
    let view = ShelfView::new(
        Shelf::DeadLetter,
        now(),
        entries.chain([shelved(1, "no answer from the stock")]),
        false,
    );
    page.on_answer(Answer::Read(place(), Ok(Arc::new(view))), now());
    let ask = keys(&mut page, "d");
    assert_eq!(answer_plan(&mut page, ask), 9);
}

#[test]
fn a_page_that_may_not_act_says_so() {
    let mut page = groups(3);
    page.refusal = Some("--read-only: this command would change something".into());
    for key in ["r", "p", "d"] {
        assert!(keys(&mut page, key).is_none());
        shows(&mut page, &["--read-only: this command", "read-only"]);
    }
}

#[test]
fn an_error_of_the_broker_is_shown_and_late_answers_are_not() {
    let mut page = groups(3);
    keys(&mut page, "R");
    page.on_answer(Answer::Read(place(), Err("the broker has gone".into())), now());
    shows(&mut page, &["the broker has gone", "g1   3"]);
    keys(&mut page, "R");
    press(&mut page, KeyCode::Esc);
    assert!(page.on_answer(Answer::Read(place(), Ok(view(9))), now()).is_none());
}

#[test]
fn a_run_is_controlled_and_ctrl_c_ends_it_after_its_step() {
    let mut page = groups(3);
    let ask = keys(&mut page, "r");
    answer_plan(&mut page, ask);
    keys(&mut page, "\ny");
    page.on_answer(Answer::Begun { id: "r1".into(), originals: Some("3 in /tmp/r1".into()) }, now());
    let control = |page: &mut Page, key| match keys(page, key) {
        Some(Ask::Control(ask)) => ask,
        _ => panic!("{key} controls nothing"),
    };
    assert_eq!(control(&mut page, "p"), asks::Ask::Pause);
    assert_eq!(control(&mut page, "c"), asks::Ask::Resume);
    assert_eq!(control(&mut page, "+"), asks::Ask::Rate { per_second: 20 });
    assert_eq!(control(&mut page, "a"), asks::Ask::Abort);
    press(&mut page, KeyCode::Esc);
    assert!(keys(&mut page, "d").is_none(), "one run at a time");
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(matches!(page.on_key(interrupt, now()), Some(Ask::Control(asks::Ask::Abort))));
    assert!(matches!(page.on_key(interrupt, now()), Some(Ask::Quit)));
    let ended = page.on_answer(Answer::Ended(Err("the disk is full".into())), now());
    assert!(matches!(ended, Some(Ask::Read(_))), "the shelf has changed");
    press(&mut page, KeyCode::Tab);
    shows(&mut page, &["the disk is full", "originals 3 in /tmp/r1", "run       r1"]);
    assert!(matches!(keys(&mut page, "q"), Some(Ask::Quit)));
}

#[test]
fn nothing_of_a_message_steers_the_terminal_however_small_it_is() {
    let mut page = Page::new(HOSTILE, &[HOSTILE.into()], None);
    let place = Place { queue: HOSTILE.into(), shelf: Shelf::DeadLetter };
    let mut entry = shelved(1, HOSTILE);
    entry.message = Message::new(HOSTILE).with_id(HOSTILE).with_header(HOSTILE, HOSTILE);
    entry.broker_reason = Some(HOSTILE.into());
    entry.broker_description = Some(HOSTILE.into());
    let view = ShelfView::new(Shelf::DeadLetter, now(), [entry], false);
    let sizes = [(100, 20), (60, 15), (20, 4), (3, 3), (1, 1)];
    let seen = |page: &mut Page| sizes.iter().for_each(|(width, height)| drop(screen(page, *width, *height)));
    seen(&mut page);
    keys(&mut page, "\n");
    page.on_answer(Answer::Read(place, Ok(Arc::new(view))), now());
    seen(&mut page);
    keys(&mut page, "\n");
    seen(&mut page);
    keys(&mut page, "\n");
    seen(&mut page);
    shows(&mut page, &["\\u{1b}[2J"]);
    let ask = keys(&mut page, "r");
    answer_plan(&mut page, ask);
    seen(&mut page);
    keys(&mut page, "?");
    seen(&mut page);
    page.on_answer(Answer::Failed(HOSTILE.into()), now());
    seen(&mut page);
}

#[test]
fn a_small_terminal_shows_the_age_the_failure_and_the_keys() {
    let mut page = groups(40);
    page.filter.text = "error~\"a very long filter that needs more room than there is\"".into();
    let text = screen(&mut page, 60, 15);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 15);
    assert!(lines[0].ends_with("read 5s ago"), "{text}");
    assert!(lines[2].starts_with("g1   40") && lines[2].contains("RetryableError: no answer"), "{text}");
    assert!(lines[13].starts_with("Enter open  r redrive"), "{text}");
    keys(&mut page, "\nG");
    let text = screen(&mut page, 60, 15);
    assert!(text.contains("order-39"), "the cursor is on the page:\n{text}");
    keys(&mut page, "?");
    let text = screen(&mut page, 60, 15);
    assert!(text.contains("Enter") && text.contains("quit"), "{text}");
}
