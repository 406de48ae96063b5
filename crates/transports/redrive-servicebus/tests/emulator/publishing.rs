//! Tests of publishing: faults and scheduled messages.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use redrive_contract::eventually;
use redrive_core::{BoxError, Message, Publisher, TransportErrorKind};
use redrive_servicebus::{Entity, ServiceBus};
use redrive_servicebus_emulator::{Effect, Emulator, Fault, Settings, Step, Topic};
use tokio::time::timeout;

const QUEUE: &str = "orders";

async fn emulator() -> Result<Emulator, BoxError> {
    Ok(Emulator::builder().queue(QUEUE, Settings::default()).start().await?)
}

async fn connected(emulator: &Emulator) -> Result<ServiceBus, BoxError> {
    Ok(ServiceBus::connect(&emulator.connection_string(), QUEUE).await?)
}

fn ids(emulator: &Emulator, entity: &str) -> Result<Vec<String>, BoxError> {
    let messages = emulator.entity(entity)?.messages();
    let id = |message: &redrive_servicebus_emulator::amqp::Value| message.as_text().unwrap_or("?").to_owned();
    let mut ids: Vec<_> = messages.iter().map(|found| id(&found.message.properties.message_id)).collect();
    ids.sort();
    Ok(ids)
}

#[tokio::test]
async fn a_lost_answer_is_an_error_that_says_that_the_message_may_be_stored() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let publisher = connected(&emulator).await?.publisher();
    emulator.inject(Fault::new(Step::Send, Effect::DropConnection).on(QUEUE));
    let error = publisher.publish(Message::new("").with_id("a")).await.expect_err("nobody answered");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("may be stored"), "{error}");
    assert_eq!(ids(&emulator, QUEUE)?, ["a"], "as it is");
    publisher.publish(Message::new("").with_id("a")).await?;
    assert_eq!(ids(&emulator, QUEUE)?, ["a", "a"]);
    Ok(())
}

/// Drops a future after so many polls, if it is not ready before.
pub(crate) async fn dropped_after(polls: usize, future: impl Future) {
    let (mut future, mut polled) = (pin!(future), 0);
    poll_fn(|context| {
        polled += 1;
        if polled <= polls { future.as_mut().poll(context).map(drop) } else { Poll::Ready(()) }
    })
    .await;
}

/// Whoever stops waiting, at whatever step, leaves no link open, no message half sent, and the connection usable.
#[tokio::test]
async fn a_publish_that_is_cancelled_harms_no_other() -> Result<(), BoxError> {
    // A link that the broker ended over a size is replaced by one for this message alone.
    for alone in [false, true] {
        let emulator = emulator().await?;
        let publisher = connected(&emulator).await?.publisher();
        let view = emulator.entity(QUEUE)?;
        for polls in 0..20 {
            if alone {
                let condition = "amqp:link:message-size-exceeded".to_owned();
                emulator.inject(Fault::new(Step::Send, Effect::Detach { condition }));
            }
            let large = Message::new(vec![b'x'; 200 * 1024]).with_id("large");
            dropped_after(polls, publisher.publish(large)).await;
            emulator.clear_faults();
            let small = publisher.publish(Message::new("small").with_id(format!("small {polls}")));
            timeout(Duration::from_secs(20), small)
                .await
                .map_err(|_| format!("{polls} polls: it hangs"))??;
            eventually("no other link is open", async || view.senders() <= 1).await;
        }
        let there = ids(&emulator, QUEUE)?;
        let small = there.iter().filter(|id| id.starts_with("small")).count();
        assert_eq!((small, emulator.connections()), (20, 1), "{there:?}");
    }
    Ok(())
}

/// A link without credit lets nothing be sent. Whoever stops waiting leaves no task, and no message that is sent later.
#[tokio::test]
async fn a_publish_that_is_cancelled_without_credit_leaves_nothing() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let publisher = connected(&emulator).await?.publisher();
    let view = emulator.entity(QUEUE)?;
    emulator.inject(Fault::new(Step::Attach, Effect::WithholdCredit).on(QUEUE));
    dropped_after(1, publisher.publish(Message::new("first"))).await;
    eventually("its link is attached", async || view.senders() == 1).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for number in 0..50 {
        let size = if number % 2 == 0 { 10 } else { 200 * 1024 };
        dropped_after(1, publisher.publish(Message::new(vec![b'x'; size]))).await;
    }
    // The task of the attach may have ended meanwhile.
    assert!(tasks() <= before, "{} tasks, {before} before", tasks());
    assert_eq!(view.senders(), 1);
    emulator.detach(QUEUE);
    eventually("the link is detached", async || view.senders() == 0).await;
    timeout(Duration::from_secs(20), publisher.publish(Message::new("").with_id("later"))).await??;
    assert_eq!((ids(&emulator, QUEUE)?, emulator.connections()), (vec!["later".to_owned()], 1));
    Ok(())
}

/// Lets this time pass at once, which ends no wait of another kind: the connection is not idle for so long.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Stops waiting on a new link without credit. The second poll comes when the link is attached.
async fn without_credit(publisher: &Publisher) {
    dropped_after(2, publisher.publish(Message::new("first"))).await;
}

