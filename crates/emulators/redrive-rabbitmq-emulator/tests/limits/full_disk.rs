//! A limit on the size of files stands for a full disk: it needs no rights, and can be taken back.

use redrive_amqp091::{Table, basic};

use crate::client::{Client, Said, short};
use crate::program::Program;

/// 4096 blocks of 512 bytes, or of 1024.
const LIMIT: &str = "trap '' XFSZ; ulimit -S -f 4096";

/// Publishes until the disk is full. Returns how many messages were confirmed, and what the client was told then.
async fn fill(program: &Program) -> (usize, String) {
    let mut client = program.client().await;
    client.confirms().await;
    client.declare("work", &Table::new().with("x-queue-type", "quorum")).await;
    let filler = "x".repeat(60_000);
    let mut confirmed = 0;
    loop {
        assert!(confirmed < 200, "these do not fit");
        match client.publish("work", format!("{confirmed} {filler}").as_bytes()).await {
            Ok(()) => confirmed += 1,
            Err(told) => return (confirmed, told),
        }
    }
}

/// Takes all messages; returns the first words of their bodies.
async fn take_all(program: &Program) -> Vec<String> {
    let mut client = program.client().await;
    let mut words = Vec::new();
    loop {
        client.add(basic::Get { queue: short("work"), no_ack: true, ..Default::default() });
        client.flush().await;
        match client.next().await {
            Said::Message(_, body) => {
                let text = String::from_utf8(body).expect("a text");
                words.push(text.split(' ').next().unwrap_or_default().to_owned());
            }
            _ => return words,
        }
    }
}

fn is_kept(confirmed: usize, found: &[String]) {
    let expected = (0..confirmed).map(|nth| nth.to_string());
    assert!(expected.eq(found.iter().take(confirmed).cloned()), "{confirmed} were confirmed: {found:?}");
}

#[tokio::test]
async fn what_was_confirmed_before_the_disk_was_full_is_there_after_a_kill() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    let mut program = Program::start_limited(LIMIT, &["--state", &state]).await;
    let (confirmed, told) = fill(&program).await;
    assert!(told.starts_with("541 ") && told.contains("the state file"), "{told}");
    assert!(confirmed > 10, "{confirmed}");
    // Who comes now is told.
    let told = Client::try_connect(program.socket().await, 0).await.err().expect("no connection");
    assert!(told.starts_with("541 ") && told.contains("the state file"), "{told}");
    let response = program.http("PUT /api/vhosts/other").await;
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    program.child.kill().await.expect("killed");

    let program = Program::start(&["--state", &state]).await;
    let found = take_all(&program).await;
    is_kept(confirmed, &found);
    assert!(found.len() <= confirmed + 1, "what was not stored is not there: {found:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn with_room_again_the_same_process_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    let mut program = Program::start_limited(LIMIT, &["--state", &state]).await;
    let (confirmed, _) = fill(&program).await;
    let id = program.child.id().expect("it runs").to_string();
    let raised = std::process::Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited:"]).status();
    assert!(raised.expect("prlimit runs").success());
    // It tries again each second.
    program.wait_for("PUT /api/vhosts/other", "HTTP/1.1 2").await;
    let mut client = program.client().await;
    client.confirms().await;
    client.publish("work", b"last").await.expect("confirmed");
    program.child.kill().await.expect("killed");

    let program = Program::start(&["--state", &state]).await;
    let found = take_all(&program).await;
    is_kept(confirmed, &found);
    assert_eq!(found.last().map(String::as_str), Some("last"));
}
