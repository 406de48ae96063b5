//! Shows what happens, as it happens, and at the end where every message is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use redrive::{Disposition, Event, Failure};
use tokio::sync::watch;

#[derive(Clone)]
pub struct Screen {
    began: Instant,
    lines: Arc<Mutex<BTreeMap<String, Line>>>,
    changed: watch::Sender<()>,
}

/// Where a message is.
#[derive(Clone, Default)]
struct Line {
    attempts: u32,
    place: Place,
    why: String,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    UnderWay,
    Acknowledged,
    DeadLetterShelf,
    ParkingShelf,
}

impl Screen {
    pub fn new() -> Self {
        println!("{:>7}  {:<8}  what happens", "seconds", "message");
        Self { began: Instant::now(), lines: Arc::default(), changed: watch::Sender::new(()) }
    }

    pub fn say(&self, id: &str, what: &str) {
        println!("{:>7.2}  {id:<8}  {what}", self.began.elapsed().as_secs_f32());
    }

    pub fn observer(&self) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
        let screen = self.clone();
        move |event| match event {
            Event::Received { delivery } => {
                let redriven =
                    if delivery.history().redrives.or_highest() > 0 { " after a redrive" } else { "" };
                screen.say(delivery.id(), &format!("attempt {}{redriven}", delivery.attempt()));
                screen.update(delivery.id(), |line| line.attempts += 1);
            }
            Event::Settled { delivery, disposition, .. } => screen.settled(delivery.id(), disposition),
            Event::NotSettled { delivery, error, .. } => {
                screen.say(delivery.id(), &format!("not settled: {error}"));
            }
            _ => {}
        }
    }

    fn settled(&self, id: &str, disposition: &Disposition) {
        let why = disposition.failure().map(Failure::to_string).unwrap_or_default();
        let (place, what) = match disposition {
            Disposition::Ack => (Place::Acknowledged, "  acknowledged".to_owned()),
            Disposition::Retry(wait, failure) => {
                (Place::UnderWay, format!("  failed: {}; again in {} s", failure.text(), wait.as_secs_f32()))
            }
            Disposition::DeadLetter(_) => {
                (Place::DeadLetterShelf, format!("  onto the dead-letter shelf: {why}"))
            }
            Disposition::Park(_) => (Place::ParkingShelf, format!("  onto the parking shelf: {why}")),
            other => (Place::UnderWay, format!("  {}", other.name())),
        };
        self.say(id, &what);
        self.update(id, |line| {
            line.place = place;
            line.why = why;
        });
    }

    fn update(&self, id: &str, change: impl FnOnce(&mut Line)) {
        change(self.lines.lock().expect("nobody panics here").entry(id.to_owned()).or_default());
        self.changed.send_replace(());
    }

    /// Resolves once this message is on the dead-letter shelf.
    pub async fn dead_lettered(&self, id: &str) {
        self.until(|lines| lines.get(id).is_some_and(|line| line.place == Place::DeadLetterShelf)).await;
    }

    /// Resolves once all messages are where they stay.
    pub async fn all_at_rest(&self, how_many: usize) {
        let at_rest = |(id, line): (&String, &Line)| match line.place {
            Place::UnderWay => false,
            Place::DeadLetterShelf => id != crate::service::KEEPS_COMING_BACK,
            Place::Acknowledged | Place::ParkingShelf => true,
        };
        self.until(|lines| lines.len() == how_many && lines.iter().all(at_rest)).await;
    }

    async fn until(&self, condition: impl Fn(&BTreeMap<String, Line>) -> bool) {
        let mut changed = self.changed.subscribe();
        while !condition(&self.lines.lock().expect("nobody panics here")) {
            changed.changed().await.expect("the sender is our own");
        }
    }

    pub fn print_table(&self) {
        let mut table = Table::new();
        table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["message", "where it ended", "attempts", "why"]);
        for (id, line) in self.lines.lock().expect("nobody panics here").iter() {
            let place = match line.place {
                Place::UnderWay => "under way",
                Place::Acknowledged => "acknowledged",
                Place::DeadLetterShelf => "dead-letter shelf",
                Place::ParkingShelf => "parking shelf",
            };
            table.add_row([id, place, &line.attempts.to_string(), &line.why]);
        }
        println!("{table}");
    }
}
