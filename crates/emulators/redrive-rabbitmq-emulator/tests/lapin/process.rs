//! The emulator as a program.

use std::collections::HashSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicRejectOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use crate::binary::{self, GUEST, PROGRAM, Process, http, http_with};

use super::{channel, connect, declare, publish, take, text};

async fn start(arguments: &[&str]) -> Process {
    binary::start(Command::new(PROGRAM), arguments).await
}

/// Connects as `guest`.
async fn connect_to(process: &Process) -> Connection {
    connect(&format!("amqp://guest:guest@{}/%2f", process.address)).await
}

/// How often the program is killed: `REDRIVE_TEST_KILLS`, 8 by default.
fn kills() -> usize {
    std::env::var("REDRIVE_TEST_KILLS").map_or(8, |kills| kills.parse().expect("a number"))
}

const QUEUES: [(&str, &str); 2] = [("quorum", "quorum"), ("classic", "classic")];
const DEAD: &str = "dead";

/// At any moment: while messages are on their way, others wait to be confirmed, and others are being dead-lettered.
#[tokio::test]
async fn confirmed_messages_survive_sigkill() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("a path");
    let mut confirmed = HashSet::new();
    for round in 0..kills() {
        let mut program = start(&["--state", state]).await;
        let connection = connect_to(&program).await;
        let declaring = channel(&connection).await;
        declare(&declaring, DEAD, &[("x-queue-type", text("quorum"))]).await;
        let (mut work, answered) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
        for (queue, kind) in QUEUES {
            let arguments = [
                ("x-queue-type", text(kind)),
                ("x-dead-letter-exchange", text("")),
                ("x-dead-letter-routing-key", text(DEAD)),
            ];
            declare(&declaring, queue, &arguments).await;
            tokio::spawn(reject_some(channel(&connection).await, queue));
            let publishing =
                publish_until_killed(channel(&connection).await, queue, round, Arc::clone(&answered));
            work.push(tokio::spawn(publishing));
        }
        while answered.load(Ordering::Relaxed) < 20 {
            tokio::task::yield_now().await;
        }
        let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), round);
        tokio::time::sleep(std::time::Duration::from_millis(random % 100)).await;
        program.child.kill().await.expect("killed");
        for publishing in work {
            confirmed.extend(publishing.await.expect("no panic"));
        }
    }
    let program = start(&["--state", state]).await;
    let connection = connect_to(&program).await;
    let taker = channel(&connection).await;
    let mut kept = HashSet::new();
    for queue in [QUEUES[0].0, QUEUES[1].0, DEAD] {
        let count = taker.queue_declare(queue.into(), PASSIVE, Default::default()).await.expect("a queue");
        kept.extend(take(&channel(&connection).await, queue, count.message_count() as usize).await);
    }
    let lost: Vec<_> = confirmed.difference(&kept).collect();
    println!("{} kills: {} confirmed, {} kept, {} lost", kills(), confirmed.len(), kept.len(), lost.len());
    assert!(lost.is_empty(), "{lost:?}");
}

const PASSIVE: QueueDeclareOptions = QueueDeclareOptions {
    passive: true,
    durable: false,
    exclusive: false,
    auto_delete: false,
    nowait: false,
};

/// Publishes many messages at once, and returns those that are confirmed.
async fn publish_until_killed(
    channel: Channel,
    queue: &str,
    round: usize,
    answered: Arc<AtomicUsize>,
) -> Vec<String> {
    let channel = &channel;
    let bodies = (0..).map(|number| format!("{queue}-{round}-{number}"));
    let publishing =
        bodies.map(|body| async move { publish(channel, queue, &body).await.is_ok().then_some(body) });
    let answers = futures::stream::iter(publishing).buffer_unordered(64);
    let confirmed = answers.take_while(|body| std::future::ready(body.is_some()));
    let counted = confirmed.inspect(|_| {
        answered.fetch_add(1, Ordering::Relaxed);
    });
    counted.filter_map(std::future::ready).collect().await
}

