//! The service of the crash tests: `worker MODE URL[,URL…] QUEUE classic|quorum DELAYS LOG`, or `worker MODE
//! CONNECTION-STRING QUEUE servicebus SETUP LOG`; `fleet.rs` lists the modes, `delays.rs` the words for delays, and
//! `servicebus/setup.rs` those for setups.
//!
//! Ends in order when its standard input ends. Logs what it does, for the test that kills it.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use redrive::rabbitmq::{QueueType, RabbitMq};
use redrive::shelves::Selection;
use redrive::{
    BoxError, Consumer, ConsumerError, DeadLetterBackoff, Delivery, Disposition, Event, Failure,
    MarkError as _, Message, NoRetry, Permanent, Shelf, Shelves, State, Suspects, Transport, TransportError,
    TransportErrorKind, millis,
};
use redrive_core::fail_point::FailPoint;
use redrive_system_tests::fate::{self, Fate};
use redrive_system_tests::fleet::FAIL_POINT;
use redrive_system_tests::flow::{self, Flow};
use redrive_system_tests::servicebus::Setup;
use redrive_system_tests::worker_log::{Line, LogWriter};
use redrive_system_tests::{Delays, KILLER, POISON_AFTER};

/// Number of deliveries that the chaos test allows.
const LOCKS_LOST_AT_MOST: u32 = 1000;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "info,redrive_core=warn,redrive_consumer=warn".into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mode, url, queue, queue_type, delays, log] = &arguments[..] else {
        anyhow::bail!("worker MODE URL QUEUE classic|quorum DELAYS LOG");
    };
    let broker = Broker::of(queue, queue_type, delays)?;
    let path = PathBuf::from(log);
    let log = Arc::new(LogWriter::open(&path)?);
    let leash = leash().shared();
    // Like a service manager: restarts it if it could not connect.
    loop {
        match connect(mode, url, broker.clone(), &path, Arc::clone(&log), leash.clone()).await {
            Err(error) if was_not_let_in(&error) => eprintln!("starts again: {error:#}"),
            ended => return ended,
        }
        tokio::select! {
            () = leash.clone() => return Ok(()),
            () = tokio::time::sleep(millis(200)) => {}
        }
    }
}

/// A consumer that ended in order, or failed later, is not restarted.
fn was_not_let_in(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ConsumerError::Start { .. }))
        || error
            .downcast_ref()
            .is_some_and(|error: &TransportError| error.kind() == TransportErrorKind::Unreachable)
}

/// What it works on.
#[derive(Clone)]
enum Broker {
    RabbitMq(Box<redrive::rabbitmq::Options>),
    ServiceBus(Setup),
}

impl Broker {
    fn of(queue: &str, queue_type: &str, word: &str) -> anyhow::Result<Self> {
        let queue_type = match queue_type {
            "servicebus" => return Ok(Self::ServiceBus(Setup::of(word).context("a setup")?)),
            "classic" => QueueType::Classic,
            _ => QueueType::Quorum,
        };
        let delays = Delays::of(word).context("a delay mode")?;
        let options = delays.set(RabbitMq::options(queue).queue_type(queue_type), queue);
        Ok(Self::RabbitMq(Box::new(options)))
    }
}

async fn connect(
    mode: &str,
    url: &str,
    broker: Broker,
    path: &Path,
    log: Arc<LogWriter>,
    leash: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    match broker {
        Broker::RabbitMq(options) => {
            let transport = options.connect_any(url.split(',')).await?;
            if operate(mode, &transport.shelves()).await? {
                return Ok(());
            }
            serve((mode, None), transport, path, log, leash).await
        }
        Broker::ServiceBus(setup) => {
            let transport = setup.options().connect(url).await?;
            if operate(mode, &transport.shelves()).await? {
                transport.close().await;
                return Ok(());
            }
            serve((mode, Some(setup)), transport, path, log, leash).await
        }
    }
}

/// The work of operators; false for the modes that consume.
async fn operate(mode: &str, shelves: &dyn Shelves) -> anyhow::Result<bool> {
    let all = &Selection::All;
    let report = match mode {
        "redrive" => shelves.redrive(Shelf::DeadLetter, all).await?,
        "park" => shelves.park(all).await?,
        "discard" => shelves.discard(Shelf::DeadLetter, all).await?,
        "replace" => {
            let page = shelves.browse(Shelf::DeadLetter, None, 1).await?;
            let entry = page.entries.first().context("an entry")?;
            shelves.replace(&entry.handle, Message::new("edited")).await?;
            return Ok(true);
        }
        _ => return Ok(false),
    };
    report.into_result()?;
    Ok(true)
}

