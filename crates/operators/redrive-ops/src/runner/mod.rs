//! Runs a plan on a broker: does what the run says, and keeps the journal.
//!
//! | module | does |
//! |---|---|
//! | [`compare`] | compares the plan with the shelf |
//! | [`act`] | one step on a shelf |
//! | [`turn`] | waits for a shelf that others have |
//! | [`fates`] | reads what became of messages that were redriven |
//! | [`control`] | controls a run from elsewhere |

mod act;
mod compare;
mod control;
mod fates;
mod turn;

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use redrive_core::shelves::{EntryHandle, Leased, Reported, WorkQueue};
use redrive_core::{Shelves, TransportError, TransportErrorKind, own_file};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::Instant;
use tracing::{debug, info, warn};

pub use self::control::{Activity, RunControl, RunProgress};
pub use self::fates::{Fates, LookForFates, ShelfFates};
use crate::journal::{
    Journal, JournalError, JournalFolder, JournalHeader, Operator, Replay, ShelfLock, UncertainEntries,
};
use crate::plan::{PlanAction, PlannedEntry};
use crate::run::{EntryState, Event, Fate, FateSource, Run, RunReport, SeenFate, Step, StopReason};

/// Runs a plan on a broker.
///
/// It compares the plan with the shelf first: entries that vanished or changed are not touched. Then it does what the
/// [`Run`] says. What it intends is on the disk before each step, and what happened after it. Other runs of the same
/// [folder](JournalFolder) cannot work on the shelf meanwhile.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redrive_core::BoxError> {
/// use std::time::SystemTime;
///
/// use redrive_consumer::Consumer;
/// use redrive_core::{Message, NoRetry, Shelf, Shelves, millis};
/// use redrive_memory::MemoryBroker;
/// use redrive_ops::{JournalFolder, JournalHeader, Operator, Plan, PlanAction, PlanOptions, RunOptions, Runner};
///
/// # async fn ship() -> Result<(), String> { Err("no stock".to_owned()) }
/// # let broker = MemoryBroker::new();
/// # for order in 0..8 { broker.publish("orders", Message::new(order.to_string()))?; }
/// # let done = async { while broker.depth("orders") > 0 { tokio::time::sleep(millis(1)).await } };
/// # let consumer = Consumer::new(broker.transport("orders")).with_dead_letter_backoff(NoRetry).handler(ship);
/// # consumer.run_until(done).await?;
/// // Eight orders failed. What caused it is repaired.
/// let shelves = broker.shelves("orders");
/// let entries = shelves.browse(Shelf::DeadLetter, None, 100).await?.entries;
/// let now = SystemTime::now();
/// let plan = Plan::new(PlanAction::Redrive, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"), now);
/// println!("{} entries, {:?}", plan.entries().len(), RunOptions::new().duration(&plan));
///
/// # let temporary = tempfile::tempdir()?;
/// # let path = temporary.path().join("runs");
/// let folder = JournalFolder::open(path)?;
/// let ada = Operator::new("ada", "laptop-7", now).reason("the stock is counted again");
/// // No consumer runs in this example: the run would wait for one.
/// let options = RunOptions::new().rate(50).ignore_work_queue(true);
/// let header = JournalHeader::new("memory", ada, options, plan);
/// let finished = Runner::begin(&shelves, &folder, header)?.run().await?;
/// assert_eq!((finished.stopped, finished.report.done), (None, 8));
/// # Ok(()) }
/// ```
pub struct Runner<'a> {
    shelves: &'a dyn Shelves,
    /// The same shelves, for work in steps that keeps other machines out.
    leased: Option<Leased>,
    /// The same shelves, if consumers report what they handled.
    reported: Option<Reported>,
    run: Run,
    journal: Journal,
    id: String,
    /// What a process that died left open; resolved with the first look at the shelf.
    replay: Option<(Replay, UncertainEntries)>,
    fates: Box<dyn Fates + 'a>,
    control: RunControl,
    events: UnboundedReceiver<Event>,
    began: Instant,
    originals: Option<Originals>,
    _lock: ShelfLock,
}

