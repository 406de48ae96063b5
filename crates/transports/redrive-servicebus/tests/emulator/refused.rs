//! Entities that refuse for a while: disabled, deleted, replaced, closed to this key. A consumer that has run waits for the end of it.

use std::sync::Arc;
use std::time::Duration;

use redrive_consumer::{Consumer, ConsumerHandle, Event};
use redrive_contract::eventually;
use redrive_core::{BoxError, Delivery, Disposition, Failure, Message, secs};
use redrive_servicebus::{Entity, Options, ServiceBus, Sessions};
use redrive_servicebus_emulator::{Effect, Emulator, EntityStatus, Fault, Settings, Step, Topic};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

const QUEUE: &str = "orders";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A consumer that runs, and the ids of what it handled.
struct Running {
    handle: ConsumerHandle,
    handled: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<Result<redrive_consumer::Report, redrive_consumer::ConsumerError>>,
}

impl Running {
    async fn start(options: Options, address: &str) -> Result<Self, BoxError> {
        // Its first limit is its last: it attaches only once before something is refused.
        let consumer = Consumer::new(options.connect(address).await?).concurrency(1).prefetch(1);
        Ok(Self::of(consumer).await)
    }

    async fn of(consumer: Consumer<ServiceBus>) -> Self {
        let (ids, handled) = mpsc::unbounded_channel();
        let runner = consumer.handler(move |delivery: Delivery| {
            let _ = ids.send(delivery.id().to_owned());
            std::future::ready(())
        });
        let handle = runner.handle();
        let task = tokio::spawn(runner.run());
        handle.wait_for_health(redrive_consumer::Health::is_ready).await;
        Self { handle, handled, task }
    }

    async fn next(&mut self) -> String {
        timeout(TIMEOUT, self.handled.recv()).await.expect("a message in time").expect("it runs")
    }

    /// Waits until the consumer says that it takes no messages, and this.
    async fn says(&self, part: &str) {
        let said = |health: &redrive_consumer::Health| {
            !health.is_ready() && health.error.as_ref().is_some_and(|error| error.contains(part))
        };
        let told = timeout(TIMEOUT, self.handle.wait_for_health(said)).await;
        let health = told.unwrap_or_else(|_| panic!("it never says `{part}`: {}", self.handle.health()));
        assert!(health.is_live() && health.to_string().contains("tries again"), "{health}");
    }

    /// Waits until the consumer is ready, and checks that it handles a message that is published now.
    async fn takes_up(&mut self, options: Options, address: &str, session: bool) -> Result<(), BoxError> {
        let ready = self.handle.wait_for_health(redrive_consumer::Health::is_ready);
        timeout(TIMEOUT, ready).await.expect("it takes up again");
        publish(options, address, "afterwards", session).await?;
        while self.next().await != "afterwards" {}
        Ok(())
    }

    async fn stop(self) -> Result<(), BoxError> {
        self.handle.stop();
        self.task.await??;
        Ok(())
    }
}

async fn publish(options: Options, address: &str, id: &str, session: bool) -> Result<(), BoxError> {
    let mut message = Message::new("").with_id(id);
    message.properties_mut().session_id = session.then(|| "s".into());
    options.connect(address).await?.publish(message).await?;
    Ok(())
}

fn with_sessions() -> Settings {
    let mut settings = Settings::default();
    settings.requires_session = true;
    settings
}

fn forwarding() -> Settings {
    let mut settings = Settings::default();
    settings.forward_to = Some("other".to_owned());
    settings
}