async fn serve<T: Transport>(
    (mode, on_servicebus): (&str, Option<Setup>),
    transport: T,
    path: &Path,
    log: Arc<LogWriter>,
    leash: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let consumer = Consumer::new(transport).observer(observer(&log));
    let runner = match mode {
        "killer" | "killers" | "killer-with-ledger" | "killer-in-company" => {
            let consumer = match mode {
                "killer-with-ledger" => consumer.ledger(path.with_extension("ledger")),
                "killer-in-company" => consumer.suspects(Suspects::none()),
                _ => consumer,
            };
            consumer
                .concurrency(16)
                .prefetch(if mode == "killers" { 100 } else { 200 })
                .with_dead_letter_backoff(DeadLetterBackoff::new(NoRetry).poison_after(POISON_AFTER))
                .handler_with((log, innocents_take(mode)), kill)
        }
        "flows" => {
            // The tests count requests to the broker; isolation would add some.
            let consumer =
                if on_servicebus.is_some() { consumer.suspects(Suspects::none()) } else { consumer };
            let wait = on_servicebus.map_or(flow::WAIT, Setup::wait);
            // The second one is for a death that the broker counts as an attempt.
            consumer.with_dead_letter_backoff([wait, wait]).handler_with(log, flow)
        }
        // Locks expire on purpose, far more often than processes die.
        _ if on_servicebus.is_some() => consumer
            .concurrency(64)
            .with_dead_letter_backoff(DeadLetterBackoff::new(fate::policy()).poison_after(LOCKS_LOST_AT_MOST))
            .handler_with(log, suffer),
        _ => consumer.concurrency(64).with_dead_letter_backoff(fate::policy()).handler_with(log, suffer),
    };
    runner.run_until(leash).await?;
    Ok(())
}

/// The handler of the chaos test.
async fn suffer(State(log): State<Arc<LogWriter>>, delivery: Delivery) -> Result<(), BoxError> {
    let (id, attempt) = (delivery.id(), delivery.attempt());
    log.write(&began(&delivery));
    tokio::time::sleep(fate::duration(id, attempt)).await;
    match Fate::of(id, attempt) {
        Fate::Done => {
            log.write(&Line::Handled { id: id.to_owned() });
            Ok(())
        }
        Fate::Transient => Err("the carrier does not answer".into()),
        Fate::Permanent => Err("no such address").permanent().map_err(Into::into),
        Fate::Panic => panic!("a bug that this message wakes up"),
    }
}

/// The handler that does what the message says.
async fn flow(State(log): State<Arc<LogWriter>>, delivery: Delivery) -> Result<Disposition, BoxError> {
    log.write(&began(&delivery));
    static GIVEN_BACK: AtomicU32 = AtomicU32::new(0);
    // If releases count, the first is a plain return, and the second a copy. No third: acknowledgements wait for each other, and
    // each further round before they are sent would leave one more copy.
    let gives_back = match std::env::var(FAIL_POINT) {
        // The message may be redelivered before this point is reached, and then be copied.
        Ok(point) if point.starts_with(FailPoint::NackHandedOver.name()) => 1,
        Ok(_) => 2,
        // The successor of a dead process receives everything.
        Err(_) => 0,
    };
    match Flow::of(delivery.id()) {
        Flow::Release if GIVEN_BACK.fetch_add(1, Ordering::SeqCst) < gives_back => {
            return Ok(Disposition::Release);
        }
        Flow::Release if gives_back > 0 => std::future::pending().await,
        Flow::Retry if delivery.attempt() == 1 => return Err("not this time".into()),
        Flow::DeadLetter | Flow::Reject => return Err(Permanent::new("never").into()),
        Flow::Park => return Ok(Disposition::Park(Failure::custom("Stuck", "somebody must look at it"))),
        Flow::Ack | Flow::Retry | Flow::Release | Flow::Redrive | Flow::ParkByHand | Flow::Discard => {}
    }
    log.write(&Line::Handled { id: delivery.id().to_owned() });
    Ok(Disposition::Ack)
}

/// The handler that killers kill.
async fn kill(
    State((log, innocents_take)): State<(Arc<LogWriter>, Duration)>,
    delivery: Delivery,
) -> Result<(), BoxError> {
    log.write(&began(&delivery));
    if delivery.id().starts_with(KILLER) {
        std::process::abort();
    }
    tokio::time::sleep(innocents_take).await;
    log.write(&Line::Handled { id: delivery.id().to_owned() });
    Ok(())
}

/// The neighbours must not all be done before the killer is handled, or before a dead process is restarted.
fn innocents_take(mode: &str) -> Duration {
    match mode {
        "killer-in-company" => millis(1000),
        "killers" => millis(10),
        _ => millis(5),
    }
}

fn began(delivery: &Delivery) -> Line {
    Line::Began {
        id: delivery.id().to_owned(),
        attempt: delivery.attempt(),
        handed_out: delivery.broker_delivery_count(),
    }
}

fn observer(log: &Arc<LogWriter>) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let log = Arc::clone(log);
    move |event| match event {
        Event::Started { .. } => log.write(&Line::Started),
        Event::Settled { delivery, disposition, .. } => log.write(&Line::Settled {
            id: delivery.id().to_owned(),
            disposition: disposition.name().to_owned(),
        }),
        Event::Lost { delivery, .. } => log.write(&Line::Lost { id: delivery.id().to_owned() }),
        Event::Deduplicated { delivery } => {
            log.write(&Line::Settled { id: delivery.id().to_owned(), disposition: "on-sight".to_owned() });
        }
        _ => {}
    }
}

/// Resolves when the parent process closes the standard input.
async fn leash() {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    // A separate thread: a runtime would wait for its blocking read before it ends.
    std::thread::spawn(move || {
        let _held = ended;
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    let _ = end.await;
}