/// The file of the originals, and whose originals it has.
struct Originals {
    path: PathBuf,
    file: File,
    entries: HashSet<EntryHandle>,
}

impl<'a> Runner<'a> {
    /// Begins a run: writes the header of its journal, and locks the shelf. Nothing is sent before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// [`JournalError::Locked`] if another run works on the shelf; or if the journal cannot be written.
    pub fn begin(
        shelves: &'a dyn Shelves,
        folder: &JournalFolder,
        header: JournalHeader,
    ) -> Result<Self, JournalError> {
        let (journal, lock) = folder.begin(header.clone())?;
        let run = Run::new(header.plan, header.options);
        Ok(Self::new(shelves, run, journal, header.run, lock))
    }

    /// Goes on with a run that was killed or stopped.
    ///
    /// Entries whose result is in the journal are certain, and not sent again. Of the others, those that left the shelf were sent;
    /// those that are still there are uncertain.
    ///
    /// # Errors
    ///
    /// The same as [`JournalFolder::resume`].
    pub fn resume(
        shelves: &'a dyn Shelves,
        folder: &JournalFolder,
        run: &str,
        by: Operator,
        uncertain: UncertainEntries,
    ) -> Result<Self, JournalError> {
        let (journal, replay, lock) = folder.resume(run, by)?;
        let rest = replay.clone().into_run(uncertain);
        let mut runner = Self::new(shelves, rest, journal, run.to_owned(), lock);
        runner.replay = Some((replay, uncertain));
        Ok(runner)
    }

    fn new(shelves: &'a dyn Shelves, run: Run, journal: Journal, id: String, lock: ShelfLock) -> Self {
        let (sender, events) = mpsc::unbounded_channel();
        let progress = RunProgress { report: run.report(), rate: run.rate(), activity: Activity::Checking };
        let fates = Box::new(ShelfFates::new(shelves, run.plan()));
        Self {
            shelves,
            leased: None,
            reported: None,
            run,
            journal,
            id,
            replay: None,
            fates,
            control: RunControl { events: sender, progress: Arc::new(Mutex::new(progress)) },
            events,
            began: Instant::now(),
            originals: None,
            _lock: lock,
        }
    }

    /// Sets who tells the fate of messages. Default: the [shelves](ShelfFates).
    #[must_use]
    pub fn fates(mut self, fates: impl Fates + 'a) -> Self {
        self.fates = Box::new(fates);
        self
    }

    /// Sets the lease of the shelf, if it was taken before the run. Default: the run takes it, and has it until its end.
    #[must_use]
    pub fn leased(mut self, leased: Leased) -> Self {
        self.leased = Some(leased);
        self
    }

    /// Sets the file that has the originals of these entries. No other entry of the plan is touched: it counts as not found. If the file
    /// is deleted or replaced, the next step is not done. Default: there are no originals, and nobody misses them.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened.
    pub fn originals(
        mut self,
        path: impl Into<PathBuf>,
        entries: HashSet<EntryHandle>,
    ) -> Result<Self, JournalError> {
        let path = path.into();
        let file =
            File::open(&path).map_err(|error| JournalError::file("open the originals", &path, error))?;
        self.originals = Some(Originals { path, file, entries });
        Ok(self)
    }

    /// Returns the id of the run.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the control of the run.
    #[must_use]
    pub fn control(&self) -> RunControl {
        self.control.clone()
    }

    /// Runs to the end. Each write to the journal blocks the thread until the disk has it.
    ///
    /// If the broker cannot be used, the run [stops](StopReason::Broker) and can be [resumed](Self::resume).
    ///
    /// # Errors
    ///
    /// If the journal cannot be written: the step that was intended is not done, and the run can be resumed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is as if the process was killed: the run can be resumed.
    pub async fn run(mut self) -> Result<FinishedRun, JournalError> {
        self.began = Instant::now();
        let ended = self.run_to_end().await;
        if let Some(leased) = self.leased.take() {
            leased.lease.end().await;
        }
        self.end(ended?)
    }

