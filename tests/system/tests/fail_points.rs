//! The process dies between every two steps from received to settled. The message, or the message and one copy, is left, and then
//! ends.

use std::fmt;
use std::time::{Duration, Instant};

use lapin::options::QueuePurgeOptions;
use redrive::rabbitmq::RabbitMq;
use redrive::{Shelf, Shelves as _};
use redrive_brokers::{broker, report};
use redrive_core::fail_point::FailPoint;
use redrive_system_tests::fate;
use redrive_system_tests::fleet::{Fleet, Mode};
use redrive_system_tests::flow::Flow;
use redrive_system_tests::rabbit::{Rabbit, publish_all};
use redrive_system_tests::service::publish;
use redrive_system_tests::verdict::{Interruptions, judge, to_the_end};
use redrive_system_tests::{
    Combination, Delays, QueueType, Version, on_four_combinations, poll_again, within,
};

on_four_combinations!(1500;
    nothing_is_lost_wherever_the_process_dies,
    nothing_is_lost_when_it_dies_with_its_hands_full,
    an_edited_message_is_stored_before_its_entry_leaves,
);

/// The ways that are cut on 4.3 only.
mod v4_3_quorum {
    use super::{Combination, Delays, FailPoint, Flow, QueueType, Version};

    /// `SingleQueue` and `Staged` differ from the ladder only in where the copies wait: by default these steps are cut.
    const COPIES_THAT_WAIT: [FailPoint; 3] =
        [FailPoint::CopyHandedOver, FailPoint::CopyConfirmed, FailPoint::AckFlushed];

    /// The last step of a message that a consumer or an operator copies; the steps before are cut everywhere.
    const COPIED: [FailPoint; 6] = [
        FailPoint::Taken,
        FailPoint::CopyHandedOver,
        FailPoint::CopyConfirmed,
        FailPoint::AckHandedOver,
        FailPoint::AckFlushed,
        FailPoint::AckWritten,
    ];

    async fn cut(delays: Delays, flows: &[Flow], points: &[FailPoint]) {
        let on = Combination { delays, ..Combination::new(Version::V4_3, QueueType::Quorum) };
        let what = format!("killed between two steps on {on}");
        super::within(super::LIMIT, &what, super::nothing_is_lost_at(on, flows, points)).await;
    }

    async fn cut_where_copies_wait(delays: Delays) {
        if std::env::var("REDRIVE_FAIL_POINTS").is_ok_and(|which| which == "all") {
            cut(delays, &Flow::ON_RABBITMQ, &FailPoint::ALL).await;
        } else {
            cut(delays, &[Flow::Retry], &COPIES_THAT_WAIT).await;
        }
    }

