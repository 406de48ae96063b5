//! What waits while its process loses connections and channels was never handled: however often it was handed out by then, it is
//! no poison.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redrive::Shelves as _;
use redrive::prelude::*;
use redrive::rabbitmq::{Options, QueueType};
use redrive_brokers::{Node, Proxy, Version, broker};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Combination, Delays, fate, on_both_versions, poll_again, within};
use tokio::sync::{Notify, Semaphore};

on_both_versions!(300; connections_are_lost);

/// How often a message may be handed out.
const ALLOWED: u32 = 2;
/// How often the consumer loses what waits.
const LOSSES: usize = 2 * ALLOWED as usize;
/// Messages whose handlers fill the consumer.
const SLOW: usize = 2;
/// Messages that wait behind them.
const WAITING: usize = 6;
const SOON: Duration = Duration::from_secs(120);

async fn connections_are_lost(on: Combination) {
    let (url, queue) = (broker(on.version).url, on.unique("innocent"));
    let (_, rest) = url.split_once('@').expect("the URL has credentials");
    let address: SocketAddr = rest.split('/').next().unwrap().parse().expect("it has an address and a port");
    let proxy = Proxy::start(address).await.unwrap();
    let through = url.replacen(&address.to_string(), &proxy.addr().to_string(), 1);
    let rabbit = Rabbit::connect(&url).await;
    let cut = async || {
        for _ in 0..LOSSES {
            proxy.refuse(true);
            proxy.cut();
            until(&rabbit, &queue, ((SLOW + WAITING) as u32, 0)).await;
            proxy.refuse(false);
            until(&rabbit, &queue, (0, 1)).await;
        }
    };
    what_waits_is_handled(on.options(&queue), [&through, &url], cut).await;
    rabbit.delete(["", "--dead-letters", "--parking-lot"].map(|end| format!("{queue}{end}"))).await;
    rabbit.delete(fate::rungs(&queue)).await;
}

/// Each time-out closes the channel, and counts as a delivery of everything on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn v3_10_deliveries_are_held_too_long() {
    let node = Node::start_async(Version::V3_10, &["consumer_timeout = 1000"]).await.unwrap();
    let often = ["eval", "application:set_env(rabbit, channel_tick_interval, 200)."];
    node.aside(move |node| node.ctl(&often)).await.unwrap();
    let timed_out = async || {
        let deadline = Instant::now() + SOON;
        while node.log().matches("delivery acknowledgement on channel").count() < LOSSES {
            poll_again(millis(50), deadline, || node.log()).await;
        }
    };
    let on = Combination { delays: Delays::Ladder, ..Combination::new(Version::V3_10, QueueType::Quorum) };
    what_waits_is_handled(on.options("slow"), [&node.url(), &node.url()], timed_out).await;
}

/// Lets a consumer lose what waits behind its handlers, then ends these. `urls`: of the consumer, and of an operator.
async fn what_waits_is_handled(options: Options, urls: [&str; 2], lose: impl AsyncFn()) {
    let options = options.delivery_limit(40);
    let transport = options.clone().connect(urls[0]).await.unwrap();
    let operator = options.connect(urls[1]).await.unwrap();
    let begun = Arc::new(Semaphore::new(0));
    let (may_end, all_handled) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let handled: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let consumer = Consumer::new(transport)
        .concurrency(SLOW)
        .prefetch((SLOW + WAITING) as u32)
        .with_dead_letter_backoff(DeadLetterBackoff::new([secs(1)]).poison_after(ALLOWED))
        .handler({
            let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
            let (handled, all_handled) = (Arc::clone(&handled), Arc::clone(&all_handled));
            move |message: Delivery| {
                let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
                let (handled, all_handled) = (Arc::clone(&handled), Arc::clone(&all_handled));
                async move {
                    if message.id().starts_with("slow") {
                        begun.add_permits(1);
                        may_end.acquire().await.unwrap().forget();
                    } else if let mut handled = handled.lock().unwrap()
                        && handled.insert(message.id().to_owned())
                        && handled.len() == WAITING
                    {
                        all_handled.notify_one();
                    }
                    Ok::<_, BoxError>(())
                }
            }
        });
    let work = async {
        for slow in 0..SLOW {
            operator.publish(Message::new("").with_id(format!("slow {slow}"))).await.unwrap();
        }
        begun.acquire_many(SLOW as u32).await.unwrap().forget();
        for waiting in 0..WAITING {
            operator.publish(Message::new("").with_id(format!("waits {waiting}"))).await.unwrap();
        }
        lose().await;
        may_end.add_permits(Semaphore::MAX_PERMITS / 2);
        within(SOON, "what waited is handled", all_handled.notified()).await;
    };
    consumer.run_until(work).await.unwrap();
    let shelf = operator.shelves().browse(Shelf::DeadLetter, None, 9).await.unwrap().entries;
    let innocent =
        shelf.iter().filter(|shelved| shelved.message.id().is_some_and(|id| id.starts_with("waits")));
    assert_eq!(innocent.count(), 0, "{shelf:?}");
}

async fn until(rabbit: &Rabbit, queue: &str, expected: (u32, u32)) {
    let deadline = Instant::now() + SOON;
    loop {
        let counts = rabbit.counts(queue).await;
        if counts == Some(expected) {
            return;
        }
        poll_again(millis(20), deadline, || format!("{counts:?} instead of {expected:?}")).await;
    }
}
