use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::UNIX_EPOCH;

use redrive_core::Message;
use redrive_core::transport::{DeliveryBuilder, Origin};

use proptest::prelude::*;

use super::*;

fn facts(counts: bool, release_counts: bool) -> Facts {
    let mut facts = Facts::new("test");
    (facts.counting.deliveries, facts.counting.releases) = (counts, release_counts);
    facts
}

fn needs(allowed: Option<u32>) -> Needs {
    let mut needs = Needs::none();
    needs.deliveries = allowed;
    needs
}

fn rule(suspects: Suspects, counts: bool, release_counts: bool, ledger: bool) -> Rule {
    Rule::of(suspects, &needs(Some(10)), &facts(counts, release_counts), ledger)
}

fn handed_out(times: u32) -> Delivery {
    DeliveryBuilder::new(Message::new(""), Origin::new("q", "", ""), UNIX_EPOCH)
        .broker_delivery_count(times)
        .build()
}

#[test]
fn what_was_handed_out_before_is_a_suspect() {
    let rule = rule(Suspects::default(), true, false, false);
    assert!(rule.ordinary(&handed_out(1)));
    assert!(!rule.ordinary(&handed_out(2)) && rule.suspicion(&handed_out(2), false, 0) == Suspicion::Suspect);
}

#[test]
fn where_giving_back_counts_one_return_is_no_evidence() {
    let rule = rule(Suspects::default(), true, true, false);
    assert!(rule.ordinary(&handed_out(2)));
    let suspicions = [1, 2, 3].map(|times| rule.suspicion(&handed_out(times), false, 0));
    assert_eq!(suspicions, [Suspicion::None, Suspicion::Doubtful, Suspicion::Suspect]);
    assert_eq!(rule.suspicion(&handed_out(2), true, 0), Suspicion::None, "it is that of the lost connection");
}

#[test]
fn what_is_doubtful_is_handled_alone_by_who_does_so_anyway() {
    let mut watch = Watch::new(true);
    assert_eq!([watch.arrived(Suspicion::Doubtful), watch.arrived(Suspicion::Doubtful)], [Step::Handle; 2]);
    assert!(!watch.together() && !watch.isolates());
    assert_eq!(watch.arrived(Suspicion::None), Step::Widen { suspects: 0 });
    assert_eq!(watch.arrived(Suspicion::Doubtful), Step::Handle);
    assert!(watch.together());
    watch.arrived(Suspicion::Suspect);
    assert_eq!(watch.arrived(Suspicion::Doubtful), Step::Handle);
    assert!(!watch.together());
}

#[test]
fn a_count_of_failures_and_deaths_together_is_no_evidence() {
    let mut facts = facts(true, false);
    facts.delays.in_place =
        Some(redrive_core::transport::InPlace::Any { longest: std::time::Duration::ZERO });
    assert!(Rule::of(Suspects::default(), &needs(Some(10)), &facts, false).is_off());
    let with_ledger = Rule::of(Suspects::default(), &needs(Some(10)), &facts, true);
    assert!(
        with_ledger.suspicion(&handed_out(2), false, 1) == Suspicion::Suspect
            && with_ledger.ordinary(&handed_out(9))
    );
}

#[test]
fn it_comes_before_the_layers_turn_it_away() {
    let rule = Rule::of(Suspects::default(), &needs(Some(2)), &facts(true, true), true);
    assert!(rule.suspicion(&handed_out(2), false, 0) == Suspicion::Suspect);
}

#[test]
fn a_lost_connection_pardons_one_hand_out() {
    let rule = rule(Suspects::default(), true, false, false);
    assert!(rule.suspicion(&handed_out(2), true, 0) != Suspicion::Suspect);
    assert!(rule.suspicion(&handed_out(3), true, 0) == Suspicion::Suspect);
}

#[test]
fn a_mark_is_evidence_only_where_that_is_asked_for() {
    let marked = handed_out(2);
    assert!(rule(Suspects::default(), false, false, false).is_off());
    let by_mark = rule(Suspects::by_count().also_by_mark(), false, false, false);
    assert!(!by_mark.ordinary(&marked) && by_mark.suspicion(&marked, false, 0) == Suspicion::Suspect);
    assert!(
        by_mark.suspicion(&marked, true, 0) != Suspicion::Suspect,
        "the mark may be that of the lost connection"
    );
    assert!(by_mark.ordinary(&handed_out(1)));
}

