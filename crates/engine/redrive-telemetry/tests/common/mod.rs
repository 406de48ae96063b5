//! One sequence of messages that contains every ending.
#![allow(dead_code, reason = "each test uses its part")]

use std::io;
use std::sync::{Arc, Mutex};

use redrive_consumer::{Attempt, Consumer, Event, Observer};
use redrive_core::{
    BoxError, DeadLetterBackoff, Delivery, Disposition, Failure, Message, Permanent, Throttled, secs,
};
use redrive_memory::Memory;
use tokio::sync::watch;

/// Fails as the body says.
pub(crate) async fn fails_as_told(
    delivery: Delivery,
    Attempt(attempt): Attempt,
) -> Result<Disposition, BoxError> {
    let body = String::from_utf8_lossy(delivery.message().body()).into_owned();
    match (&*body, attempt) {
        ("fine", _) | ("throttled once", 2..) => Ok(Disposition::Ack),
        ("throttled once", _) => Err(Throttled::after(secs(5), "slow down").into()),
        ("hopeless", _) => Err(Permanent::new("no such item").into()),
        ("sold out", _) => Ok(Disposition::DeadLetter(Failure::custom("OutOfStock", "none left"))),
        _ => Err("no answer".into()),
    }
}

/// Runs a consumer through five messages and eight attempts, with this observer.
pub(crate) async fn run(observer: impl Observer) {
    run_with(|consumer| consumer.observer(observer)).await;
}

/// Does the same with a changed consumer.
pub(crate) async fn run_with(change: impl FnOnce(Consumer<Memory>) -> Consumer<Memory>) {
    let orders = Memory::new("orders");
    for (number, body) in ["fine", "throttled once", "hopeless", "sold out", "never"].into_iter().enumerate()
    {
        orders.publish(Message::new(body).with_id(format!("order-{number}"))).await.unwrap();
    }
    let broker = orders.broker().clone();
    let ended = async move {
        while broker.depth("orders") > 0 {
            tokio::time::sleep(secs(1)).await;
        }
    };
    let preset = DeadLetterBackoff::new([secs(1), secs(2)]).park_exhausted();
    change(Consumer::new(orders))
        .with_dead_letter_backoff(preset)
        .handler(fails_as_told)
        .run_until(ended)
        .await
        .unwrap();
}

/// Waits for events.
#[derive(Clone, Default)]
pub(crate) struct Diary(Arc<watch::Sender<Vec<&'static str>>>);

impl Diary {
    pub(crate) fn observer(&self) -> impl Observer + use<> {
        let diary = self.0.clone();
        move |event: &Event<'_>| {
            let name = match event {
                Event::Received { .. } => "received",
                Event::Paused { .. } => "paused",
                Event::Stopped { .. } => "stopped",
                _ => return,
            };
            diary.send_modify(|seen| seen.push(name));
        }
    }

    pub(crate) async fn until(&self, name: &str) {
        let _ = self.0.subscribe().wait_for(|seen| seen.contains(&name)).await;
    }
}

type Lines = Arc<Mutex<Vec<String>>>;

/// Returns the log lines of this thread, until the guard is dropped.
pub(crate) fn lines() -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let kept = Arc::clone(&lines);
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || Writer(Arc::clone(&kept)));
    (lines, tracing::subscriber::set_default(subscriber.finish()))
}

struct Writer(Lines);

impl io::Write for Writer {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().push(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