/// What is done to the queue, what the consumer says then, and what ends it.
type Way = (fn(&Emulator), &'static str, fn(&Emulator));

fn replace(emulator: &Emulator, settings: Settings) {
    emulator.delete_queue(QUEUE).expect("it was there");
    emulator.create_queue(QUEUE, settings).expect("it fits");
}

fn activate(emulator: &Emulator) {
    emulator.set_status(QUEUE, EntityStatus::Active).expect("it is there");
}

fn disable(emulator: &Emulator) {
    emulator.set_status(QUEUE, EntityStatus::Disabled).expect("it is there");
}

/// A consumer that has run says so when its queue refuses, and handles what comes after that.
async fn is_waited_for(
    emulator: &Emulator,
    address: &str,
    options: impl Fn() -> Options,
    session: bool,
    (refuse, said, mend): Way,
) -> Result<(), BoxError> {
    let mut running = Running::start(options(), address).await?;
    publish(options(), address, "before", session).await?;
    assert_eq!(running.next().await, "before");
    refuse(emulator);
    running.says(said).await;
    mend(emulator);
    running.takes_up(options(), address, session).await.map_err(|error| format!("{said}: {error}"))?;
    running.stop().await
}

#[tokio::test]
async fn a_consumer_waits_for_its_queue_and_takes_up_again() -> Result<(), BoxError> {
    let ways: [Way; 6] = [
        (disable, "disabled", activate),
        (
            |emulator| emulator.set_status(QUEUE, EntityStatus::ReceiveDisabled).expect("it is there"),
            "disabled",
            activate,
        ),
        (
            |emulator| emulator.delete_queue(QUEUE).expect("it was there"),
            "could not be found",
            |emulator| emulator.create_queue(QUEUE, Settings::default()).expect("it fits"),
        ),
        (
            |emulator| {
                emulator.inject(Fault::new(Step::Attach, Effect::unauthorized()).on(QUEUE).times(u32::MAX));
                emulator.detach(QUEUE);
            },
            "Listen and Send",
            Emulator::clear_faults,
        ),
        (
            |emulator| replace(emulator, with_sessions()),
            "Sessions::concurrent(",
            |emulator| replace(emulator, Settings::default()),
        ),
        (
            |emulator| replace(emulator, forwarding()),
            "`ForwardTo`",
            |emulator| replace(emulator, Settings::default()),
        ),
    ];
    for way in ways {
        let builder =
            Emulator::builder().queue(QUEUE, Settings::default()).queue("other", Settings::default());
        let emulator = builder.start().await?;
        let address = emulator.connection_string();
        let options = || ServiceBus::options(QUEUE);
        is_waited_for(&emulator, &address, options, false, way).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_consumer_of_sessions_waits_for_its_queue_too() -> Result<(), BoxError> {
    let ways: [Way; 3] = [
        (disable, "disabled", activate),
        (
            |emulator| emulator.delete_queue(QUEUE).expect("it was there"),
            "could not be found",
            |emulator| emulator.create_queue(QUEUE, with_sessions()).expect("it fits"),
        ),
        (
            |emulator| replace(emulator, Settings::default()),
            "remove `Options::sessions`",
            |emulator| replace(emulator, with_sessions()),
        ),
    ];
    for way in ways {
        let emulator = Emulator::builder().queue(QUEUE, with_sessions()).start().await?;
        let address = emulator.connection_string();
        let options = || ServiceBus::options(QUEUE).sessions(Sessions::concurrent(2));
        is_waited_for(&emulator, &address, options, true, way).await?;
    }
    Ok(())
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn a_consumer_by_rest_waits_for_its_queue_too() -> Result<(), BoxError> {
    let ways: [Way; 2] = [
        (disable, "disabled", activate),
        (
            |emulator| emulator.delete_queue(QUEUE).expect("it was there"),
            "create the entity",
            |emulator| emulator.create_queue(QUEUE, Settings::default()).expect("it fits"),
        ),
    ];
    for way in ways {
        let builder =
            Emulator::builder().queue(QUEUE, Settings::default()).queue("dead", Settings::default());
        let emulator = builder.listen_http("127.0.0.1:0").start().await?;
        let address = emulator.http_connection_string().expect("it listens");
        let options = || {
            let options = ServiceBus::options(QUEUE).backend(redrive_servicebus::Backend::Rest);
            options.dead_letter_queue("dead").poll_wait(secs(1))
        };
        is_waited_for(&emulator, &address, options, false, way).await?;
    }
    Ok(())
}

/// The token that was refused is not used again.
#[tokio::test]
async fn each_attach_after_a_refusal_has_a_fresh_token() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let address = emulator.connection_string();
    let mut running = Running::start(ServiceBus::options(QUEUE), &address).await?;
    publish(ServiceBus::options(QUEUE), &address, "before", false).await?;
    assert_eq!(running.next().await, "before");
    emulator.inject(Fault::new(Step::Attach, Effect::unauthorized()).on(QUEUE));
    // Meets the first token that is put from now on.
    emulator
        .inject(Fault::new(Step::Cbs, Effect::Refuse { condition: "com.microsoft:auth-failed".to_owned() }));
    emulator.detach(QUEUE);
    running.says("com.microsoft:auth-failed").await;
    running.takes_up(ServiceBus::options(QUEUE), &address, false).await?;
    running.stop().await
}

/// A queue that is closed for senders is drained: only what needs a copy waits.
#[tokio::test]
async fn a_queue_that_takes_no_messages_is_drained() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let transport = ServiceBus::options(QUEUE).connect(&emulator.connection_string()).await?;
    for id in ["good-1", "fails", "dead-1", "good-2", "dead-2", "good-3"] {
        transport.publish(Message::new("").with_id(id)).await?;
    }
    emulator.set_status(QUEUE, EntityStatus::SendDisabled)?;
    let (told, mut held) = mpsc::unbounded_channel();
    let runner = Consumer::new(transport)
        .concurrency(2)
        .with_dead_letter_backoff([secs(600)])
        .observer(move |event: &Event<'_>| {
            if let Event::NotSettled { held: true, error, .. } = event {
                let _ = told.send(error.to_string());
            }
        })
        .handler(async |delivery: Delivery| match delivery.id() {
            "fails" => Disposition::Retry(secs(600), Failure::custom("Broken", "no answer")),
            id if id.starts_with("dead") => Disposition::DeadLetter(Failure::custom("Broken", "never")),
            _ => Disposition::Ack,
        });
    let handle = runner.handle();
    let task = tokio::spawn(runner.run());
    let refused = timeout(TIMEOUT, held.recv()).await?.expect("it is told");
    assert!(refused.contains("SendDisabled"), "{refused}");
    let view = emulator.entity(QUEUE)?;
    eventually("the others are settled", async || view.messages().len() == 1 && view.tally().completed == 3)
        .await;
    assert_eq!(emulator.entity("orders/$DeadLetterQueue")?.messages().len(), 2);
    assert!(handle.health().blocked_for.is_none(), "{}", handle.health());
    emulator.set_status(QUEUE, EntityStatus::Active)?;
    eventually("the copy is stored", async || view.counts().scheduled == 1 && view.messages().len() == 1)
        .await;
    handle.stop();
    task.await??;
    Ok(())
}

/// What cannot be received from the retry queue is said of it alone: the subscription goes on, and the consumer with it.
#[tokio::test]
async fn a_retry_queue_that_is_refused_holds_up_no_other_and_ends_nothing() -> Result<(), BoxError> {
    let ways: [Way; 3] = [
        (
            |emulator| emulator.set_status("back", EntityStatus::Disabled).expect("it is there"),
            "disabled",
            |emulator| emulator.set_status("back", EntityStatus::Active).expect("it is there"),
        ),
        (
            |emulator| emulator.delete_queue("back").expect("it was there"),
            "could not be found",
            |emulator| emulator.create_queue("back", Settings::default()).expect("it fits"),
        ),
        (
            |emulator| {
                emulator.inject(Fault::new(Step::Attach, Effect::unauthorized()).on("back").times(u32::MAX));
                emulator.detach("back");
            },
            "Listen and Send",
            Emulator::clear_faults,
        ),
    ];
    for (refuse, said, mend) in ways {
        let topic = Topic::new("topic", Settings::default()).subscription("billing", Settings::default());
        let builder = Emulator::builder().topic(topic).queue("back", Settings::default());
        let emulator = builder.start().await?;
        let address = emulator.connection_string();
        let options = || ServiceBus::options(Entity::subscription("topic", "billing")).retry_queue("back");
        // Any time without being able to receive would end it.
        let consumer =
            Consumer::new(options().connect(&address).await?).give_up_after(Duration::from_millis(1));
        let mut running = Running::of(consumer).await;
        let view = emulator.entity("back")?;
        eventually("it waits for retries", async || view.waiting() == 1).await;
        refuse(&emulator);
        let names = |health: &redrive_consumer::Health| {
            let error = health.error.as_ref();
            error.is_some_and(|error| error.contains("receiving from `back`") && error.contains(said))
        };
        let health = timeout(TIMEOUT, running.handle.wait_for_health(names)).await?;
        let line = health.to_string();
        assert!(health.is_ready() && health.is_live(), "{line}");
        assert!(line.starts_with("running, cannot receive from one of its queues"), "{line}");
        publish(options(), &address, "meanwhile", false).await?;
        assert_eq!(running.next().await, "meanwhile");
        mend(&emulator);
        let whole = running.handle.wait_for_health(|health| health.partly_interrupted_for.is_none());
        assert_eq!(timeout(TIMEOUT, whole).await?.to_string(), "running");
        running.stop().await?;
    }
    Ok(())
}

/// A connection that ends is no refusal of the entity that notices it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_one_interruption_of_all_its_entities() -> Result<(), BoxError> {
    let topic = Topic::new("topic", Settings::default()).subscription("billing", Settings::default());
    let emulator = Emulator::builder().topic(topic).queue("back", Settings::default()).start().await?;
    let options = ServiceBus::options(Entity::subscription("topic", "billing")).retry_queue("back");
    let (told, mut events) = mpsc::unbounded_channel();
    let consumer = Consumer::new(options.connect(&emulator.connection_string()).await?).observer(
        move |event: &Event<'_>| {
            let _ = match event {
                Event::Interrupted { partly, .. } => told.send(if *partly { "partly" } else { "cut" }),
                Event::Recovered { .. } => told.send("recovered"),
                _ => Ok(()),
            };
        },
    );
    let running = Running::of(consumer).await;
    let views = [emulator.entity("topic/Subscriptions/billing")?, emulator.entity("back")?];
    let both_wait = async || views.iter().all(|view| view.waiting() == 1);
    eventually("it receives from both", both_wait).await;
    for _ in 0..10 {
        emulator.drop_connections();
        for expected in ["cut", "recovered"] {
            assert_eq!(timeout(TIMEOUT, events.recv()).await?, Some(expected));
        }
        eventually("it receives from both again", both_wait).await;
    }
    running.stop().await?;
    assert_eq!(events.try_recv().ok(), None);
    Ok(())
}