    /// Returns why the run ended early.
    async fn run_to_end(&mut self) -> Result<Option<StopReason>, JournalError> {
        if let Err(error) = self.prepare().await? {
            self.run.on(Event::Broken(error.to_string()), self.now());
        }
        loop {
            while let Ok(event) = self.events.try_recv() {
                self.run.on(event, self.now());
            }
            match self.run.next(self.now()) {
                Step::Send { action, handles } => self.send(action, handles).await?,
                Step::Look => self.look().await?,
                Step::Wait { until, why } => self.wait(until, why.into()).await,
                Step::Paused(why) => {
                    if let Some(leased) = &self.leased {
                        leased.lease.pause().await;
                    }
                    // Whoever waits for the pause may end the process.
                    self.show(Activity::Paused(why));
                    self.wait_for_event().await;
                }
                Step::Done => return Ok(None),
                Step::Stopped(why) => return Ok(Some(why)),
            }
        }
    }

    /// Keeps others from the shelf, compares the plan with it, and asks for reports.
    async fn prepare(&mut self) -> Result<Result<(), TransportError>, JournalError> {
        if self.leased.is_none() {
            match self.shelves.lease(self.run.plan().shelf()).await {
                Ok(leased) => self.leased = leased,
                Err(error) => return Ok(Err(error)),
            }
        }
        if let Err(error) = self.compare().await? {
            return Ok(Err(error));
        }
        self.reported = self.working().reported().await.unwrap_or_else(|error| {
            warn!(run = self.id, %error, "consumers cannot report handled messages to this run: it sees only failures, on the shelves");
            None
        });
        Ok(Ok(()))
    }

    async fn send(&mut self, action: PlanAction, handles: Vec<EntryHandle>) -> Result<(), JournalError> {
        self.show(Activity::Sending);
        self.check_originals()?;
        self.journal.intent(action, &handles, SystemTime::now())?;
        let began = Instant::now();
        let (states, stopped) = loop {
            let shelf = self.run.plan().shelf();
            let (states, stopped) = act::act(self.sending(), shelf, action, handles.clone()).await;
            let Some(error) = stopped else { break (states, None) };
            // The rest of a step that was done in part has its turn in the next one.
            if error.kind() == TransportErrorKind::Busy
                && states.iter().any(|(_, state)| *state != EntryState::NotTried)
            {
                break (states, None);
            }
            if let ControlFlow::Break(stopped) = self.may_try_again(error, began).await {
                break (states, stopped);
            }
            self.check_originals()?;
        };
        self.run.on(Event::Results(states.clone()), self.now());
        if let Some(error) = stopped {
            self.run.on(Event::Broken(error.to_string()), self.now());
        }
        self.journal.results(&states)
    }

    async fn look(&mut self) -> Result<(), JournalError> {
        self.show(Activity::Looking);
        // Nothing more is sent: the last look is to see all of the shelf.
        if self.run.report().left == 0
            && let Some(leased) = &self.leased
        {
            leased.lease.end().await;
        }
        let began = Instant::now();
        let seen = loop {
            let error = match self.seen().await {
                Ok(seen) => break Ok(seen),
                Err(error) => error,
            };
            match self.may_try_again(error, began).await {
                ControlFlow::Continue(()) => {}
                ControlFlow::Break(Some(error)) => break Err(error),
                ControlFlow::Break(None) => {
                    self.run.on(Event::NotLooked, self.now());
                    return Ok(());
                }
            }
        };
        match seen {
            Ok((fates, work_queue)) => {
                self.journal.fates(&fates)?;
                for SeenFate { handle, fate, .. } in fates {
                    self.run.on(Event::Fate(handle, fate), self.now());
                }
                self.run.on(Event::WorkQueue(work_queue), self.now());
            }
            Err(error) => self.run.on(Event::Broken(error.to_string()), self.now()),
        }
        self.run.on(Event::Looked, self.now());
        Ok(())
    }

