//! Runs a scenario on a target: the same code for every broker.

mod declaring;
mod fence;
mod probe;
mod steps;

use crate::client::{Client, Event, Method, Reply};
use crate::message::Message;
use crate::names::{self, Names};
use crate::observation::{Line, Observed, Words};
use crate::scenario::{Argument, CHANNELS, Destination, Kind, Scenario, Step};
use crate::target::Target;
use crate::wire::Writer;
use anyhow::{Context as _, Result};
use fence::Fence;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The channel that publishes with confirms.
const PUBLISHER: u16 = 1;
/// The first of the channels that consume.
const WORKERS: u16 = 2;
/// The channel that declares, deletes and asks.
const CONTROL: u16 = 9;

/// What a run showed.
#[derive(Debug)]
pub struct Outcome {
    /// Step by step.
    pub observed: Vec<Observed>,
    /// Steps took so long that something may have expired meanwhile: the run says nothing.
    pub late: bool,
}

/// Runs `scenario` on `target` under names that begin with `prefix`; a tick lasts `tick`.
///
/// # Errors
/// If the broker cannot be reached, hangs, or sends what is not AMQP 0-9-1.
pub fn run(scenario: &Scenario, target: Target, prefix: &str, tick: Duration) -> Result<Outcome> {
    let names = Names { prefix: prefix.to_owned(), tick };
    let client = Client::connect(target.amqp, &target.vhost)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let words = Words { names: names.clone(), vhost: target.vhost.clone(), during: began - 2..=began + 3600 };
    let quorum = scenario.queues.iter().any(|queue| queue.kind == Kind::Quorum);
    let fence = (quorum && target.clock.is_real()).then(|| Fence::new(&target, prefix)).transpose()?;
    let mut run = Run {
        scenario,
        fence,
        target,
        names,
        words,
        client,
        control_is_open: false,
        publisher_is_open: false,
        workers: Default::default(),
        existing: BTreeSet::new(),
        policies: BTreeSet::new(),
        observed: Vec::new(),
        lines: Vec::new(),
        counts: None,
        idle: false,
        last: None,
        messages: 0,
        consumers: 0,
        group_began: Duration::ZERO,
        waited: Duration::ZERO,
        late: false,
    };
    let outcome = run.all();
    run.clean().context("the scenario could not be removed")?;
    outcome?;
    Ok(Outcome { observed: run.observed, late: run.late })
}

/// A channel that consumes.
#[derive(Debug, Default)]
struct Worker {
    open: bool,
    /// Tags of the messages that it has, oldest first.
    held: Vec<u64>,
    /// Settled in a transaction that is open.
    uncommitted: Vec<u64>,
    transacts: bool,
    /// Its consumers, newest last.
    consumers: Vec<Consumer>,
}

#[derive(Debug)]
struct Consumer {
    name: String,
    queue: usize,
    acknowledges: bool,
}

#[derive(Debug)]
struct Run<'a> {
    scenario: &'a Scenario,
    /// On a real broker with quorum queues.
    fence: Option<Fence>,
    target: Target,
    names: Names,
    words: Words,
    client: Client,
    control_is_open: bool,
    publisher_is_open: bool,
    workers: [Worker; CHANNELS],
    /// The queues that were there when last seen.
    existing: BTreeSet<usize>,
    policies: BTreeSet<usize>,
    observed: Vec<Observed>,
    /// Of the current step.
    lines: Vec<Line>,
    /// What the queues had when they were last looked at, if nothing was done since.
    counts: Option<String>,
    /// The current step did nothing.
    idle: bool,
    /// The message that was received last.
    last: Option<Message>,
    messages: usize,
    consumers: usize,
    /// When the steps since the last wait began.
    group_began: Duration,
    /// All waits so far.
    waited: Duration,
    late: bool,
}

