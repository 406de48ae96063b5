//! What the pages share: shelves, views that were read, runs that go on.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use parking_lot::Mutex;
use redrive::Shelf;
use redrive::ops::{FinishedRun, Operator, RunControl, RunOptions, ShelfView, UncertainEntries, ViewOptions};
use tokio::sync::oneshot;

use super::auth::{Auth, Who};
use super::exposure::Exposure;
use crate::desk::undo::Undoing;
use crate::desk::{self, Desk, SavedPlan, State, within};
use crate::exit::usage;
use crate::look::shelves::explained;
use crate::output::note;
use crate::settings::{Context, Global};

/// A shelf of a queue.
pub(super) type Place = (String, Shelf);

/// The state of the server.
pub(crate) struct Web {
    pub(super) global: Global,
    pub(super) context: Context,
    pub(super) state: State,
    pub(super) desks: Vec<Desk>,
    pub(super) auth: Auth,
    pub(super) exposure: Exposure,
    views: Mutex<HashMap<Place, Arc<ShelfView>>>,
    /// Held while a shelf is read: two readers of one shelf would hide messages from each other.
    reading: HashMap<Place, tokio::sync::Mutex<()>>,
    runs: Mutex<HashMap<String, RunControl>>,
    /// Held while discarded messages are brought back.
    undoing: tokio::sync::Mutex<()>,
}

impl Web {
    pub(super) fn new(
        global: Global,
        context: Context,
        desks: Vec<Desk>,
        auth: Auth,
        exposure: Exposure,
    ) -> Result<Self> {
        let state = State::open(&global)?;
        let places = desks
            .iter()
            .flat_map(|desk| [Shelf::DeadLetter, Shelf::Parking].map(|shelf| (desk.queue.clone(), shelf)));
        let reading = places.map(|place| (place, tokio::sync::Mutex::default())).collect();
        let (views, runs, undoing) = Default::default();
        Ok(Self { global, context, state, desks, auth, exposure, views, reading, runs, undoing })
    }

    /// Returns the shelves of a queue.
    ///
    /// # Errors
    ///
    /// If it is not among those that are served.
    pub(super) fn desk(&self, queue: &str) -> Result<&Desk> {
        let found = self.desks.iter().find(|desk| desk.queue == queue);
        found.ok_or_else(|| {
            usage(format!("the queue `{queue}` is not served here: name it when `redrive serve` starts"))
        })
    }

    /// Returns the view that was read last.
    pub(super) fn last_view(&self, place: &Place) -> Option<Arc<ShelfView>> {
        self.views.lock().get(place).cloned()
    }

    /// Returns the view that was read last, or reads the shelf.
    ///
    /// # Errors
    ///
    /// If the broker cannot be read.
    pub(super) async fn view(&self, place: &Place) -> Result<Arc<ShelfView>> {
        match self.last_view(place) {
            Some(view) => Ok(view),
            None => self.read(place).await,
        }
    }

    /// Reads the shelf. Whoever asks while somebody reads gets what that one reads.
    ///
    /// # Errors
    ///
    /// If the broker cannot be read.
    pub(super) async fn read(&self, place: &Place) -> Result<Arc<ShelfView>> {
        let asked = SystemTime::now();
        let (queue, shelf) = place;
        let desk = self.desk(queue)?;
        let reading = self.reading.get(place).ok_or_else(|| anyhow!("there is no such shelf"))?;
        let _guard = reading.lock().await;
        if let Some(view) = self.last_view(place).filter(|view| view.taken_at() >= asked) {
            return Ok(view);
        }
        let view = within(self.global.timeout, async {
            Ok(ShelfView::read(&*desk.shelves, *shelf, &ViewOptions::new(), SystemTime::now()).await?)
        });
        let view = Arc::new(view.await.map_err(|error| explained(error, "read", queue, *shelf))?);
        self.views.lock().insert(place.clone(), Arc::clone(&view));
        Ok(view)
    }

    /// Forgets the views of a queue: something was done on its shelves.
    pub(super) fn forget(&self, queue: &str) {
        let mut views = self.views.lock();
        views.retain(|(of, _), _| of != queue);
    }

    /// Returns the operator of an action.
    pub(super) fn operator(&self, who: &Who, reason: &str) -> Operator {
        let mut by = crate::desk::operator(Some(reason).filter(|reason| !reason.trim().is_empty()));
        by.who.clone_from(&who.name);
        by
    }

