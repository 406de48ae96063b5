//! A broker without memory or disk accepts no copies: acknowledgements go on, the intake pauses as soon as a copy cannot be
//! stored, nothing is lost, and work resumes when there is room.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use redrive::rabbitmq::RabbitMq;
use redrive::shelves::Selection;
use redrive::transport::{Needs, Settlement};
use redrive::{Message, Shelf, Shelves as _, Transport as _, TransportErrorKind, millis};
use redrive_brokers::{Node, node_in_turn, report};
use redrive_contract::{Started, eventually, found};
use redrive_system_tests::fate::{self, Fate};
use redrive_system_tests::rabbit::{self, publish_all};
use redrive_system_tests::service::{Service, good, publish};
use redrive_system_tests::{Combination, on_both_versions};
use tokio::time::timeout;

on_both_versions!(1200;
    a_memory_alarm_lets_the_intake_rest,
    a_disk_alarm_lets_the_intake_rest,
    acknowledgements_go_on_while_the_alarm_lasts,
    a_copy_on_its_way_when_the_alarm_begins_is_stored_once,
    what_is_not_on_its_way_when_the_alarm_begins_is_refused,
    who_waits_for_an_answer_does_not_wait_for_the_end_of_the_alarm,
);

const MESSAGES: usize = 3000;
/// How long the alarm lasts after the intake has paused.
const ALARM: Duration = Duration::from_secs(4);
/// How long the test waits before the next message that may need a copy. It grows each turn: a slow broker must have announced the
/// alarm before everything in flight waits for it.
const TURN: Duration = Duration::from_millis(200);

/// The resource that a node lacks.
#[derive(Clone, Copy, Debug)]
enum Alarm {
    Memory,
    Disk,
}

impl Alarm {
    async fn set(self, node: &Node, on: bool) {
        let arguments: &'static [&'static str] = match (self, on) {
            (Self::Memory, true) => &["set_vm_memory_high_watermark", "absolute", "1"],
            (Self::Memory, false) => &["set_vm_memory_high_watermark", "absolute", "1GB"],
            (Self::Disk, true) => &["set_disk_free_limit", "1000000GB"],
            (Self::Disk, false) => &["set_disk_free_limit", "50MB"],
        };
        node.aside(move |node| node.ctl(arguments).unwrap()).await;
    }
}

async fn a_memory_alarm_lets_the_intake_rest(on: Combination) {
    the_intake_rests(Alarm::Memory, on).await;
}

async fn a_disk_alarm_lets_the_intake_rest(on: Combination) {
    the_intake_rests(Alarm::Disk, on).await;
}

async fn the_intake_rests(alarm: Alarm, on: Combination) {
    let node = node_in_turn(on.version).await;
    let queue = format!("{alarm:?}-alarm");
    let operator = on.options(&queue).connect(&node.url()).await.unwrap();
    let ids = publish(&operator, 0, MESSAGES).await;
    // Setting the alarm may take long and the service may be fast: some messages must be left.
    let mut service = Service::run_held(on.options(&queue).connect(&node.url()).await.unwrap());
    service.let_end(MESSAGES / 10);
    // Waits for the last one: copies for new delay queues wait, and if all deliveries in flight were such copies, all would be sent
    // before the alarm is known, and none would be refused.
    service.held().await;

    alarm.set(&node, true).await;
    // One at a time: the broker announces the alarm with the first copy, and further copies may be sent until the client knows.
    // If all deliveries in flight were sent like that, the intake would stop without a refusal.
    let mut turn = TURN;
    while timeout(turn, service.rests(true)).await.is_err() {
        service.let_end(1);
        turn = turn.mul_f64(1.1);
    }
    let rested = service.handled_now();
    service.let_all_end();
    // Deliveries in flight are handled to their end; no handler may have begun with some of them.
    let before = loop {
        service.idle().await;
        let before = service.handled_now();
        tokio::time::sleep(ALARM).await;
        if service.handled_now() == before {
            break before;
        }
    };
    let in_flight = redrive::Consumer::<RabbitMq>::DEFAULT_CONCURRENCY;
    assert!(before <= rested + in_flight, "the intake rests: {rested} were handled before, {before} after");
    assert!(before < good(&ids), "nothing is left to be handled");

    let over = Instant::now();
    alarm.set(&node, false).await;
    let resumed = service.rests(false).await - over;
    let (again, said) = service.to_the_end(&ids, &operator).await;
    report(&format!(
        "{alarm:?} alarm on {on}: {MESSAGES} messages, rested at {before} handled, took messages again within \
         {resumed:.1?} of the command that ends the alarm, 0 lost, {again} ended more than once, {} deduplicated",
        said.deduplicated
    ));
    node.pass_on();
}