#[test]
fn a_ledger_names_suspects_on_every_queue() {
    for counts in [true, false] {
        let rule = rule(Suspects::default(), counts, false, true);
        assert!(rule.suspicion(&handed_out(2), false, 1) == Suspicion::Suspect);
        assert!(
            rule.suspicion(&handed_out(2), true, 1) == Suspicion::Suspect,
            "a lost connection ends no handler"
        );
        assert!(
            rule.suspicion(&handed_out(2), false, 0) != Suspicion::Suspect,
            "no handler had begun with it"
        );
    }
}

#[test]
fn switched_off_nothing_is_a_suspect() {
    let rule = rule(Suspects::none().also_by_mark(), true, false, true);
    assert!(rule.is_off() && rule.ordinary(&handed_out(1000)));
    assert!(rule.suspicion(&handed_out(1000), false, 7) != Suspicion::Suspect);
}

#[test]
fn the_first_delivery_shows_whether_to_go_wide() {
    let rule = rule(Suspects::default(), true, false, false);
    let mut watch = Watch::new(!rule.is_off());
    assert!(!watch.together());
    assert_eq!(watch.arrived(Suspicion::None), Step::Widen { suspects: 0 });
    assert!(watch.together());
}

#[test]
fn suspects_are_handled_alone_until_something_new_arrives() {
    let mut watch = Watch { mode: Mode::Together };
    assert_eq!(watch.arrived(Suspicion::None), Step::Handle);
    assert_eq!(watch.arrived(Suspicion::Suspect), Step::Isolate);
    assert!(!watch.together());
    assert_eq!([watch.arrived(Suspicion::Suspect), watch.arrived(Suspicion::Suspect)], [Step::Handle; 2]);
    assert_eq!(watch.arrived(Suspicion::None), Step::Widen { suspects: 2 });
    assert!(watch.together());
}

#[test]
fn what_was_given_back_behind_others_is_waited_for_a_while() {
    let mut watch = Watch { mode: Mode::Together };
    watch.arrived(Suspicion::Suspect);
    watch.gave_back_copies(2);
    assert_eq!(
        [watch.arrived(Suspicion::Suspect), watch.arrived(Suspicion::None), watch.arrived(Suspicion::None)],
        [Step::Handle; 3]
    );
    assert_eq!(watch.arrived(Suspicion::None), Step::Widen { suspects: 1 });
}

/// A queue that charges every delivery that a dead process had in flight, and processes that consume it.
struct World {
    rule: Rule,
    release_counts: bool,
    allowed: u32,
    prefetch: usize,
    concurrency: usize,
    killers: BTreeSet<u32>,
    queue: VecDeque<(u32, u32)>,
    handled: BTreeMap<u32, u32>,
    shelved: BTreeSet<u32>,
    deaths: u32,
}

/// One process; each item in it is `(message, how often handed out)`.
struct Process {
    watch: Watch,
    inbox: VecDeque<(u32, u32)>,
    running: Vec<(u32, u32)>,
    kept: Option<(u32, u32)>,
}

impl Process {
    fn new(rule: Rule) -> Self {
        Self { watch: Watch::new(!rule.is_off()), inbox: VecDeque::new(), running: Vec::new(), kept: None }
    }
}

impl World {
    fn new(
        release_counts: bool,
        allowed: u32,
        prefetch: usize,
        concurrency: usize,
        messages: u32,
        killers: BTreeSet<u32>,
    ) -> Self {
        let facts = facts(true, release_counts);
        Self {
            rule: Rule::of(Suspects::default(), &needs(Some(allowed)), &facts, false),
            release_counts,
            allowed,
            prefetch,
            concurrency,
            killers,
            queue: (0..messages).map(|id| (id, 0)).collect(),
            handled: BTreeMap::new(),
            shelved: BTreeSet::new(),
            deaths: 0,
        }
    }

    /// Runs this many processes, restarting each when it dies, until nothing is left.
    fn run(&mut self, processes: usize, mut choice: impl FnMut(usize) -> usize) -> Result<(), TestCaseError> {
        let mut fleet: Vec<Process> = (0..processes).map(|_| Process::new(self.rule)).collect();
        for step in 0..200_000 {
            if self.is_done(&fleet) {
                return Ok(());
            }
            let choice = choice(step);
            self.step(&mut fleet[choice / 7 % processes], choice);
        }
        Err(TestCaseError::fail("it does not come to an end"))
    }

