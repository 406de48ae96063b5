//! Which messages were handled, and when.

use std::io::BufRead as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Serialize;
use tokio::sync::Notify;

/// RabbitMQ needs a moment to hand settlements on; those still waiting when the channel closes are forgotten.
const PARTING: Duration = Duration::from_millis(500);

pub struct Tally {
    wanted: u64,
    inner: Mutex<Inner>,
    all_settled: Notify,
}

#[derive(Default)]
struct Inner {
    seen: Vec<u64>,
    handled: u64,
    duplicates: u64,
    settled: u64,
    began: Option<Instant>,
    ended: Option<Instant>,
}

#[derive(Serialize)]
struct Finish {
    seconds: f64,
    messages: u64,
    duplicates: u64,
}

impl Tally {
    pub fn new(wanted: u64) -> Self {
        let inner = Inner { seen: vec![0; (wanted / 64 + 1) as usize], ..Inner::default() };
        Self { wanted, inner: Mutex::new(inner), all_settled: Notify::new() }
    }

    /// Notes the message with this body; true when it was the last one.
    pub fn handle(&self, body: &[u8]) -> bool {
        let mut inner = self.inner.lock().expect("nobody panics");
        inner.began.get_or_insert_with(Instant::now);
        let digits = std::str::from_utf8(&body[1..13]).expect("the body begins with a number");
        let number: u64 = digits.parse().expect("the body begins with a number");
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if inner.seen[word] & bit == 0 {
            inner.seen[word] |= bit;
            inner.handled += 1;
        } else {
            inner.duplicates += 1;
        }
        inner.handled == self.wanted
    }

    pub fn settled(&self, messages: u64) {
        let mut inner = self.inner.lock().expect("nobody panics");
        inner.settled += messages;
        if inner.settled >= self.wanted && inner.ended.is_none() {
            inner.ended = Some(Instant::now());
            self.all_settled.notify_one();
        }
    }

    pub fn is_settled(&self) -> bool {
        self.inner.lock().expect("nobody panics").ended.is_some()
    }

    pub async fn until_settled(&self) {
        if !self.is_settled() {
            self.all_settled.notified().await;
        }
    }

    /// Prints the report, and gives the broker its moment.
    pub async fn finish(&self) -> Result<()> {
        let finish = {
            let inner = self.inner.lock().expect("nobody panics");
            let (began, ended) = (inner.began.context("no message came")?, inner.ended.context("not all settled")?);
            let seconds = (ended - began).as_secs_f64();
            Finish { seconds, messages: inner.handled, duplicates: inner.duplicates }
        };
        println!("{}", serde_json::to_string(&finish)?);
        tokio::time::sleep(PARTING).await;
        Ok(())
    }
}

/// Says that everything is prepared, and waits for the signal.
pub fn ready() -> Result<()> {
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