/// Each session has a link of its own: what one of them meets says nothing of the others.
#[tokio::test]
async fn a_session_that_is_held_shows_that_the_queue_can_be_received_from() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, with_sessions()).start().await?;
    let options =
        || ServiceBus::options(QUEUE).sessions(Sessions::concurrent(2).idle(Duration::from_millis(50)));
    let transport = options().connect(&emulator.connection_string()).await?;
    // Its link is attached before any attach is refused.
    let publisher = options().connect(&emulator.connection_string()).await?;
    let publish = async |id: &str| {
        let mut message = Message::new("").with_id(id);
        message.properties_mut().session_id = Some(id.to_owned());
        publisher.publish(message).await
    };
    let (ids, mut handled) = mpsc::unbounded_channel();
    let (told, mut interrupted) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    let runner = Consumer::new(transport)
        .concurrency(2)
        .observer(move |event: &Event<'_>| {
            if let Event::Interrupted { error, .. } = event {
                let _ = told.send(error.to_string());
            }
        })
        .handler(move |delivery: Delivery| {
            let _ = ids.send(delivery.id().to_owned());
            let released = Arc::clone(&released);
            async move {
                if delivery.id() == "held" {
                    released.notified().await;
                }
            }
        });
    let handle = runner.handle();
    let task = tokio::spawn(runner.run());
    publish("held").await?;
    assert_eq!(timeout(TIMEOUT, handled.recv()).await?.as_deref(), Some("held"));
    let view = emulator.entity(QUEUE)?;
    eventually("the other place looks for a session", async || view.waiting() == 1).await;
    // After the next session the other place is refused, and takes another session later.
    emulator.inject(Fault::new(Step::Attach, Effect::refuse("amqp:internal-error")).on(QUEUE).times(2));
    for id in ["next", "later"] {
        publish(id).await?;
        assert_eq!(timeout(TIMEOUT, handled.recv()).await?.as_deref(), Some(id));
    }
    assert!(handle.health().is_ready(), "{}", handle.health());
    assert_eq!(interrupted.try_recv().ok(), None, "a session was held all the time");
    // Now no session is held.
    emulator
        .inject(Fault::new(Step::Attach, Effect::refuse("amqp:internal-error")).on(QUEUE).times(u32::MAX));
    emulator.detach(QUEUE);
    release.notify_one();
    let said = timeout(TIMEOUT, interrupted.recv()).await?.expect("it runs");
    assert!(said.contains("receiving from `orders`"), "{said}");
    emulator.clear_faults();
    timeout(TIMEOUT, handle.wait_for_health(redrive_consumer::Health::is_ready)).await?;
    handle.stop();
    task.await??;
    Ok(())
}

