//! The process of a Service Bus consumer, or the emulator, dies between every two steps of every settlement. One copy of the
//! message is left, two only without transactions, and it ends. The same for subscriptions, sessions, held locks and REST, where
//! they
//! differ.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use redrive::transport::Needs;
use redrive::{Disposition, Failure, Message, Transport};
use redrive_brokers::report;
use redrive_contract::Started;
use redrive_core::fail_point::FailPoint;
use redrive_servicebus_emulator::Emulator;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::flow::{Flow, WAIT_ON_SERVICEBUS};
use redrive_system_tests::servicebus::{Cut, Kind, Left, Setup, at_the_neighbour, cuts, look};
use redrive_system_tests::{poll_again, within};

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const LIMIT: Duration = Duration::from_secs(900);
const LOOK: Duration = Duration::from_millis(5);
/// This many at the same time: they mostly wait.
const AT_ONCE: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_wherever_the_process_dies() {
    all(Victim::Worker, &Setup::OF_QUEUES).await;
}

/// The other setups, where they differ.
mod nothing_is_lost {
    use super::{Setup, Victim, all};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_a_subscription() {
        all(Victim::Worker, &[Setup::OF_SUBSCRIPTIONS]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn of_a_session() {
        all(Victim::Worker, &[Setup::OF_SESSIONS]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_locks_are_held() {
        all(Victim::Worker, &[Setup::OF_HELD_LOCKS]).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn by_rest() {
        all(Victim::Worker, &[Setup::OF_REST]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_wherever_the_broker_dies() {
    all(Victim::Emulator, &Setup::OF_QUEUES).await;
}

/// Which process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Worker,
    Emulator,
}

/// Cuts every way in every setup after each step; the report has a line for each way.
async fn all(victim: Victim, setups: &[Setup]) {
    for &setup in setups {
        let mut table = Vec::new();
        for flow in Flow::ALL {
            let cuts = cuts(flow, setup);
            if cuts.is_empty() {
                continue;
            }
            let row = stream::iter(cuts).map(|(cut, left)| async move {
                let what = format!("{} dying at {cut} of {}, {setup}", victim.name(), flow.name());
                within(LIMIT, &what, Scene::play(victim, setup, flow, (cut, left), &what)).await
            });
            let row: Vec<String> = row.buffered(AT_ONCE).collect().await;
            table.push(format!("{}: {}", flow.name(), row.join(", ")));
        }
        report(&format!(
            "Service Bus, {} killed between two steps, {setup}: {}",
            victim.name(),
            table.join(" | ")
        ));
    }
}

impl Victim {
    fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::Emulator => "emulator",
        }
    }

    /// How many copies may be left.
    fn leaves(self, setup: Setup, flow: Flow, done: RangeInclusive<usize>) -> RangeInclusive<usize> {
        match self {
            Self::Worker => done,
            // What the emulator has not answered may not be on its disk yet, and a process gets a little further while it is being
            // stopped. Never below one copy, unless the message is to be removed; never two with transactions.
            Self::Emulator if matches!(flow, Flow::Ack | Flow::Discard) => 0..=1,
            Self::Emulator if setup.transactions => 1..=1,
            Self::Emulator => 1..=2,
        }
    }
}

/// One message on its own emulator, and the process that works on it.
struct Scene {
    setup: Setup,
    flow: Flow,
    emulator: Emulator,
    /// The consumer, or the operator.
    worker: Fleet,
    consumer: Fleet,
    id: String,
    /// Contains the state file.
    _folder: tempfile::TempDir,
}

impl Scene {
    /// Returns what was left, and how the message ended.
    async fn play(
        victim: Victim,
        setup: Setup,
        flow: Flow,
        (cut, may_be_left): (Cut, RangeInclusive<usize>),
        what: &str,
    ) -> String {
        let mut scene = Self::set(victim, setup, flow, cut).await;
        match victim {
            Victim::Worker => scene.worker_dies(cut, what).await,
            Victim::Emulator => scene.emulator_dies(cut, what).await,
        }
        let left = scene.look();
        let may_be_left = victim.leaves(setup, flow, may_be_left);
        assert!(may_be_left.contains(&left.total()), "{what}: left {left}");
        let (ends, on_sight) = match victim {
            Victim::Worker => scene.begins_again(what).await,
            Victim::Emulator => scene.goes_on(what).await,
        };
        let may_end = scene.may_end(victim, setup, cut, &may_be_left);
        assert!(may_end.contains(&(ends + on_sight)), "{what}: left {left}, and ended {ends} times");
        scene.is_charged(cut, what);
        let at_neighbour = at_the_neighbour(&scene.emulator);
        assert_eq!(at_neighbour, usize::from(setup.kind == Kind::Subscription), "{what}: what others have");
        let again = if on_sight > 0 { ", once more settled on sight" } else { "" };
        let ended = match (flow, ends) {
            (Flow::Discard, _) => "gone in the end".to_owned(),
            (_, 1) => "ended once".to_owned(),
            (_, 2) => "ended twice".to_owned(),
            (_, ends) => format!("ended {ends} times"),
        };
        format!("{cut} → {left}, {ended}{again}")
    }

    async fn set(victim: Victim, setup: Setup, flow: Flow, cut: Cut) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the state file");
        let state = folder.path().join("state");
        let emulator = setup.emulator((victim == Victim::Emulator).then_some(&*state)).await;
        let id = format!("{}:{cut}", flow.name());
        let address = setup.connection_string(&emulator);
        let consumer = Fleet::on_servicebus(WORKER, Mode::Flows, setup, &address);
        let worker = Fleet::on_servicebus(WORKER, Mode::of(flow), setup, &address);
        let scene = Self { setup, flow, emulator, worker, consumer, id, _folder: folder };
        scene.publish().await;
        scene
    }

    fn look(&self) -> Left {
        look(&self.emulator, self.setup)
    }

    /// Puts the message where its way begins.
    async fn publish(&self) {
        let address = self.setup.connection_string(&self.emulator);
        let transport = self.setup.options().connect(&address).await.unwrap();
        let mut message = Message::new("x").with_id(&*self.id);
        message.properties_mut().session_id = (self.setup.kind == Kind::Sessions).then(|| "s".to_owned());
        transport.publish(message).await.unwrap();
        if self.flow.by_hand() {
            let transport = Started::open(transport, &Needs::none()).await.unwrap();
            let received = transport.receive().await.unwrap().expect("it is there");
            let dead = Disposition::DeadLetter(Failure::custom("Broken", "it does not work"));
            let settlement = transport.plan(&received.delivery, dead);
            transport.settle(received.receipt, settlement).await.map_err(|refused| refused.error).unwrap();
            transport.close().await;
        } else {
            transport.close().await;
        }
        self.until("nobody is connected", |_| self.emulator.connections() == 0).await;
    }

    /// Runs a process on the message until it dies.
    async fn worker_dies(&mut self, cut: Cut, what: &str) {
        match cut {
            Cut::At(point) => {
                self.worker.start_to_die_at(point, 1);
                assert!(!self.worker.lives_until(soon(), what, |_| false).await);
                let status = self.worker.ended().await;
                let said = self.worker.last_words();
                assert!(status.code().is_none(), "{what}: ended by itself with {status}; {said}");
            }
            Cut::Unanswered(_) => {
                self.worker_waits_for_an_answer(cut, what).await;
                self.worker.kill().await;
            }
        }
        // The transaction that it had begun and not committed is rolled back with its connection.
        self.until("the emulator notices the death", |_| self.emulator.connections() == 0).await;
    }

    async fn worker_waits_for_an_answer(&mut self, cut: Cut, what: &str) {
        self.emulator.inject(cut.fault(self.flow).expect("it is cut by a fault"));
        self.worker.start();
        let done = cut.done(self.flow, self.setup);
        let in_place = self.flow == Flow::Retry && self.setup.retries_in_place();
        self.until(what, |left| left == done && (!in_place || self.was_given_back())).await;
    }

    /// Runs a process on the message until it reaches the cut, and restarts the emulator there.
    async fn emulator_dies(&mut self, cut: Cut, what: &str) {
        match cut {
            Cut::At(point) => {
                self.worker.start_to_stop_at(point);
                self.worker.stopped(soon(), what).await;
            }
            Cut::Unanswered(_) => {
                self.worker_waits_for_an_answer(cut, what).await;
                self.worker.halt(soon(), what).await;
            }
        }
        self.emulator.clear_faults();
        self.emulator.restart().await.expect("it starts again");
    }

    /// Runs the next process on the rest. Returns how often the message ended, and how often it was deduplicated.
    async fn begins_again(&mut self, what: &str) -> (usize, usize) {
        // Nobody waits until the locks of the dead process expire.
        for source in self.setup.sources() {
            for path in [(*source).to_owned(), format!("{source}/$DeadLetterQueue")] {
                self.emulator.entity(&path).expect("it is there").expire_locks();
            }
        }
        if self.flow.by_hand() {
            self.worker.start();
            let status = self.worker.ended().await;
            assert!(status.success(), "{what}: the next operator: {status}; {}", self.worker.last_words());
        } else {
            self.worker.start();
        }
        self.ends(what).await
    }

    /// Lets the same process continue. An operator's process ends with its connection and is started again.
    async fn goes_on(&mut self, what: &str) -> (usize, usize) {
        self.worker.go_on().await;
        if self.flow == Flow::Release {
            // It returns the message until another process takes it.
            self.worker.until(soon(), what, |log| log.runs >= 2).await;
            self.worker.kill().await;
            self.until("the emulator notices the death", |_| self.emulator.connections() == 0).await;
            return self.begins_again(what).await;
        }
        if self.flow.by_hand() {
            let _with_its_connection = self.worker.ended().await;
            self.worker.start();
            let status = self.worker.ended().await;
            assert!(status.success(), "{what}: the next operator: {status}; {}", self.worker.last_words());
        }
        self.ends(what).await
    }

    async fn ends(&mut self, what: &str) -> (usize, usize) {
        let consumer = match self.flow {
            Flow::Redrive => {
                self.consumer.start();
                &mut self.consumer
            }
            Flow::ParkByHand | Flow::Discard => {
                let left = look(&self.emulator, self.setup);
                assert_eq!((left.work, left.waiting, left.shelf), (0, 0, 0), "{what}: {left}");
                return (left.total(), 0);
            }
            _ => &mut self.worker,
        };
        let deadline = soon();
        loop {
            consumer.log.catch_up();
            let record = consumer.log.records.get(&self.id).cloned().unwrap_or_default();
            let left = look(&self.emulator, self.setup);
            let at_rest = (left.shelf + left.parked) as usize;
            let ended = record.handled as usize + at_rest;
            // Only if nothing is in flight: what is left waits for the clock.
            if left.work == 0 && left.waiting > 0 {
                self.emulator.advance(WAIT_ON_SERVICEBUS);
            }
            if ended > 0 && left.work + left.waiting == 0 {
                consumer.stop().await;
                // It may have returned something.
                let left = look(&self.emulator, self.setup);
                if left.work + left.waiting == 0 {
                    let record = consumer.log.records.get(&self.id).cloned().unwrap_or_default();
                    let at_rest = (left.shelf + left.parked) as usize;
                    return (record.handled as usize + at_rest, record.on_sight as usize);
                }
                consumer.start();
            }
            poll_again(LOOK, deadline, || format!("{what}: {left}, {record:?}; {}", consumer.state())).await;
        }
    }

    /// How often the message may end, in all.
    fn may_end(
        &self,
        victim: Victim,
        setup: Setup,
        cut: Cut,
        left: &RangeInclusive<usize>,
    ) -> RangeInclusive<usize> {
        match (victim, self.flow) {
            (_, Flow::Discard) => 0..=0,
            (Victim::Worker, Flow::Ack) if cut != Cut::At(FailPoint::Received) => {
                // It was handled before.
                left.start() + 1..=left.end() + 1
            }
            // The dying process handled it to its end, and its completion did not arrive.
            (Victim::Worker, _) if self.is_redelivered_to_the_dying(cut) => 1..=2,
            (Victim::Worker, _) => 1.max(*left.start())..=*left.end(),
            // An emulator that starts again delivers with the count that it had: the consumer remembers what it
            // handled, and does not look at the count.
            (Victim::Emulator, Flow::Ack) => 1..=2,
            // Without an answer a copy is sent again, and the original is redelivered beside it. Where everything stalls, nobody
            // promises
            // how often; more than this would be a loop.
            (Victim::Emulator, _) if !setup.transactions => 1..=10,
            (Victim::Emulator, _) => 1..=1,
        }
    }

    /// True if a message that is not in flight was delivered before.
    fn was_given_back(&self) -> bool {
        let messages = self
            .setup
            .sources()
            .iter()
            .flat_map(|source| self.emulator.entity(source).expect("it is there").messages());
        messages.into_iter().any(|message| message.lock_token.is_none() && message.delivery_count > 0)
    }

    /// True if a message that was returned with its lock is redelivered at once, to the process that dies.
    fn is_redelivered_to_the_dying(&self, cut: Cut) -> bool {
        let given_back = matches!(cut, Cut::Unanswered(_) | Cut::At(FailPoint::NackWritten));
        self.setup.kind == Kind::HeldLocks && given_back
    }

    /// Compares how often the handler began, where a retry is the message itself and not a copy with the attempt in its headers.
    fn is_charged(&self, cut: Cut, what: &str) {
        if self.flow != Flow::Retry || !self.setup.retries_in_place() {
            return;
        }
        let held = self.setup.kind == Kind::HeldLocks;
        let given_back = matches!(cut, Cut::Unanswered(_) | Cut::At(FailPoint::NackWritten));
        let before = u32::from(cut != Cut::At(FailPoint::Received));
        // With held locks the death itself is an attempt; in a session only the attempts in the headers count.
        let after = if held || given_back { 1 } else { 2 };
        // That counts once more.
        let more = u32::from(self.is_redelivered_to_the_dying(cut));
        let record = self.worker.log.records.get(&self.id).expect("it was handled");
        let runs = before + after..=before + after + more;
        assert!(
            runs.contains(&record.runs)
                && (2..=2 + more).contains(&record.attempt)
                && (1..=1 + more).contains(&record.handled),
            "{what}: {record:?}"
        );
    }

    async fn until(&self, what: &str, so: impl Fn(Left) -> bool) {
        let deadline = soon();
        while !so(self.look()) {
            let state = || format!("{what}: {}; {}", self.look(), self.worker.last_words());
            poll_again(LOOK, deadline, state).await;
        }
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}