    /// It moves nothing where others copy.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn native() {
        cut(Delays::Native, &Flow::ON_RABBITMQ, &FailPoint::ALL).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn single_queue() {
        cut_where_copies_wait(Delays::SingleQueue).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn staged() {
        cut_where_copies_wait(Delays::Staged).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn parking() {
        cut(Delays::Ladder, &Flow::ON_ONE_RABBITMQ, &COPIED).await;
    }
}

const WORKER: &str = env!("CARGO_BIN_EXE_worker");
const LIMIT: Duration = Duration::from_secs(1500);
const LOOK: Duration = Duration::from_millis(20);
/// A broker's numbers about its queues may be a moment old.
const OLD: Duration = Duration::from_millis(200);

/// One message for each step of each way.
async fn nothing_is_lost_wherever_the_process_dies(on: Combination) {
    nothing_is_lost_at(on, &Flow::ON_RABBITMQ, &FailPoint::ALL).await;
}

async fn nothing_is_lost_at(on: Combination, flows: &[Flow], points: &[FailPoint]) {
    let mut scene = Scene::set(on).await;
    let mut table = Vec::new();
    for &flow in flows {
        if flow.by_hand() {
            scene.operator = scene.fleet(Mode::of(flow));
        }
        let mut row = Vec::new();
        for &point in points {
            let Some(may_be_left) = flow.left(point, on) else { continue };
            let what = format!("{} dying at {} on {on}", flow.name(), point.name());
            scene.die(flow, point, &what).await;
            let left = scene.left(*may_be_left.start(), &what).await;
            assert!(left.total() <= *may_be_left.end(), "{what}: left {left}");
            let original = if flow.by_hand() { left.shelf } else { left.work };
            assert!(original > 0 || may_be_removed(point), "{what}: left {left}");
            let before = flow.handled_before(point);
            let (least, most) = (left.total() + before, may_be_left.end() + before);
            let least = if flow == Flow::Discard { 0 } else { least.max(1) };
            let (ends, on_sight) = scene.ends(flow, point, least, &what).await;
            assert!((ends >= 1) == (flow != Flow::Discard), "{what}: ended {ends} times; left was {left}");
            assert!(ends + on_sight <= most, "{what}: left {left}, and ended {ends} times");
            let again = if on_sight > 0 { ", once more settled on sight" } else { "" };
            row.push(format!("{} → {left}, ended {}{again}", point.name(), times(ends)));
        }
        table.push(format!("{}: {}", flow.name(), row.join(", ")));
    }
    scene.clear().await;
    report(&format!("killed between two steps on {on}: {}", table.join(" | ")));
}

/// True if the settlement that removes the original may have left the process.
fn may_be_removed(point: FailPoint) -> bool {
    use FailPoint as P;
    !matches!(
        point,
        P::Received | P::Decided | P::Taken | P::CopyHandedOver | P::CopyConfirmed | P::AckHandedOver
    )
}

fn times(ends: usize) -> &'static str {
    ["never", "once", "twice"].get(ends).unwrap_or(&"more often")
}

/// The queues, and the process that works on them.
struct Scene {
    on: Combination,
    queue: String,
    transport: RabbitMq,
    rabbit: Rabbit,
    worker: Fleet,
    operator: Fleet,
}

/// Where copies of the only message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    work: u32,
    rung: u32,
    shelf: u32,
    parked: u32,
}

impl Left {
    fn total(self) -> usize {
        (self.work + self.rung + self.at_rest()) as usize
    }

    fn at_rest(self) -> u32 {
        self.shelf + self.parked
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places =
            [(self.work, "work"), (self.rung, "rung"), (self.shelf, "shelf"), (self.parked, "parking lot")];
        let places = places.into_iter().filter(|(copies, _)| *copies > 0);
        let places: Vec<_> = places.map(|(copies, place)| format!("{copies} in {place}")).collect();
        f.write_str(if places.is_empty() { "nothing".to_owned() } else { places.join(" + ") }.as_str())
    }
}

impl Scene {
    async fn set(on: Combination) -> Self {
        let url = broker(on.version).url;
        let queue = on.unique(&format!("fail-points.{}", on.delays.word()));
        on.delays.prepare(&url, &queue).await;
        let mut worker = Fleet::new(WORKER, Mode::Flows, on, &url, &queue);
        // It declares the queues.
        worker.start();
        worker.until(soon(), "a worker starts", |log| log.started == 1).await;
        worker.stop().await;
        let transport = on.options(&queue).connect(&url).await.unwrap();
        let operator = Fleet::new(WORKER, Mode::Redrive, on, &url, &queue);
        Self { on, rabbit: Rabbit::connect(&url).await, queue, transport, worker, operator }
    }

    fn fleet(&self, mode: Mode) -> Fleet {
        Fleet::new(WORKER, mode, self.on, &broker(self.on.version).url, &self.queue)
    }

    fn shelf(&self) -> String {
        self.on.delays.shelf(&self.queue)
    }

    fn parking(&self) -> String {
        format!("{}--parking-lot", self.queue)
    }

    /// Number of copies that wait.
    async fn waiting(&self) -> u32 {
        match self.on.delays.queue_of_flows(&self.queue) {
            Some(queue) => self.look(&queue).await.0,
            None => 0,
        }
    }

    /// Runs a process on the message until it dies.
    async fn die(&mut self, flow: Flow, point: FailPoint, what: &str) {
        let message = flow.message(point);
        let fleet = if flow.by_hand() {
            self.transport.publisher().to(self.shelf()).publish(message).await.unwrap();
            &mut self.operator
        } else {
            publish_all(&self.transport, [message]).await;
            &mut self.worker
        };
        fleet.start_to_die_at(point, 1);
        assert!(!fleet.lives_until(soon(), what, |_| false).await);
        let status = fleet.ended().await;
        assert!(status.code().is_none(), "{what}: ended by itself with {status}; {}", fleet.last_words());
    }