    async fn seen(&mut self) -> Result<(Vec<SeenFate>, WorkQueue), TransportError> {
        let awaited: Vec<_> = self.run.awaited().collect();
        let (left_shelf, parked) = self.run.left_shelf();
        let held = self.leased.as_ref().map_or(0, |leased| leased.lease.held());
        let look = LookForFates::new(&awaited, left_shelf, parked).held(held);
        let mut fates = self.fates.look(look).await?;
        let awaited: HashSet<_> = awaited.iter().map(|entry| entry.handle.clone()).collect();
        let handled = self.handled().await.into_iter().filter(|handle| awaited.contains(handle));
        fates.extend(handled.map(|handle| SeenFate::new(handle, Fate::Done, FateSource::Consumer)));
        let work_queue = match self.shelves.work_queue().await {
            // Rights on the shelves are enough for a run.
            Err(error) if error.kind() == TransportErrorKind::Unauthorized => {
                debug!(run = self.id, %error, "the work queue cannot be watched: the run does not wait for it");
                WorkQueue::default()
            }
            seen => seen?,
        };
        Ok((fates, work_queue))
    }

    /// Returns what consumers reported. A run goes on without reports.
    async fn handled(&mut self) -> Vec<EntryHandle> {
        let Some(reported) = &mut self.reported else { return Vec::new() };
        reported.reports.take().await.unwrap_or_else(|error| {
            warn!(run = self.id, %error, "consumers no longer report handled messages to this run: it sees only failures, on the shelves");
            self.reported = None;
            Vec::new()
        })
    }

    fn working(&self) -> &dyn Shelves {
        self.leased.as_ref().map_or(self.shelves, |leased| &*leased.shelves)
    }

    fn sending(&self) -> &dyn Shelves {
        self.reported.as_ref().map_or_else(|| self.working(), |reported| &*reported.shelves)
    }

    fn check_originals(&self) -> Result<(), JournalError> {
        match &self.originals {
            Some(Originals { path, file, .. }) if !own_file::is_at(file, path) => {
                Err(JournalError::deleted(path))
            }
            _ => Ok(()),
        }
    }

    async fn wait(&mut self, until: Duration, why: Activity) {
        self.show(why);
        tokio::select! {
            () = tokio::time::sleep(until.saturating_sub(self.now())) => {}
            () = self.wait_for_event() => {}
        }
    }

    /// Cancel safe, like the channel.
    async fn wait_for_event(&mut self) {
        // Never `None`: the runner has a sender itself.
        if let Some(event) = self.events.recv().await {
            self.run.on(event, self.now());
        }
    }

    fn end(mut self, stopped: Option<StopReason>) -> Result<FinishedRun, JournalError> {
        self.journal.end(stopped.clone(), SystemTime::now())?;
        self.show(stopped.clone().map_or(Activity::Done, Activity::Stopped));
        let report = self.run.report();
        info!(
            run = self.id,
            queue = self.run.plan().queue(),
            done = report.done,
            left = report.left,
            ?stopped,
            "a run has ended"
        );
        let not_done = self.run.not_done().map(|(entry, state)| (entry.clone(), state.clone())).collect();
        Ok(FinishedRun { id: self.id, report, stopped, not_done })
    }

    fn show(&self, activity: Activity) {
        self.control.set_progress(RunProgress { report: self.run.report(), rate: self.run.rate(), activity });
    }

    /// The time on the clock of the run.
    fn now(&self) -> Duration {
        self.began.elapsed()
    }
}

impl fmt::Debug for Runner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("id", &self.id).field("journal", &self.journal).finish_non_exhaustive()
    }
}

/// A run that has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use = "some entries may not be done"]
pub struct FinishedRun {
    /// Id of the run.
    pub id: String,
    /// Counts of entries.
    pub report: RunReport,
    /// Why it ended early.
    pub stopped: Option<StopReason>,
    /// The entries that were not done, with the reason. Those that have not had their turn are not among them.
    pub not_done: Vec<(PlannedEntry, EntryState)>,
}