/// The wait for credit is that of the link: each sender would begin it anew, and stop waiting before it is over.
#[tokio::test]
async fn a_link_that_lets_nothing_be_sent_is_given_up_though_every_sender_stops_waiting()
-> Result<(), BoxError> {
    for size in [10, 200 * 1024] {
        let emulator = emulator().await?;
        let publisher = connected(&emulator).await?.publisher();
        let view = emulator.entity(QUEUE)?;
        emulator.inject(Fault::new(Step::Attach, Effect::WithholdCredit).on(QUEUE));
        without_credit(&publisher).await;
        assert_eq!(view.senders(), 1);
        for _ in 0..4 {
            dropped_after(1, publisher.publish(Message::new(vec![b'x'; size]))).await;
            pass(Duration::from_secs(8)).await;
        }
        let later = timeout(Duration::from_secs(20), publisher.publish(Message::new("").with_id("later")));
        later.await.map_err(|_| format!("{size} bytes: it hangs"))??;
        assert_eq!((ids(&emulator, QUEUE)?, emulator.connections()), (vec!["later".to_owned()], 1));
        eventually("the link is closed", async || view.senders() == 1).await;
    }
    Ok(())
}

/// A sender that comes late waits for the rest of the time only, and is told why the link is given up.
#[tokio::test]
async fn a_sender_behind_a_message_that_is_stuck_waits_for_the_rest_of_its_time() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let publisher = connected(&emulator).await?.publisher();
    emulator.inject(Fault::new(Step::Attach, Effect::WithholdCredit).on(QUEUE));
    without_credit(&publisher).await;
    dropped_after(1, publisher.publish(Message::new(vec![b'x'; 200 * 1024]))).await;
    pass(Duration::from_secs(28)).await;
    let behind = timeout(Duration::from_secs(20), publisher.publish(Message::new("behind")));
    // On a stalled machine its time may be over already: then there is another link.
    if let Err(error) = behind.await? {
        assert!(error.to_string().contains("no credit"), "{error}");
    }
    timeout(Duration::from_secs(20), publisher.publish(Message::new("later"))).await??;
    Ok(())
}

#[tokio::test]
async fn of_many_only_that_which_the_broker_refuses_fails() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let publisher = connected(&emulator).await?.publisher();
    emulator.inject(Fault::new(Step::Send, Effect::server_busy()).on(QUEUE).after(70));
    let messages = (0..150).map(|n| Message::new("").with_id(format!("m{n:03}")));
    let results = publisher.publish_all(messages).await;
    let failed: Vec<_> = (0..).zip(&results).filter(|(_, result)| result.is_err()).map(|(n, _)| n).collect();
    assert_eq!((results.len(), failed.len()), (150, 1), "{results:?}");
    let mut expected: Vec<_> = (0..150).map(|n: usize| format!("m{n:03}")).collect();
    expected.remove(failed[0]);
    assert_eq!(ids(&emulator, QUEUE)?, expected);
    Ok(())
}

/// A message that was reported as stored is stored, even if the connection ends.
#[tokio::test]
async fn a_connection_that_ends_among_many_loses_nothing_without_an_error() -> Result<(), BoxError> {
    let emulator = emulator().await?;
    let publisher = connected(&emulator).await?.publisher();
    emulator.inject(Fault::new(Step::Send, Effect::DropConnection).on(QUEUE).after(70));
    let message = |n: usize| Message::new("").with_id(format!("m{n:03}"));
    let results = publisher.publish_all((0..150).map(message)).await;
    assert!(results.iter().any(Result::is_err), "one was on its way");
    let there = ids(&emulator, QUEUE)?;
    for (n, result) in results.iter().enumerate() {
        assert!(result.is_err() || there.contains(&format!("m{n:03}")), "m{n:03} is lost");
    }
    let failed = results.iter().enumerate().filter(|(_, result)| result.is_err()).map(|(n, _)| message(n));
    for result in publisher.publish_all(failed).await {
        result?;
    }
    let mut there = ids(&emulator, QUEUE)?;
    there.dedup();
    assert_eq!(there.len(), 150);
    Ok(())
}

#[tokio::test]
async fn a_subscription_publishes_to_its_topic_and_a_time_is_kept() -> Result<(), BoxError> {
    let topic = Topic::new("news", Settings::default()).subscription("sport", Settings::default());
    let emulator = Emulator::builder().topic(topic).queue(QUEUE, Settings::default()).start().await?;
    let subscription = Entity::subscription("news", "sport");
    let sport = ServiceBus::connect(&emulator.connection_string(), subscription).await?;
    assert_eq!(sport.publisher().destination(), "news");
    sport.publisher().publish(Message::new("").with_id("now")).await?;
    assert_eq!(ids(&emulator, "news/Subscriptions/sport")?, ["now"]);
    let time = SystemTime::now() + Duration::from_secs(3600);
    let orders = sport.publisher().to(QUEUE);
    orders.publish_at(Message::new("").with_id("later"), time).await?;
    orders.publish_after(Message::new("").with_id("at the end of time"), Duration::MAX).await?;
    assert_eq!(ids(&emulator, QUEUE)?, ["at the end of time", "later"]);
    assert_eq!(emulator.entity(QUEUE)?.counts().scheduled, 2);
    Ok(())
}