    /// Returns the numbers of the broker once it has noticed the death and has at least this many messages.
    async fn left(&self, least: usize, what: &str) -> Left {
        let deadline = soon();
        let still = OLD + self.on.delays.unseen_for();
        let mut before = None;
        loop {
            let (work, consumers) = self.look(&self.queue).await;
            let (rung, shelf) = (self.waiting().await, self.look(&self.shelf()).await.0);
            let now = Left { work, rung, shelf, parked: self.look(&self.parking()).await.0 };
            let since = match before {
                Some((before, since)) if before == (now, consumers) => since,
                _ => Instant::now(),
            };
            before = Some(((now, consumers), since));
            if consumers == 0 && now.total() >= least && since.elapsed() >= still {
                return now;
            }
            poll_again(LOOK, deadline, || format!("{what}: {now} left, and {consumers} consumers")).await;
        }
    }

    /// Ready messages and consumers.
    async fn look(&self, queue: &str) -> (u32, u32) {
        self.rabbit.counts(queue).await.unwrap_or_else(|| panic!("there is no queue {queue}"))
    }

    /// Runs a process on the rest until at least this many ends. Returns how often the message ended, and how often it was
    /// deduplicated:
    /// the worker may take two identical copies for one.
    async fn ends(&mut self, flow: Flow, point: FailPoint, least: usize, what: &str) -> (usize, usize) {
        if flow.by_hand() {
            self.operator.start();
            let status = self.operator.ended().await;
            assert!(status.success(), "{what}: the next operator: {status}; {}", self.operator.last_words());
            if flow != Flow::Redrive {
                return (self.parked(least, what).await, 0);
            }
        }
        let id = flow.message(point).id().expect("it has an id").to_owned();
        let deadline = soon();
        loop {
            self.worker.start();
            let ended = loop {
                self.worker.log.catch_up();
                let record = self.worker.log.records.get(&id).cloned().unwrap_or_default();
                let shelf = self.look(&self.shelf()).await.0;
                let ended = record.handled + shelf + self.look(&self.parking()).await.0;
                let waiting = self.look(&self.queue).await.0 + self.waiting().await;
                // A message between the delay queue and the work queue is in neither count.
                if (ended + record.on_sight) as usize >= least && waiting == 0 {
                    break ended;
                }
                let state = || format!("{what}: {ended} ends of at least {least}; {}", self.worker.state());
                poll_again(LOOK, deadline, state).await;
            };
            // It settles what it has in flight, or returns it.
            self.worker.stop().await;
            let left = self.left(0, what).await;
            if left.work + left.rung == 0 {
                let record = self.worker.log.records.get(&id).cloned().unwrap_or_default();
                let ends = record.handled + left.at_rest();
                assert!(ends >= ended);
                self.purge().await;
                return (ends as usize, record.on_sight as usize);
            }
        }
    }

    /// Number of parked copies, at least this many, if there are no others.
    async fn parked(&self, least: usize, what: &str) -> usize {
        let deadline = soon();
        loop {
            let left = self.left(least, what).await;
            if left.total() == left.parked as usize {
                self.purge().await;
                return left.total();
            }
            assert!(Instant::now() < deadline, "{what}: {left} after the next operator");
        }
    }

    /// Empties the shelves.
    async fn purge(&self) {
        let channel = self.rabbit.channel().await;
        for shelf in [self.shelf(), self.parking()] {
            channel.queue_purge(shelf.into(), QueuePurgeOptions::default()).await.unwrap();
        }
    }

    /// A shared broker must be left as it was found.
    async fn clear(self) {
        let own = [self.queue.clone(), self.shelf(), self.parking()];
        let delays = self.on.delays;
        let waiting = delays.queues(&self.queue).into_iter().chain(delays.queue_of_flows(&self.queue));
        self.rabbit.delete(own.into_iter().chain(waiting)).await;
        self.rabbit.delete_exchanges(delays.exchanges(&self.queue)).await;
    }
}

