//! `redrive watch`: a page in the terminal for the person on call.
//!
//! | module | contains |
//! |---|---|
//! | [`state`] | the page as a value, and what answers do to it |
//! | [`keys`] | what keys do to it |
//! | [`listing`] | a shelf through a filter: groups and entries |
//! | [`acting`] | a plan, its questions, its run |
//! | [`ask`] | what the page asks for, and what it is answered |
//! | [`text`] | texts of messages, cut to the terminal |
//! | [`draw`] | draws it |
//! | [`work`] | does what it asks for, in tasks |

mod acting;
mod ask;
mod draw;
mod keys;
mod listing;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod work;

use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use self::ask::{Answer, Ask};
use self::state::Page;
use self::work::{Report, Worker};
use crate::args::{Global, Queues};
use crate::desk::named_queues;
use crate::exit::{EndSignals, Exit, usage};
use crate::output::note;

/// How often ages and the progress of a run are drawn again.
const TICK: Duration = Duration::from_millis(250);

/// Shows the page until its end.
///
/// # Errors
///
/// If there is no terminal, no broker or no queue, or the terminal cannot be used. An error of the broker is shown on the page.
pub(crate) async fn run(global: &Global, command: Queues) -> Result<Exit> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(usage("`redrive watch` needs a terminal: `redrive shelves` and `redrive groups` print"));
    }
    let context = global.broker()?;
    let queues = named_queues(global, &context, &command.queues).await?;
    let refusal = global.may_act(&context).err().map(|error| error.to_string());
    let page = Page::new(context.label(), &queues, refusal);
    let (reports, inbox) = mpsc::unbounded_channel();
    let worker = Worker::new(global, context, queues, reports);
    // In the page's mode of the terminal, Ctrl-C is a key.
    let end = EndSignals::claim();
    // From here on the terminal is the page's; a panic restores it too.
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let shown = show(&mut terminal, page, worker, inbox, end).await;
    ratatui::restore();
    if let Some(run) = shown? {
        note!("ended in the middle of a step: continue with `redrive runs resume {run}`");
        return Ok(Exit::Incomplete);
    }
    Ok(Exit::Ok)
}

/// Returns the run that was left in the middle, if there is one.
async fn show(
    terminal: &mut DefaultTerminal,
    mut page: Page,
    mut worker: Worker,
    mut inbox: UnboundedReceiver<Report>,
    mut end: EndSignals,
) -> Result<Option<String>> {
    let (events, mut typed) = mpsc::unbounded_channel();
    // Ends with its channel. A thread of its own: the runtime would wait for a blocking task.
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_events(&events))?;
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let now = SystemTime::now();
        let size = terminal.size()?;
        page.size = (size.width, size.height);
        terminal.draw(|frame| draw::draw(frame, &page, now))?;
        let ask = tokio::select! {
            event = typed.recv() => match event.context("the terminal has gone")?? {
                Event::Key(key) => page.on_key(key, SystemTime::now()),
                _ => None,
            },
            () = end.next() => Some(Ask::Quit),
            Some(report) = inbox.recv() => match report {
                Report::Answer(answer) => page.on_answer(answer, SystemTime::now()),
                Report::Control(control) => {
                    worker.controls(control);
                    None
                }
            },
            Some(ended) = worker.tasks.join_next() => {
                ended.context("a part of the page has failed")?;
                None
            }
            _ = tick.tick() => {
                let goes_on = page.run.as_ref().is_some_and(acting::RunView::goes_on);
                if let Some(progress) = worker.progress().filter(|_| goes_on) {
                    page.on_answer(Answer::Progress(progress), SystemTime::now());
                }
                page.tick(SystemTime::now())
            }
        };
        match ask {
            Some(Ask::Quit) => return Ok(page.run.filter(acting::RunView::goes_on).and_then(|run| run.id)),
            Some(ask) => worker.work(ask),
            None => {}
        }
    }
}

/// Passes on what the terminal reports, until nobody listens.
fn read_events(events: &UnboundedSender<std::io::Result<Event>>) {
    loop {
        // Not for ever: the thread is to see that the page has ended.
        let event = match event::poll(TICK) {
            Ok(false) if events.is_closed() => return,
            Ok(false) => continue,
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let has_failed = event.is_err();
        if events.send(event).is_err() || has_failed {
            return;
        }
    }
}
