//! A wrong configuration refuses to start: within seconds, with one message that says what was tried, on what, and what to do next,
//! and never with the password.

use std::error::Error;
use std::time::{Duration, Instant};

use redrive::rabbitmq::{Options, Topology};
use redrive::{BoxError, Consumer, DeadLetterBackoff, secs};
use redrive_brokers::{Proxy, broker};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::{Combination, QueueType, Version, on_both_versions, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

on_both_versions!(300; a_wrong_password, an_unknown_virtual_host, tls_where_there_is_none);

on_both_versions!(
    emulator: 300;
    a_queue_that_exists_with_other_arguments,
    a_queue_that_is_missing_and_must_not_be_declared,
    a_wait_longer_than_the_broker_can_hold,
    a_policy_that_needs_more_deliveries_than_the_queue_allows,
);

const SECRET: &str = "hush-hush";
/// What would wait for something that never comes takes longer, on the slowest machine too.
const SOON: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_broker_that_is_not_there() {
    // Bound, so that nobody else gets it, and nobody listens.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let free = socket.local_addr().unwrap();
    let says = refusal(any().options("orders"), &format!("amqp://alice:{SECRET}@{free}/"), usual()).await;
    says_all(&says, &["cannot connect", &free.to_string(), "is it running"]);
}

#[tokio::test]
async fn a_host_that_has_no_address() {
    // No name has a part this long: the answer comes without a name server, which may be slow or missing here.
    let host = format!("{}.invalid", "no-such-host-".repeat(6));
    let url = format!("amqp://alice:{SECRET}@{host}:5672/");
    let says = refusal(any().options("orders"), &url, usual()).await;
    says_all(&says, &["cannot connect", &format!("{host}:5672"), "is the address right"]);
}

#[tokio::test]
async fn a_broker_that_takes_connections_and_says_nothing() {
    // Nobody listens behind the proxy, and nobody finds out.
    let proxy = Proxy::start(([127, 0, 0, 1], 1).into()).await.unwrap();
    proxy.freeze();
    let options = any().options("orders").connect_timeout(secs(1));
    let says = refusal(options, &format!("amqp://alice:{SECRET}@{}/", proxy.addr()), usual()).await;
    says_all(&says, &["does not answer within 1s", &proxy.addr().to_string(), "is it running"]);
}

#[tokio::test]
async fn a_port_of_something_else() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            // Until the client has read it: closed with unread bytes, the answer would be lost.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    let url = format!("amqp://alice:{SECRET}@{address}/");
    let says = tokio::select! {
        says = refusal(any().options("orders"), &url, usual()) => says,
        () = answers => unreachable!("it answers for ever"),
    };
    says_all(&says, &[&format!("what answers at amqp://{address}"), "does not speak AMQP", "5672"]);
    assert!(!says.contains("Parser"), "{says}");
}

#[tokio::test]
async fn an_address_that_is_none() {
    for url in [
        format!("alice:{SECRET}@broker:5672"),
        format!("http://alice:{SECRET}@broker/"),
        format!("amqp://alice:{SECRET}@broker:{SECRET}/"),
        format!("amqp://alice:{SECRET}@"),
        String::new(),
    ] {
        let says = refusal(any().options("orders"), &url, usual()).await;
        says_all(&says, &["no AMQP URL", "amqp://user:password@host:port/vhost"]);
    }
}

async fn a_wrong_password(on: Combination) {
    let url = broker(on.version).url.replacen("guest:guest", &format!("guest:{SECRET}"), 1);
    let says = refusal(on.options("orders"), &url, usual()).await;
    says_all(&says, &["refuses the user `guest`", "127.0.0.1:", "check the user and the password"]);
}

async fn an_unknown_virtual_host(on: Combination) {
    let url = broker(on.version).url;
    let (server, _) = url.rsplit_once('/').unwrap();
    let says = refusal(on.options("orders"), &format!("{server}/nowhere"), usual()).await;
    says_all(&says, &["/nowhere", "virtual host", "check the URL's path"]);
}

async fn tls_where_there_is_none(on: Combination) {
    let url = broker(on.version).url.replacen("amqp://", "amqps://", 1);
    let says = refusal(on.options("orders"), &url, usual()).await;
    says_all(&says, &["cannot connect", "amqps://127.0.0.1:", "is the address right"]);
}