/// An operator's process dies between every two steps of a replacement: the entry, the edited message, or both are on the shelf.
async fn an_edited_message_is_stored_before_its_entry_leaves(on: Combination) {
    let mut scene = Scene::set(on).await;
    scene.operator = scene.fleet(Mode::Replace);
    let mut row = Vec::new();
    for point in FailPoint::ALL {
        // Its copy goes to the shelf, not to the queue: otherwise it is a redrive.
        let Some(may_be_left) = Flow::Redrive.left(point, on) else { continue };
        let what = format!("replace dying at {} on {on}", point.name());
        scene.die(Flow::Redrive, point, &what).await;
        let left = scene.left(*may_be_left.start(), &what).await;
        let entries = scene.transport.shelves().browse(Shelf::DeadLetter, None, 10).await.unwrap().entries;
        let (edited, as_it_was): (Vec<_>, Vec<_>) =
            entries.iter().partition(|entry| &entry.message.body()[..] == b"edited");
        let count = (as_it_was.len(), edited.len());
        assert_eq!(count.0 + count.1, left.total(), "{what}: on the shelf, and nowhere else");
        assert!(
            may_be_left.contains(&left.total()) && count.0 <= 1 && count.1 <= 1,
            "{what}: left {count:?}"
        );
        assert!(point != FailPoint::CopyConfirmed || count == (1, 1), "{what}: left {count:?}");
        row.push(format!("{} → {} as it was + {} edited", point.name(), count.0, count.1));
        scene.purge().await;
    }
    scene.clear().await;
    report(&format!("replace killed between two steps on {on}: {}", row.join(", ")));
}

/// Many messages, 64 at a time; the process dies at one point after another, in the middle of the work.
async fn nothing_is_lost_when_it_dies_with_its_hands_full(on: Combination) {
    const MESSAGES: usize = 600;
    /// As many again, when all are in flight or ended.
    const MORE: usize = 50;
    const DEATHS: [(FailPoint, u32); 9] = [
        (FailPoint::Received, 70),
        (FailPoint::Decided, 60),
        (FailPoint::CopyHandedOver, 20),
        (FailPoint::CopyConfirmed, 20),
        (FailPoint::AckHandedOver, 60),
        // Many acknowledgements are sent together.
        (FailPoint::AckFlushed, 4),
        (FailPoint::AckWritten, 2),
        (FailPoint::CopyConfirmed, 3),
        (FailPoint::AckHandedOver, 5),
    ];
    let deadline = Instant::now() + Duration::from_secs(1200);
    let url = broker(on.version).url;
    let queue = on.unique("hands-full");
    let mut fleet = Fleet::new(WORKER, Mode::Chaos, on, &url, &queue);
    fleet.start();
    fleet.until(deadline, "a worker starts", |log| log.started == 1).await;
    fleet.stop().await;
    let transport = on.options(&queue).connect(&url).await.unwrap();
    let mut ids = publish(&transport, 0, MESSAGES).await;
    let rabbit = Rabbit::connect(&url).await;

    for (point, pass) in DEATHS {
        let what = format!("dying at {} with its hands full on {on}", point.name());
        fleet.start_to_die_at(point, pass);
        let mut look = Instant::now();
        while fleet.lives_until(deadline, &what, |_| look.elapsed() > OLD).await {
            // On a machine that stalls, more acknowledgements are sent together, and there are too few messages.
            if rabbit.ready(&queue).await == Some(0) {
                ids.extend(publish(&transport, ids.len(), MORE).await);
            }
            look = Instant::now();
        }
        let status = fleet.ended().await;
        assert!(status.code().is_none(), "{what}: ended by itself with {status}; {}", fleet.last_words());
    }
    fleet.start();
    let workers = std::slice::from_mut(&mut fleet);
    let shelf = to_the_end(&ids, workers, &transport, (&queue, on.delays), &url, deadline).await;
    let deaths = Interruptions { workers: DEATHS.len() as u32, ..Interruptions::default() };
    let verdict = judge(&ids, &fleet.log, &shelf, deaths);
    let names = ["", "--dead-letters", "--parking-lot"].map(|suffix| format!("{queue}{suffix}"));
    rabbit.delete(fate::rungs(&queue).chain(names)).await;
    report(&format!("killed {} times with its hands full on {on}: {verdict}", DEATHS.len()));
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(300)
}