    /// Returns the control of a run that goes on in this process.
    pub(super) fn control(&self, run: &str) -> Option<RunControl> {
        self.runs.lock().get(run).cloned()
    }

    /// Begins the run of a plan, which goes on when the request is over. Returns its id.
    ///
    /// # Errors
    ///
    /// The same as [`desk::begin()`].
    pub(super) async fn begin(
        self: &Arc<Self>,
        saved: SavedPlan,
        options: RunOptions,
        by: Operator,
    ) -> Result<String> {
        let desk = self.desk(saved.plan.queue())?.clone();
        let web = Arc::clone(self);
        self.spawn(move |started| async move {
            let begun = desk::begin(&web.state, &desk, &saved, options, by, web.global.timeout).await;
            web.follow(&desk, begun, started).await;
        })
        .await
    }

    /// Goes on with a run that was killed or has stopped.
    ///
    /// # Errors
    ///
    /// The same as [`desk::resume()`].
    pub(super) async fn resume(self: &Arc<Self>, run: String, by: Operator) -> Result<()> {
        let desk = self.desk(self.state.journals()?.read(&run)?.header.plan.queue())?.clone();
        let web = Arc::clone(self);
        let resumed = self.spawn(move |started| async move {
            let begun = desk::resume(&web.state, &desk, &run, by, UncertainEntries::Leave);
            web.follow(&desk, begun, started).await;
        });
        resumed.await.map(drop)
    }

    /// Restores the messages that a run discarded; it goes on when the request is over. A second click waits for the first one, and finds nothing
    /// left.
    ///
    /// # Errors
    ///
    /// The same as [`Undoing::run`], or why not all could be restored.
    pub(super) async fn undo(self: &Arc<Self>, run: String, by: Operator) -> Result<()> {
        let web = Arc::clone(self);
        let undone = tokio::spawn(async move {
            let _guard = web.undoing.lock().await;
            let mut undoing = Undoing::of(&web.state, &run)?;
            let place = (undoing.queue().to_owned(), undoing.shelf());
            let desk = web.desk(&place.0)?;
            // What the page reads would seem gone.
            let _reading = match web.reading.get(&place) {
                Some(reading) if undoing.in_doubt() > 0 => Some(reading.lock().await),
                _ => None,
            };
            within(web.global.timeout, undoing.look(&web.state, desk)).await?;
            if undoing.left() == 0 {
                return undoing.found().map_or(Ok(()), |found| Err(usage(found)));
            }
            let restored = undoing.run(&web.state, desk, by).await?;
            web.forget(undoing.queue());
            let refusals = restored.refusals(ToString::to_string);
            match restored.ended {
                Some(error) => Err(error),
                None if refusals.is_empty() => Ok(()),
                None => Err(anyhow!(
                    "{} restored, and these were not: {}",
                    crate::output::plural(usize::try_from(restored.done)?, "message"),
                    refusals.join("; ")
                )),
            }
        });
        undone.await.context("the messages were not all brought back")?
    }

    async fn spawn<F: Future<Output = ()> + Send + 'static>(
        &self,
        work: impl FnOnce(oneshot::Sender<Result<String>>) -> F,
    ) -> Result<String> {
        let (started, id) = oneshot::channel();
        tokio::spawn(work(started));
        id.await.unwrap_or_else(|_| Err(anyhow!("the run ended before it began")))
    }

    async fn follow(
        &self,
        desk: &Desk,
        begun: Result<desk::Begun<'_>>,
        started: oneshot::Sender<Result<String>>,
    ) {
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let id = begun.id().to_owned();
        let runs = || self.runs.lock();
        runs().insert(id.clone(), begun.control());
        // Whoever asked may be gone: the run goes on.
        let _ = started.send(Ok(id.clone()));
        let ended: Result<FinishedRun> = begun.run().await;
        if let Err(error) = ended {
            note!("the run {id} ended: {}", crate::output::printable(&format!("{error:#}")));
        }
        runs().remove(&id);
        self.forget(&desk.queue);
    }

    /// Pauses all runs, so that the process can end between two steps: they can be resumed.
    pub(super) fn pause_all(&self) -> Vec<RunControl> {
        let runs: Vec<_> = self.runs.lock().values().cloned().collect();
        runs.iter().for_each(RunControl::pause);
        runs
    }
}