/// Messages that need no copy: the broker must accept their acknowledgements although it accepts no messages.
async fn acknowledgements_go_on_while_the_alarm_lasts(on: Combination) {
    const QUEUE: &str = "acknowledged";
    let node = node_in_turn(on.version).await;
    let operator = on.options(QUEUE).connect(&node.url()).await.unwrap();
    let id = |number: i32| format!("m-{number}");
    // One copy before the alarm: the broker blocks the connection that publishes.
    let mended = |id: &String| Fate::of(id, 1) == Fate::Transient && Fate::of(id, 2) == Fate::Done;
    let first = (0..).map(id).find(mended).expect("some are mended");
    let good: Vec<String> = (0..).map(id).filter(|id| Fate::of(id, 1) == Fate::Done).take(MESSAGES).collect();
    let message = |id: &String| Message::new("an order").with_id(id);
    publish_all(&operator, [message(&first)]).await;
    let mut service = Service::run(on.options(QUEUE).connect(&node.url()).await.unwrap());
    service.handled(1).await;
    // Not handled before the alarm, however long setting it takes.
    service.hold();
    publish_all(&operator, good.iter().map(message)).await;
    let others = on.options("others").connect(&node.url()).await.unwrap();
    publish_all(&others, [Message::new("the first of others")]).await;

    Alarm::Memory.set(&node, true).await;
    refused(&others).await;
    assert_eq!(service.handled_now(), 1);
    service.let_all_end();
    service.handled(1 + good.len()).await;
    eventually("all are settled", async || messages(&node, QUEUE).await == 0).await;
    refused(&others).await;

    Alarm::Memory.set(&node, false).await;
    let mut ids = good.clone();
    ids.push(first);
    assert!(ids.iter().all(|id| fate::end(id).is_none()), "all end well");
    let (again, _) = service.to_the_end(&ids, &operator).await;
    report(&format!(
        "memory alarm on {on}: {} messages handled and acknowledged while it lasted, {again} ended more than once",
        good.len()
    ));
    node.pass_on();
}