#[tokio::test]
async fn a_broker_that_refuses_every_session_is_waited_for_and_named() -> Result<(), BoxError> {
    for condition in [
        "com.microsoft:session-lock-lost",
        "com.microsoft:session-cannot-be-locked",
        "com.microsoft:timeout",
        "amqp:link:message-size-exceeded",
    ] {
        let emulator = Emulator::builder().queue(QUEUE, with_sessions()).start().await?;
        let address = emulator.connection_string();
        let idle = Duration::from_millis(50);
        let options = || ServiceBus::options(QUEUE).sessions(Sessions::concurrent(1).idle(idle));
        let mut running = Running::start(options(), &address).await?;
        let publisher = options().connect(&address).await?;
        let view = emulator.entity(QUEUE)?;
        for id in ["first", "last"] {
            // A link that holds a session waits too, for the next message of it.
            let looks = async || view.waiting() == 1 && view.session_locked_until("s").is_none();
            eventually("it looks for a session", looks).await;
            if id == "last" {
                let refusal = Fault::new(Step::Attach, Effect::refuse(condition));
                emulator.inject(refusal.on(QUEUE).times(u32::MAX));
            }
            let mut message = Message::new("").with_id(id);
            message.properties_mut().session_id = Some("s".into());
            publisher.publish(message).await?;
            assert_eq!(running.next().await, id);
        }
        running.says(condition).await;
        emulator.clear_faults();
        running.takes_up(options(), &address, true).await?;
        running.stop().await?;
    }
    Ok(())
}

/// Only the broker's words about sessions say that a queue requires them.
#[tokio::test]
async fn a_queue_that_allows_no_receiver_is_not_taken_for_one_with_sessions() -> Result<(), BoxError> {
    let emulator =
        Emulator::builder().queue(QUEUE, with_sessions()).queue("plain", Settings::default()).start().await?;
    let address = emulator.connection_string();
    emulator.inject(Fault::new(Step::Attach, Effect::refuse("amqp:not-allowed")).times(u32::MAX));
    for options in
        [ServiceBus::options(QUEUE).sessions(Sessions::concurrent(1)), ServiceBus::options("plain")]
    {
        let runner = Consumer::new(options.connect(&address).await?).handler(async || ());
        let said = timeout(TIMEOUT, runner.run()).await?.expect_err("nothing can be received").to_string();
        assert!(said.contains("amqp:not-allowed") && said.contains("asked to refuse"), "{said}");
        assert!(!said.contains("session"), "{said}");
    }
    Ok(())
}