impl Run<'_> {
    fn all(&mut self) -> Result<()> {
        self.topology()?;
        if self.scenario.queues.iter().any(|queue| expires(&queue.arguments)) {
            // Otherwise it may be gone before the scenario begins.
            self.check_time();
        }
        self.target.clock.begin();
        self.renew_leases()?;
        for step in &self.scenario.steps {
            self.step(step)?;
            if self.late {
                return Ok(());
            }
            self.finish_step(format!("{step:?}"))?;
        }
        self.end()
    }

    fn finish_step(&mut self, step: String) -> Result<()> {
        self.target.clock.tick();
        let lines = std::mem::take(&mut self.lines);
        self.observed.push(Observed { step, lines });
        Ok(())
    }

    fn topology(&mut self) -> Result<()> {
        let scenario = self.scenario;
        for exchange in 0..scenario.exchanges.len() {
            self.declare_exchange(exchange)?;
        }
        for (place, policy) in scenario.policies.iter().enumerate() {
            self.set_policy(place, policy)?;
        }
        for queue in 0..scenario.queues.len() {
            self.declare(queue, None)?;
        }
        for binding in &scenario.bindings {
            self.bind(binding, true)?;
        }
        self.quiet()?;
        self.finish_step("the topology".to_owned())
    }

    /// The time of a queue that expires begins now, not while the others were declared.
    fn renew_leases(&mut self) -> Result<()> {
        for (place, queue) in self.scenario.queues.iter().enumerate() {
            if expires(&queue.arguments) && self.existing.contains(&place) {
                self.declare(place, None)?;
            }
        }
        self.lines.clear();
        Ok(())
    }

    /// Gives everything back, and takes every message that is left.
    fn end(&mut self) -> Result<()> {
        // Otherwise what one channel gives back would be delivered to the next, or not, before that closes too.
        for place in 0..CHANNELS {
            while !self.workers[place].consumers.is_empty() {
                self.cancel(place)?;
            }
        }
        self.close_in_turn()?;
        self.quiet()?;
        self.finish_step("all channels close".to_owned())?;
        for queue in 0..self.scenario.queues.len() {
            self.drain(queue)?;
            self.finish_step(format!("what is left in queue {queue}"))?;
        }
        self.check_time();
        Ok(())
    }

    fn clean(&mut self) -> Result<()> {
        for queue in 0..self.scenario.queues.len() {
            let mut arguments = Writer::default();
            arguments.short(0).short_text(&self.names.queue(queue)).bits(&[false, false, false]);
            self.control((50, 40), &arguments, (50, 41))?;
        }
        for exchange in 0..self.scenario.exchanges.len() {
            let mut arguments = Writer::default();
            arguments.short(0).short_text(&self.names.own_exchange(exchange)).bits(&[false, false]);
            self.control((40, 20), &arguments, (40, 21))?;
        }
        for place in std::mem::take(&mut self.policies) {
            self.clear_policy(place)?;
        }
        if let Some(fence) = self.fence.take() {
            fence.remove()?;
        }
        self.client.call(
            0,
            (10, 50),
            Writer::default().short(200).short_text("").short(0).short(0),
            &[(10, 51)],
        )?;
        Ok(())
    }

    fn say(&mut self, text: impl Into<String>) {
        self.lines.push(Line::new(text));
    }

    /// A method on the control channel, which opens again after an error.
    fn control(&mut self, method: Method, arguments: &Writer, reply: Method) -> Result<Reply> {
        self.open_control()?;
        let reply = self.client.call(CONTROL, method, arguments, &[reply])?;
        self.control_is_open = reply != Reply::Closed;
        Ok(reply)
    }

    fn open_control(&mut self) -> Result<()> {
        self.reconnect_if_closed()?;
        if !self.control_is_open {
            self.client.open(CONTROL)?;
            self.control_is_open = true;
        }
        Ok(())
    }

    fn reconnect_if_closed(&mut self) -> Result<()> {
        if !self.client.is_closed() {
            return Ok(());
        }
        self.take_events();
        self.client = Client::connect(self.target.amqp, &self.target.vhost)?;
        self.control_is_open = false;
        self.publisher_is_open = false;
        self.workers = Default::default();
        Ok(())
    }

    /// Makes lines of the events, and remembers what they change.
    fn take_events(&mut self) {
        for event in self.client.events() {
            self.lines.push(self.words.event(&event));
            match event {
                Event::Deliver { channel, consumer, delivery } => {
                    let worker = &mut self.workers[usize::from(channel - WORKERS)];
                    if worker.consumers.iter().any(|it| it.name == consumer && it.acknowledges)
                    {
                        worker.held.push(delivery.tag);
                    }
                    self.last = Some(delivery.message);
                }
                Event::Cancel { channel, consumer } => {
                    self.workers[usize::from(channel - WORKERS)]
                        .consumers
                        .retain(|it| it.name != consumer);
                }
                Event::ChannelClosed { channel: PUBLISHER, .. } => self.publisher_is_open = false,
                Event::ChannelClosed { channel, .. } if channel != CONTROL => {
                    self.workers[usize::from(channel - WORKERS)] = Worker::default();
                }
                Event::Return { .. }
                | Event::Ack { .. }
                | Event::Nack { .. }
                // Each call on the control channel knows itself, and may have opened it again.
                | Event::ChannelClosed { .. }
                | Event::ConnectionClosed { .. }
                | Event::Gone => {}
            }
        }
    }

    /// Notes that time since the last wait is up, or that it took too long.
    fn check_time(&mut self) {
        let took = self.target.clock.now().saturating_sub(self.group_began);
        self.late |= took > self.names.tick * 3 / 20;
    }
}

fn expires(arguments: &[Argument]) -> bool {
    arguments.iter().any(|argument| matches!(argument, Argument::Expires(_)))
}

fn kind_name(kind: Kind) -> &'static str {
    if kind == Kind::Quorum { "quorum" } else { "classic" }
}
