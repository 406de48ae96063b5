//! Waiting until the broker has handed on what it was given, and looking at what is where.

use super::{CONTROL, Run, expires, kind_name};
use crate::client::Reply;
use crate::observation::{Line, origin};
use crate::scenario::Kind;
use crate::wire::{Reader, Writer};
use anyhow::Result;
use std::time::{Duration, Instant};

/// A broker that moves messages for longer goes round in circles.
const ROUNDS: usize = 40;
/// The lane of what the queues have.
const COUNTS: &str = "counts";
/// How many looks must show the same.
const EQUAL: usize = 2;
/// With quorum queues: a rejection, the dead letter and its delivery each wait for the log once.
const EQUAL_WITH_FENCE: usize = 3;
/// A quorum queue that has something to deliver does it in this time.
const DELIVERY: Duration = Duration::from_millis(200);

impl Run<'_> {
    /// Waits until several looks at all queues show the same, and notes what they show and what arrived.
    pub(super) fn quiet(&mut self) -> Result<()> {
        // A queue that is not asked only shows what it delivers.
        let hides = self.scenario.queues.iter().any(|queue| expires(&queue.arguments));
        let least = self.target.clock.pause() * if hides { 6 } else { 1 };
        let wanted = if self.fence.is_some() { EQUAL_WITH_FENCE } else { EQUAL };
        let (mut before, mut equal, mut pause) = (None, 0, least);
        for _ in 0..ROUNDS {
            self.client.listen(Instant::now() + pause)?;
            if let Some(fence) = &mut self.fence {
                fence.pass()?;
            }
            let asked = Instant::now();
            let now = (self.look()?, self.client.waiting());
            // On a busy machine a broker needs longer for everything.
            if self.fence.is_none() {
                pause = least.max(self.target.clock.settling(3 * asked.elapsed()));
            }
            equal = if before.as_ref() == Some(&now) { equal + 1 } else { 1 };
            before = Some(now);
            if equal == wanted {
                break;
            }
        }
        self.take_events();
        let counts = before.map(|(counts, _)| counts).unwrap_or_default();
        self.say_counts(counts.join(", "));
        Ok(())
    }

    /// As [`quiet`](Self::quiet), without a word of what the queues have.
    pub(super) fn settle_down(&mut self) -> Result<()> {
        let lines = std::mem::take(&mut self.lines);
        self.quiet()?;
        let seen = std::mem::replace(&mut self.lines, lines);
        self.lines.extend(seen.into_iter().filter(|line| line.lane != COUNTS));
        self.counts = None;
        Ok(())
    }

    /// After a step that did nothing there is nothing to look at.
    pub(super) fn quiet_as_before(&mut self) -> Result<()> {
        match self.counts.take() {
            Some(counts) => {
                self.say_counts(counts);
                Ok(())
            }
            None => self.quiet(),
        }
    }

    fn say_counts(&mut self, counts: String) {
        self.lines.push(Line { text: counts.clone(), lane: COUNTS.to_owned() });
        self.counts = Some(counts);
    }

    /// What each queue has ready, and its consumers. A queue that expires is not asked: it would live longer.
    fn look(&mut self) -> Result<Vec<String>> {
        let scenario = self.scenario;
        let mut asked: Vec<_> = self.existing.iter().copied().collect();
        asked.retain(|&place| !expires(&scenario.queues[place].arguments));
        let kind_of = |place: usize| scenario.queues[place].kind;
        let all: Vec<_> = asked.iter().map(|&place| self.passive_declare(place)).collect();
        self.open_control()?;
        if let Some(replies) = self.client.call_all(CONTROL, (50, 10), &all, (50, 11))? {
            return asked
                .iter()
                .zip(&replies)
                .map(|(place, reply)| show_counts(*place, kind_of(*place), reply))
                .collect();
        }
        // One of them is gone: each for itself. (The error says nothing that the next does not.)
        self.control_is_open = false;
        let mut counts = Vec::new();
        for place in asked {
            match self.control((50, 10), &self.passive_declare(place), (50, 11))? {
                Reply::Ok(_, reply) => counts.push(show_counts(place, kind_of(place), &reply)?),
                Reply::Got(..) | Reply::Closed => {
                    self.existing.remove(&place);
                    counts.push(format!("q{place} is gone"));
                }
            }
        }
        Ok(counts)
    }

    fn passive_declare(&self, place: usize) -> Writer {
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(place)).bits(&[true]).table(&Vec::new());
        arguments
    }

    /// Takes all messages of a queue.
    pub(super) fn drain(&mut self, place: usize) -> Result<()> {
        let lane = format!("q{place}");
        loop {
            let mut arguments = Writer::default();
            arguments.short(0).short_text(&self.names.queue(place)).bits(&[true]);
            // (60, 71) is get-ok, (60, 72) get-empty.
            self.open_control()?;
            match self.client.call(CONTROL, (60, 70), &arguments, &[(60, 71), (60, 72)])? {
                Reply::Got(delivery, _) => {
                    let lane = format!("{lane} {}", origin(&delivery.message, &self.names));
                    self.lines.push(Line { text: self.words.delivery(&delivery, false), lane });
                }
                Reply::Ok(..) => return Ok(()),
                Reply::Closed => {
                    self.control_is_open = false;
                    self.take_events();
                    // A quorum queue with a single active consumer refuses `basic.get`.
                    let queue = &self.scenario.queues[place];
                    if queue.kind == Kind::Quorum && self.existing.contains(&place) {
                        self.drain_by_consuming(place)?;
                    }
                    return Ok(());
                }
            }
        }
    }

    fn drain_by_consuming(&mut self, place: usize) -> Result<()> {
        let mut arguments = Writer::default();
        arguments.short(0).short_text(&self.names.queue(place)).short_text("drain");
        arguments.bits(&[false, true, false, false]).table(&Vec::new());
        self.control((60, 20), &arguments, (60, 21))?;
        let kind = kind_name(self.scenario.queues[place].kind);
        self.client.listen(Instant::now() + DELIVERY)?;
        for event in self.client.events() {
            let mut line = self.words.event(&event);
            line.lane = format!("q{place} {kind} {}", line.lane);
            self.lines.push(line);
        }
        self.control((60, 30), Writer::default().short_text("drain").bits(&[false]), (60, 31))?;
        Ok(())
    }
}

/// Not the consumers of a quorum queue: RabbitMQ counts channels that hold a message of `basic.get` among them.
fn show_counts(place: usize, kind: Kind, declared: &[u8]) -> Result<String> {
    let mut reader = Reader(declared);
    reader.short_text()?;
    let (messages, consumers) = (reader.long()?, reader.long()?);
    Ok(match kind {
        Kind::Classic => format!("q{place}: {messages} for {consumers}"),
        Kind::Quorum => format!("q{place}: {messages}"),
    })
}
