//! The emulator as a program.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::{channel, connect, declare, publish, take};

struct Program {
    child: Child,
    url: String,
    http: Option<String>,
}

async fn start(arguments: &[&str]) -> Program {
    let mut child = Command::new(env!("CARGO_BIN_EXE_redrive-rabbitmq-emulator"))
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a program");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut http = None;
    loop {
        let line = lines.next_line().await.expect("output").expect("it says where it listens");
        if let Some(address) = line.strip_prefix("listening for HTTP on ") {
            http = Some(address.to_owned());
        } else if let Some(address) = line.strip_prefix("listening on ") {
            return Program { child, url: format!("amqp://guest:guest@{address}/%2f"), http };
        }
    }
}

/// Sends a request as `guest`, and returns the whole response.
async fn http(address: &str, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "{request} HTTP/1.1\r\nhost: x\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    response
}

#[tokio::test]
async fn confirmed_messages_survive_sigkill() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("a path");
    let mut confirmed = Vec::new();
    for round in 0..5 {
        let mut program = start(&["--state", state]).await;
        let connection = connect(&program.url).await;
        let publisher = channel(&connection).await;
        declare(&publisher, "work", &[("x-queue-type", super::text("quorum"))]).await;
        let publishing = tokio::spawn(async move {
            let mut confirmed = Vec::new();
            for number in 0.. {
                let body = format!("{round}-{number}");
                match publish(&publisher, "work", &body).await {
                    Ok(_) => confirmed.push(body),
                    Err(_) => break,
                }
                if number == 20 * (round + 1) {
                    program.child.kill().await.expect("killed");
                }
            }
            confirmed
        });
        confirmed.extend(publishing.await.expect("no panic"));
    }
    let program = start(&["--state", state]).await;
    let connection = connect(&program.url).await;
    let taker = channel(&connection).await;
    let kept = take(&taker, "work", confirmed.len()).await;
    let missing: Vec<_> = confirmed.iter().filter(|body| !kept.contains(body)).collect();
    // What was stored and not confirmed may be there too, and push others behind the first ones.
    let rest = taker.queue_declare(
        "work".into(),
        lapin::options::QueueDeclareOptions { passive: true, ..Default::default() },
        Default::default(),
    );
    let rest = rest.await.expect("a queue").message_count();
    let more = take(&taker, "work", rest as usize).await;
    assert!(missing.iter().all(|body| more.contains(body)), "{missing:?}");
}

#[tokio::test]
async fn the_clock_is_moved_by_http() {
    let program = start(&["--listen-http", "127.0.0.1:0", "--time", "manual", "--version", "3.10"]).await;
    let address = program.http.expect("an address for HTTP");
    let policy = r#"{"pattern":"^work$","definition":{"message-ttl":3600000,"dead-letter-exchange":"","dead-letter-routing-key":"dead"},"apply-to":"queues"}"#;
    let response = http(&address, "PUT /api/policies/%2f/ladder", policy).await;
    assert!(response.starts_with("HTTP/1.1 201"), "{response}");
    let connection = connect(&program.url).await;
    let channel = channel(&connection).await;
    declare(&channel, "work", &[]).await;
    declare(&channel, "dead", &[]).await;
    publish(&channel, "work", "x").await.expect("confirmed");
    http(&address, "POST /emulator/advance?millis=3600000", "").await;
    assert_eq!(take(&channel, "dead", 1).await, ["x"]);
    let events = http(&address, "GET /emulator/events", "").await;
    assert!(events.contains(r#""reason":"expired""#), "{events}");
    let overview = http(&address, "GET /api/overview", "").await;
    assert!(overview.contains(r#""rabbitmq_version":"3.10.8""#), "{overview}");
    let unknown = http(&address, "GET /api/queues/%2f/missing", "").await;
    assert!(unknown.starts_with("HTTP/1.1 404"), "{unknown}");
}

#[tokio::test]
async fn definitions_come_from_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("definitions.json");
    let definitions = r#"{"queues":[{"name":"work","vhost":"/","durable":true,"auto_delete":false,"arguments":{"x-queue-type":"quorum"}}]}"#;
    std::fs::write(&path, definitions).expect("a file");
    let program = start(&["--definitions", path.to_str().expect("a path")]).await;
    let connection = connect(&program.url).await;
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
        let output = Command::new(env!("CARGO_BIN_EXE_redrive-rabbitmq-emulator"))
            .args(["--listen", "127.0.0.1:0"])
            .args(&arguments)
            .output()
            .await
            .expect("a program");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(what), "{arguments:?}: {text}");
    }
}
