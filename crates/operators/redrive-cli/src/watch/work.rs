//! Does what the page asks for, in tasks. Acting goes through the desk only.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Result;
use redrive::ops::{FinishedRun, GroupId, RunControl, RunOptions, RunProgress, ShelfView, ViewOptions};
use tokio::sync::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::ask::{Answer, Ask, Counted, Place, Planning};
use crate::desk::plan::Wanted;
use crate::desk::{self, Desk, SavedPlan, State, asks, connect, operator, within};
use crate::exit::chain;
use crate::look::shelves::{counts, explained, oldest};
use crate::settings::{Context, Global};

/// How often a message may be redriven, as on the command line.
const MAX_REDRIVES: u32 = 3;

/// What a task reports.
pub(super) enum Report {
    Answer(Answer),
    /// The control of a run that has begun.
    Control(RunControl),
}

/// The connections, which are made when they are needed.
struct Desks {
    global: Global,
    context: Context,
    open: Mutex<HashMap<String, Desk>>,
}

/// Does the work of a page.
pub(super) struct Worker {
    desks: Arc<Desks>,
    queues: Vec<String>,
    reports: UnboundedSender<Report>,
    /// The tasks that are at work. A panic of one ends the page.
    pub(super) tasks: JoinSet<()>,
    control: Option<RunControl>,
    /// An abort that was asked for before the run began.
    is_aborted: bool,
}

impl Worker {
    pub(super) fn new(
        global: &Global,
        context: Context,
        queues: Vec<String>,
        reports: UnboundedSender<Report>,
    ) -> Self {
        let desks = Desks { global: global.clone(), context, open: Mutex::new(HashMap::new()) };
        let (desks, tasks) = (Arc::new(desks), JoinSet::new());
        Self { desks, queues, reports, tasks, control: None, is_aborted: false }
    }

    /// Begins what is asked. [`Ask::Quit`] is for the loop.
    pub(super) fn work(&mut self, ask: Ask) {
        match ask {
            Ask::Quit => {}
            Ask::Count => {
                for queue in self.queues.clone() {
                    let desks = self.desks.clone();
                    self.spawn(async move {
                        let counted = desks.count(&queue).await.map_err(|error| chain(&error));
                        Answer::Counted(queue, counted)
                    });
                }
            }
            Ask::Read(place) => {
                let desks = self.desks.clone();
                self.spawn(async move {
                    let read = desks.read(&place).await.map_err(|error| chain(&error));
                    Answer::Read(place, read)
                });
            }
            Ask::NameGroups(place, groups) => {
                if let Err(error) = self.desks.name_groups(&place, groups) {
                    self.answer(Answer::Failed(chain(&error)));
                }
            }
            Ask::Plan(planning) => {
                let desks = self.desks.clone();
                self.spawn(async move {
                    let planned = desks.plan(&planning).await.map_err(|error| chain(&error));
                    Answer::Planned(planning.place, planned.map(Arc::new))
                });
            }
            Ask::Begin { saved, rate, reason } => {
                (self.control, self.is_aborted) = (None, false);
                let (desks, reports) = (self.desks.clone(), self.reports.clone());
                self.spawn(async move {
                    let ended = desks.run(&saved, rate, reason.as_deref(), &reports).await;
                    Answer::Ended(ended.map_err(|error| chain(&error)))
                });
            }
            Ask::Control(ask) => match &self.control {
                Some(control) => ask.of(control),
                None => self.is_aborted |= ask == asks::Ask::Abort,
            },
        }
    }

    /// Takes the control of a run.
    pub(super) fn controls(&mut self, control: RunControl) {
        if self.is_aborted {
            control.abort();
        }
        self.control = Some(control);
    }

    /// Returns how far the run is, if one goes on.
    pub(super) fn progress(&self) -> Option<RunProgress> {
        self.control.as_ref().map(RunControl::progress)
    }

    fn spawn(&mut self, work: impl Future<Output = Answer> + Send + 'static) {
        let reports = self.reports.clone();
        self.tasks.spawn(async move {
            // Nobody listens after the end of the page.
            let _ = reports.send(Report::Answer(work.await));
        });
    }

    fn answer(&self, answer: Answer) {
        let _ = self.reports.send(Report::Answer(answer));
    }
}

impl Desks {
    /// Returns the desk of a queue; connects if there is none.
    async fn desk(&self, queue: &str) -> Result<Desk> {
        if let Some(desk) = self.open.lock().await.get(queue) {
            return Ok(desk.clone());
        }
        // Not under the lock: a queue that does not answer holds up no other.
        let desk = connect(&self.global, &self.context, queue).await?;
        Ok(self.open.lock().await.entry(queue.to_owned()).or_insert(desk).clone())
    }

    async fn count(&self, queue: &str) -> Result<Counted> {
        let desk = self.desk(queue).await?;
        let at = SystemTime::now();
        let mut shelves = Vec::new();
        for counted in counts(&self.global, &desk).await? {
            let oldest = oldest(&self.global, &desk, &counted).await;
            let oldest = oldest.map_err(|error| explained(error, "read", queue, counted.shelf))?;
            shelves.push((counted, oldest));
        }
        Ok(Counted { at, shelves })
    }

    async fn read(&self, place: &Place) -> Result<Arc<ShelfView>> {
        let desk = self.desk(&place.queue).await?;
        let options = ViewOptions::new();
        let read =
            async { Ok(ShelfView::read(&*desk.shelves, place.shelf, &options, SystemTime::now()).await?) };
        let view = within(self.global.timeout, read).await;
        Ok(Arc::new(view.map_err(|error| explained(error, "read", &place.queue, place.shelf))?))
    }

    fn name_groups(&self, place: &Place, groups: Vec<GroupId>) -> Result<()> {
        let state = State::open(&self.global)?;
        state.list_groups(self.context.label(), &place.queue, place.shelf, groups.into_iter())
    }

    async fn plan(&self, planning: &Planning) -> Result<SavedPlan> {
        let desk = self.desk(&planning.place.queue).await?;
        let meant: HashSet<_> = planning.handles.iter().collect();
        let entries = planning.view.entries();
        let selected =
            entries.iter().map(|entry| &entry.entry).filter(|entry| meant.contains(&entry.handle)).collect();
        let wanted = Wanted {
            action: planning.action,
            selected,
            handles: if planning.is_marked { &planning.handles } else { &[] },
            filter: &planning.filter,
            max_redrives: MAX_REDRIVES,
            of_unknown_queue: false,
        };
        desk::make(&State::open(&self.global)?, &desk, &planning.view, &wanted)
    }

    async fn run(
        &self,
        saved: &SavedPlan,
        rate: u32,
        reason: Option<&str>,
        reports: &UnboundedSender<Report>,
    ) -> Result<FinishedRun> {
        // Whatever the page decided: nothing acts where nothing may.
        self.global.may_act(&self.context)?;
        let desk = self.desk(saved.plan.queue()).await?;
        let (state, options) = (State::open(&self.global)?, RunOptions::new().rate(rate));
        let begun = desk::begin(&state, &desk, saved, options, operator(reason), self.global.timeout).await?;
        let originals =
            begun.originals.as_ref().map(|(path, count)| format!("{count} in {}", path.display()));
        let _ = reports.send(Report::Control(begun.control()));
        let _ = reports.send(Report::Answer(Answer::Begun { id: begun.id().to_owned(), originals }));
        begun.run().await
    }
}