/// A copy that was sent before the broker announced the alarm is stored after it, however long the alarm lasts. Giving it up
/// earlier
/// would store it twice.
async fn a_copy_on_its_way_when_the_alarm_begins_is_stored_once(on: Combination) {
    // Long enough for a confirm on a machine that stalls for seconds.
    const CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);
    const IN_HAND: u32 = 64;
    const QUEUE: &str = "on-their-way";
    let node = node_in_turn(on.version).await;
    let worker = on.options(QUEUE).confirm_timeout(CONFIRM_TIMEOUT).connect(&node.url()).await.unwrap();
    let mut needs = Needs::none();
    needs.prefetch = IN_HAND;
    let worker = Started::open(worker, &needs).await.unwrap();
    publish_all(&worker, (0..IN_HAND).map(|number| Message::new("a copy").with_id(format!("m-{number}"))))
        .await;
    let over = AtomicBool::new(false);
    let [stored, on_their_way, in_doubt] = [const { AtomicU32::new(0) }; 3];
    // Each message is retried as a copy of itself: a copy that is stored twice is one message more.
    let go_round = async || {
        while !over.load(Ordering::SeqCst) {
            let Ok(Some(received)) = worker.receive().await else { panic!("the intake ended") };
            let (copy, mut receipt) = (received.delivery.message().clone(), received.receipt);
            loop {
                let (began, wait) = (Instant::now(), Duration::ZERO);
                let reschedule = Settlement::Reschedule { wait, copy: copy.clone() };
                let Err(refused) = worker.settle(receipt, reschedule).await else {
                    stored.fetch_add(1, Ordering::SeqCst);
                    on_their_way.fetch_add(u32::from(began.elapsed() > CONFIRM_TIMEOUT), Ordering::SeqCst);
                    break;
                };
                let error = refused.error;
                assert!(
                    matches!(error.kind(), TransportErrorKind::NotSent | TransportErrorKind::Unconfirmed),
                    "{error}"
                );
                assert!(began.elapsed() < CONFIRM_TIMEOUT, "given up on its way: {error}");
                // The alarm refuses what was not sent. The fate of a copy is unknown if its connection died on a busy machine.
                in_doubt.fetch_add(
                    u32::from(!error.to_string().contains("memory or disk is full")),
                    Ordering::SeqCst,
                );
                receipt = refused.receipt.expect("it stays in flight");
                tokio::time::sleep(millis(20)).await;
            }
        }
    };
    let alarms = async {
        // Ends when a retry begins at that moment, otherwise at the test's limit.
        while on_their_way.load(Ordering::SeqCst) == 0 {
            Alarm::Memory.set(&node, true).await;
            // Whether a copy is refused depends on how many were being sent: perhaps all.
            let (mut before, mut now) = (u32::MAX, stored.load(Ordering::SeqCst));
            while now != before {
                // No event says that the alarm has reached every connection; a second without a copy shows it.
                tokio::time::sleep(Duration::from_secs(1)).await;
                (before, now) = (now, stored.load(Ordering::SeqCst));
            }
            // Longer than the timeout of a copy that was sent.
            tokio::time::sleep(CONFIRM_TIMEOUT + Duration::from_secs(5)).await;
            Alarm::Memory.set(&node, false).await;
            let stored_before = stored.load(Ordering::SeqCst);
            let stored_again = async || stored.load(Ordering::SeqCst) >= stored_before + 100;
            eventually("copies are stored again", stored_again).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(futures::future::join_all((0..IN_HAND).map(|_| go_round())), alarms);
    // Before the consumers end: an acknowledgement that has not reached the queue could be lost with its channel, and the original
    // would be there beside its copy.
    let twice = in_doubt.into_inner();
    // One message more means that a copy was stored twice.
    let stored_once = async || (IN_HAND..=IN_HAND + twice).contains(&messages(&node, QUEUE).await);
    eventually(&format!("{IN_HAND} messages, and at most {twice} twice"), stored_once).await;
    worker.close().await;
    report(&format!(
        "memory alarm longer than the time for a confirm on {on}: {} copies on their way when it began, each stored once; \
         {twice} in doubt for another reason",
        on_their_way.into_inner()
    ));
    node.pass_on();
}

/// Returns the broker's count of a queue, ready and delivered.
async fn messages(node: &Node, queue: &str) -> u32 {
    let queues = node.aside(|node| node.ctl(&["list_queues", "name", "messages"])).await.unwrap();
    let messages = queues.lines().find_map(|line| line.strip_prefix(&format!("{queue}\t")));
    messages.expect("the queue is there").trim().parse().expect("a number")
}

/// A copy that waits behind others when the alarm begins is refused: otherwise the intake would not pause, and would take
/// messages that
/// it cannot copy until it is full.
async fn what_is_not_on_its_way_when_the_alarm_begins_is_refused(on: Combination) {
    /// The maximum number of copies in flight to one queue.
    const ON_THEIR_WAY: usize = 2 * 256;
    const MORE: usize = 100;
    const QUEUE: &str = "refused";
    let node = node_in_turn(on.version).await;
    let publisher = on.options(QUEUE).connect(&node.url()).await.unwrap();
    // Two batches at once: each has a channel.
    publish_all(&publisher, vec![Message::new("a copy"); ON_THEIR_WAY]).await;
    Alarm::Memory.set(&node, true).await;
    // Until then the broker is still announcing the alarm.
    eventually("copies are refused", async || {
        let copies = (0..ON_THEIR_WAY + MORE).map(|_| publisher.publish(Message::new("a copy")));
        let mut answers = copies.collect::<FuturesUnordered<_>>().take(MORE);
        let mut refused = false;
        while let Some(answer) = answers.next().await {
            if let Err(error) = answer {
                assert!(
                    matches!(error.kind(), TransportErrorKind::NotSent | TransportErrorKind::Unconfirmed),
                    "{error}"
                );
                refused = true;
            }
        }
        refused
    })
    .await;
    Alarm::Memory.set(&node, false).await;
    node.pass_on();
}

/// A connection that has not published since the alarm began does not know about it.
async fn who_waits_for_an_answer_does_not_wait_for_the_end_of_the_alarm(on: Combination) {
    /// Only tells a hang from an answer.
    const ANSWER: Duration = Duration::from_secs(120);
    const QUEUE: &str = "answered";
    let node = node_in_turn(on.version).await;
    let connected = async || {
        on.options(QUEUE).confirm_timeout(Duration::from_secs(2)).connect(&node.url()).await.unwrap()
    };
    let [producer, operator] = [connected().await, connected().await];
    let producer = Started::open(producer, &Needs::none()).await.unwrap();
    producer.pause().await.unwrap();
    let shelf = format!("{QUEUE}--dead-letters");
    let patient = on.options(QUEUE).connect(&node.url()).await.unwrap();
    rabbit::publish(&patient.publisher().to(&shelf), Message::new("a dead letter")).await;
    Alarm::Memory.set(&node, true).await;
    // Stored: the broker is still announcing the alarm.
    let error = found("the alarm refuses an order", async || {
        timeout(ANSWER, producer.publish(Message::new("an order"))).await.expect("an answer").err()
    })
    .await;
    assert!(matches!(error.kind(), TransportErrorKind::NotSent | TransportErrorKind::Unconfirmed), "{error}");
    assert!(error.to_string().contains("memory or disk is full"), "{error}");
    let redriving = operator.shelves();
    let redrive = async { redriving.redrive(Shelf::DeadLetter, &Selection::All).await?.into_result() };
    let error = timeout(ANSWER, redrive).await.expect("an answer").expect_err("not stored");
    assert!(matches!(error.kind(), TransportErrorKind::NotSent | TransportErrorKind::Unconfirmed), "{error}");
    // A returned message arrives a moment later.
    eventually("it is back", async || redriving.count(Shelf::DeadLetter).await.unwrap() > 0).await;
    Alarm::Memory.set(&node, false).await;
    node.pass_on();
}

/// Checks that the alarm is on: nothing can be published. The broker announces the alarm with the first message that arrives during
/// it, and stores that message afterwards.
async fn refused(operator: &RabbitMq) {
    let on_their_way = tokio::sync::Mutex::new(FuturesUnordered::new());
    let error = found("the alarm refuses a message", async || {
        let mut on_their_way = on_their_way.lock().await;
        on_their_way.push(operator.publish(Message::new("too much")));
        // Stored: the broker is still announcing the alarm.
        timeout(millis(200), on_their_way.next()).await.ok().flatten().and_then(Result::err)
    })
    .await;
    assert!(matches!(error.kind(), TransportErrorKind::NotSent | TransportErrorKind::Unconfirmed), "{error}");
}