async fn a_queue_that_exists_with_other_arguments(on: Combination, url: &str) {
    let queue = on.unique("other-arguments");
    // As another service, or an earlier configuration, left it.
    let other = Combination { queue_type: QueueType::Classic, ..on };
    other.options(&queue).connect(url).await.unwrap().publish(redrive::Message::new("")).await.unwrap();
    let says = refusal(on.options(&queue), url, usual()).await;
    says_all(&says, &[&queue, "exists with other arguments", "x-queue-type", "Topology::Verify"]);
    clean_up(url, &queue).await;
}

async fn a_queue_that_is_missing_and_must_not_be_declared(on: Combination, url: &str) {
    let queue = on.unique("missing");
    let says = refusal(on.options(&queue).topology(Topology::Verify), url, usual()).await;
    says_all(&says, &[&queue, "do not exist", "x-queue-type", "Topology::Declare"]);
    assert_eq!(Rabbit::connect(url).await.ready(&queue).await, None, "nothing was declared");
}

async fn a_wait_longer_than_the_broker_can_hold(on: Combination, url: &str) {
    let queue = on.unique("too-long");
    const ELEVEN_YEARS: Duration = Duration::from_secs(11 * 365 * 24 * 60 * 60);
    let says = refusal(on.options(&queue), url, DeadLetterBackoff::new([secs(1), ELEVEN_YEARS])).await;
    says_all(&says, &["refuses to start", &queue, "a wait of 10years", "at most", "lower the policy's cap"]);
    assert_eq!(Rabbit::connect(url).await.ready(&queue).await, None, "nothing was declared");
}

async fn a_policy_that_needs_more_deliveries_than_the_queue_allows(on: Combination, url: &str) {
    let queue = on.unique("too-many");
    for (options, poison_after, taken_away_at) in [
        (on.options(&queue).delivery_limit(4), 5, "5"),
        (on.options(&queue).delivery_limit(4).topology(Topology::Verify), 9, "5"),
        (on.options(&queue), 21, "21"),
    ] {
        let says = refusal(options, url, usual().poison_after(poison_after)).await;
        says_all(
            &says,
            &[
                "refuses to start",
                &queue,
                &format!("after {poison_after} deliveries"),
                &format!("takes it away itself at {taken_away_at}:"),
                "raise the queue's delivery limit",
                "`poison_after`",
            ],
        );
    }
    assert_eq!(Rabbit::connect(url).await.ready(&queue).await, None, "nothing was declared");
}

/// Starts a consumer that must refuse; gives back what it says.
async fn refusal(options: Options, url: &str, preset: DeadLetterBackoff) -> String {
    let began = Instant::now();
    let starting = async {
        let transport = match options.connect(url).await {
            Ok(transport) => transport,
            Err(error) => return told(&error),
        };
        let consumer = Consumer::new(transport).with_dead_letter_backoff(preset);
        match consumer.handler(|| async { Ok::<(), BoxError>(()) }).run().await {
            Ok(report) => panic!("it ran: {report:?}"),
            Err(error) => told(&error),
        }
    };
    let says = within(2 * SOON, "the refusal", starting).await;
    assert!(began.elapsed() < SOON, "refused after {:?} only: {says}", began.elapsed());
    says
}

/// Returns the text of the error; nothing that could be logged contains the password.
fn told(error: &(dyn Error + 'static)) -> String {
    let whole = format!("{error:?} {error:#?}");
    let causes = std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string);
    let whole = causes.fold(whole, |whole, cause| whole + "\n" + &cause);
    assert!(!whole.contains(SECRET), "the password is in: {whole}");
    let says = error.to_string();
    assert_eq!(says.lines().count(), 1, "one message, one line: {says}");
    says
}

fn says_all(says: &str, parts: &[&str]) {
    for part in parts {
        assert!(says.contains(part), "`{part}` is not in: {says}");
    }
}

fn usual() -> DeadLetterBackoff {
    DeadLetterBackoff::new([secs(1)])
}

/// For what never comes to a broker.
fn any() -> Combination {
    Combination::new(Version::V3_10, QueueType::Quorum)
}

async fn clean_up(url: &str, queue: &str) {
    let queues = ["", "--dead-letters", "--parking-lot", "--retry-1000ms"].map(|end| format!("{queue}{end}"));
    Rabbit::connect(url).await.delete(queues).await;
}