/// Has every other message dead-lettered, and holds the others.
async fn reject_some(channel: Channel, queue: &str) -> lapin::Result<()> {
    let options = BasicConsumeOptions::default();
    let mut consumer = channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    let mut is_next = false;
    while let Some(delivery) = consumer.next().await {
        is_next = !is_next;
        if is_next {
            delivery?.reject(BasicRejectOptions { requeue: false }).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_clock_is_moved_by_http() {
    let program = start(&["--listen-http", "127.0.0.1:0", "--time", "manual", "--version", "3.10"]).await;
    let address = program.http.clone().expect("an address for HTTP");
    let policy = r#"{"pattern":"^work$","definition":{"message-ttl":3600000,"dead-letter-exchange":"","dead-letter-routing-key":"dead"},"apply-to":"queues"}"#;
    let response = http(&address, "PUT /api/policies/%2f/ladder", policy).await;
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    let connection = connect_to(&program).await;
    let channel = channel(&connection).await;
    declare(&channel, "work", &[]).await;
    declare(&channel, "dead", &[]).await;
    publish(&channel, "work", "x").await.expect("confirmed");
    http(&address, "POST /emulator/advance?millis=3600000", "").await;
    assert_eq!(take(&channel, "dead", 1).await, ["x"]);
    let events = http(&address, "DELETE /emulator/events", "").await;
    assert!(events.contains(r#""reason":"expired""#), "{events}");
    let overview = http(&address, "GET /api/overview", "").await;
    assert!(overview.contains(r#""rabbitmq_version":"3.10.8""#), "{overview}");
    let unknown = http(&address, "GET /api/queues/%2f/missing", "").await;
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
}

#[tokio::test]
async fn no_web_page_and_no_stranger_can_use_the_http_of_the_emulator() {
    let program = start(&["--listen-http", "127.0.0.1:0", "--http-name", "rabbit.test"]).await;
    let address = program.http.clone().expect("an address for HTTP");
    let connection = connect_to(&program).await;
    let own = format!("host: {address}\r\n");
    let evil = format!("{own}{GUEST}origin: http://evil.example\r\n");
    let rebound = format!("host: evil.example\r\n{GUEST}");
    let wrong = format!("{own}authorization: Basic Z3Vlc3Q6d3Jvbmc=\r\n");
    for request in [
        "POST /emulator/faults/cut-connections",
        "POST /emulator/advance?millis=1000",
        "GET /emulator/events",
        "DELETE /emulator/events",
        "GET /emulator/time",
        "GET /emulator/topology",
        "GET /api/overview",
        "POST /api/definitions",
    ] {
        for (headers, status) in [(&evil, 403), (&rebound, 403), (&own, 401), (&wrong, 401)] {
            let response = http_with(&address, request, headers, "").await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request} {headers}: {response}");
        }
    }
    assert!(connection.status().connected(), "no connection was cut");
    let named = http_with(&address, "GET /emulator/time", &format!("host: rabbit.test\r\n{GUEST}"), "").await;
    assert!(named.starts_with("HTTP/1.1 200"), "{named}");
    for request in ["GET /emulator/advance?millis=1", "POST /emulator/events", "GET /emulator/faults/freeze"]
    {
        let response = http(&address, request, "").await;
        assert!(response.starts_with("HTTP/1.1 405"), "{request}: {response}");
    }
}

#[tokio::test]
async fn the_clock_cannot_be_moved_to_its_end() {
    let program = start(&["--listen-http", "127.0.0.1:0", "--time", "manual"]).await;
    let address = program.http.clone().expect("an address for HTTP");
    let before = http(&address, "GET /emulator/time", "").await;
    for millis in
        ["18446744073709551615", "9223372036854775807", "253402300799999", "18446744073709551616", "-1"]
    {
        let response = http(&address, &format!("POST /emulator/advance?millis={millis}"), "").await;
        assert!(response.starts_with("HTTP/1.1 400"), "{millis}: {response}");
    }
    let now = |response: &str| -> i64 {
        let (_, json) = response.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str::<serde_json::Value>(json).expect("JSON")["now"].as_i64().expect("a time")
    };
    let moved = http(&address, "POST /emulator/advance?millis=1000", "").await;
    assert_eq!(now(&moved) - now(&before), 1000);
}

const NO_DEAD_LETTERING: &str = "REDRIVE_RABBITMQ_EMULATOR_NO_DEAD_LETTERING";

/// Starts the program, rejects a message whose queue has a dead-letter queue, and one whose queue has none, and returns how many dead
/// letters there are, and what the program logged.
async fn reject_two(arguments: &[&str], switch: Option<&str>) -> (u32, String) {
    let mut command = Command::new(PROGRAM);
    command.env_remove("RUST_LOG").env_remove(NO_DEAD_LETTERING).stderr(Stdio::piped());
    if let Some(switch) = switch {
        command.env(NO_DEAD_LETTERING, switch);
    }
    let mut program = binary::start(command, arguments).await;
    let connection = connect_to(&program).await;
    let channel = channel(&connection).await;
    declare(&channel, DEAD, &[]).await;
    let to_dead = [("x-dead-letter-exchange", text("")), ("x-dead-letter-routing-key", text(DEAD))];
    for (queue, arguments) in [("work", &to_dead[..]), ("plain", &[])] {
        declare(&channel, queue, arguments).await;
        publish(&channel, queue, "secret body").await.expect("confirmed");
        let got =
            channel.basic_get(queue.into(), Default::default()).await.expect("asked").expect("a message");
        got.delivery.acker.reject(BasicRejectOptions { requeue: false }).await.expect("rejected");
    }
    let dead = channel
        .queue_declare(DEAD.into(), PASSIVE, Default::default())
        .await
        .expect("a queue")
        .message_count();
    program.child.start_kill().expect("killed");
    let mut logged = String::new();
    program.child.stderr.take().expect("its log").read_to_string(&mut logged).await.expect("text");
    (dead, logged)
}

#[tokio::test]
async fn the_program_logs_what_it_drops_and_why() {
    let (dead, logged) = reject_two(&[], None).await;
    assert_eq!(dead, 1);
    let dropped: Vec<_> = logged.lines().filter(|line| line.contains("dropped")).collect();
    assert_eq!(dropped.len(), 1, "{logged}");
    assert!(dropped[0].contains("rejected, and its queue has no dead-letter exchange"), "{logged}");
    assert!(dropped[0].contains("plain") && !logged.contains("secret body"), "{logged}");
}

#[tokio::test]
async fn dead_lettering_is_switched_off_by_an_option_or_an_environment_variable() {
    for (arguments, switch, dead) in [
        (vec!["--no-dead-lettering"], None, 0),
        (vec![], Some("true"), 0),
        (vec![], Some("1"), 0),
        (vec![], Some("false"), 1),
        (vec![], Some("0"), 1),
    ] {
        let (found, logged) = reject_two(&arguments, switch).await;
        assert_eq!(found, dead, "{arguments:?} {switch:?}");
        let ignored = "the queue's dead-letter exchange is ignored";
        assert_eq!(logged.contains(ignored), dead == 0, "{arguments:?} {switch:?}: {logged}");
    }
}

#[tokio::test]
async fn it_listens_on_each_address_that_is_given() {
    let mut command = Command::new(PROGRAM);
    command.args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.2:0", "--listen-http", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("a program");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut addresses = Vec::new();
    while addresses.len() < 2 {
        let line = lines.next_line().await.expect("output").expect("it says where it listens");
        addresses.extend(line.strip_prefix("listening on ").map(str::to_owned));
    }
    assert!(
        addresses[0].starts_with("127.0.0.1:") && addresses[1].starts_with("127.0.0.2:"),
        "{addresses:?}"
    );
    for address in &addresses {
        let connection = connect(&format!("amqp://guest:guest@{address}/%2f")).await;
        declare(&channel(&connection).await, "work", &[]).await;
    }
}

#[tokio::test]
async fn definitions_come_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("definitions.json");
    let definitions = r#"{"queues":[{"name":"work","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum"}}]}"#;
    std::fs::write(&path, definitions).expect("a file");
    let program = start(&["--definitions", path.to_str().expect("a path")]).await;
    let connection = connect_to(&program).await;
    let channel = channel(&connection).await;
    publish(&channel, "work", "x").await.expect("confirmed");
    assert_eq!(take(&channel, "work", 1).await, ["x"]);
}

#[tokio::test]
async fn wrong_arguments_are_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    std::fs::write(&state, "not a state file").expect("a file");
    for (arguments, what) in [
        (vec!["--time", "manual"], "--listen-http"),
        (vec!["--version", "3.9"], "3.10 or 4.3"),
        (vec!["--state", state.to_str().expect("a path")], "the state file"),
        (vec!["--definitions", "/no/such/file"], "/no/such/file"),
    ] {
        let output = Command::new(PROGRAM)
            .args(["--listen", "127.0.0.1:0"])
            .args(&arguments)
            .output()
            .await
            .expect("a program");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(what), "{arguments:?}: {text}");
    }
}