    fn is_done(&self, processes: &[Process]) -> bool {
        let idle = |it: &Process| it.inbox.is_empty() && it.running.is_empty() && it.kept.is_none();
        self.queue.is_empty() && processes.iter().all(idle)
    }

    /// Makes one step in one process: a handler ends (or kills), or a delivery is taken.
    fn step(&mut self, process: &mut Process, choice: usize) {
        let most = if process.watch.together() { self.prefetch } else { 1 };
        while process.kept.is_none() && process.inbox.len() + process.running.len() < most {
            let Some((id, times)) = self.queue.pop_front() else { break };
            process.inbox.push_back((id, times + 1));
        }
        let room = process.running.len() < if process.watch.together() { self.concurrency } else { 1 };
        let may_take = room && (process.kept.is_some() || !process.inbox.is_empty());
        if may_take && (choice.is_multiple_of(2) || process.running.is_empty()) {
            self.take(process);
        } else if !process.running.is_empty() {
            let (id, times) = process.running.remove(choice / 2 % process.running.len());
            if times > self.allowed {
                self.shelved.insert(id);
            } else if self.killers.contains(&id) {
                self.die(process, (id, times));
            } else {
                *self.handled.entry(id).or_default() += 1;
            }
        }
    }

    fn take(&mut self, process: &mut Process) {
        let (id, times) = process.kept.take().or_else(|| process.inbox.pop_front()).unwrap();
        match process.watch.arrived(self.rule.suspicion(&handed_out(times), false, 0)) {
            Step::Handle | Step::Widen { .. } => process.running.push((id, times)),
            Step::Isolate => {
                let mut copies = 0;
                for (id, times) in process.inbox.drain(..).rev() {
                    match (self.release_counts, times) {
                        (false, _) => self.queue.push_front((id, times - 1)),
                        (true, 1) => self.queue.push_front((id, times)),
                        (true, _) => {
                            copies += 1;
                            self.queue.push_back((id, times - 1));
                        }
                    }
                }
                process.watch.gave_back_copies(copies);
                process.kept = Some((id, times));
            }
        }
    }

    /// Returns everything in flight to the front of the queue, charged; the process starts again.
    fn die(&mut self, process: &mut Process, killer: (u32, u32)) {
        self.deaths += 1;
        let dead = std::mem::replace(process, Process::new(self.rule));
        let in_flight = dead.running.into_iter().chain(dead.kept).chain(dead.inbox);
        for charged in in_flight.chain([killer]) {
            self.queue.push_front(charged);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn killers_are_turned_away_and_take_nobody_with_them(
        release_counts: bool,
        killers in prop::collection::btree_set(0_u32..120, 0..4),
        prefetch in 1_usize..60,
        concurrency in 1_usize..16,
        processes in 1_usize..4,
        choices in prop::collection::vec(any::<usize>(), 64),
    ) {
        // One death beside others to be noticed, and one more beside each new killer.
        let allowed = 10;
        let choice = |step: usize| choices[step % choices.len()].wrapping_add(step / choices.len());
        let mut world = World::new(release_counts, allowed, prefetch, concurrency.min(prefetch), 120, killers.clone());
        world.run(processes, choice)?;
        prop_assert_eq!(&world.shelved, &killers);
        // Two killers in flight together are charged together.
        let killer_count = u32::try_from(killers.len()).unwrap();
        prop_assert!(world.deaths <= killer_count * allowed, "{} deaths", world.deaths);
        let mut innocent = (0..120).filter(|id| !killers.contains(id));
        prop_assert!(innocent.all(|id| world.handled.get(&id) == Some(&1)), "{:?}", world.handled);
    }
}

/// Many killers at once, and few deliveries allowed: each killer is charged to the others at most once.
#[test]
fn several_killers_and_two_processes_spare_the_innocent() {
    for (release_counts, seed) in
        [true, false].into_iter().flat_map(|counts| (0..100).map(move |seed| (counts, seed)))
    {
        let mut random = seed * 7919 + 12345_u64;
        let mut random = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % (1 << 31)).unwrap()
        };
        let mut killers = BTreeSet::new();
        while killers.len() < 4 {
            killers.insert(u32::try_from(random() % 300).unwrap());
        }
        let mut world = World::new(release_counts, 4, 100, 16, 300, killers.clone());
        world.run(2, |_| random()).unwrap();
        assert_eq!(world.shelved, killers, "seed {seed}, giving back counts: {release_counts}");
    }
}
