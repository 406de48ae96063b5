//! The emulator as a program.

use crate::client::{Client, TEST_TIMEOUT};
#[cfg(target_os = "linux")]
use crate::client::{Requests, message, one, text, texts};
#[cfg(target_os = "linux")]
use fe2o3_amqp_types::messaging::Outcome;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

const PROGRAM: &str = env!("CARGO_BIN_EXE_redrive-servicebus-emulator");

/// The program with a queue `q`, and where it listens.
async fn start(arguments: &[&str]) -> (Child, String) {
    start_by(Command::new(PROGRAM), arguments).await
}

async fn start_by(mut command: Command, arguments: &[&str]) -> (Child, String) {
    let mut program = command
        .args(["--listen", "127.0.0.1:0", "--queue", "q"])
        .args(arguments)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the emulator starts");
    let mut lines = BufReader::new(program.stdout.take().expect("its output is piped")).lines();
    let line = lines.next_line().await.expect("its output is text").expect("it says something");
    let address = line.strip_prefix("listening on ").expect("it says where it listens").to_owned();
    (program, address)
}

#[cfg(unix)]
#[tokio::test]
async fn sigterm_and_ctrl_c_end_it_in_order() {
    for signal in ["-TERM", "-INT"] {
        let (mut program, address) = start(&[]).await;
        let mut client = Client::connect_to(&address).await;
        let id = program.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args([signal, &id]).status().expect("kill runs");
        assert!(sent.success());
        let told = tokio::time::timeout(TEST_TIMEOUT, client.connection.on_close()).await.expect("an end");
        let told = told.expect_err("the emulator closes with a reason").to_string();
        assert!(told.contains("The emulator ends"), "{signal}: {told}");
        let status =
            tokio::time::timeout(TEST_TIMEOUT, program.wait()).await.expect("it ends").expect("a status");
        assert!(status.success(), "{signal}: {status}");
    }
}

/// A limit on the size of files stands for a full disk: it needs no rights, and can be taken back.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_refuses_what_cannot_be_kept_until_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    let mut shell = Command::new("sh");
    // 4096 blocks of 512 bytes, or of 1024.
    shell.args(["-c", "trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" \"$@\"", PROGRAM]);
    let (mut program, address) = start_by(shell, &["--state", &state]).await;

    // Until the disk is full; then the client is told, and not left alone.
    let filler = "x".repeat(60_000);
    let mut client = Client::connect_to(&address).await;
    let mut sender = client.sender("q").await;
    let mut kept = 0;
    let told = loop {
        let next = message(&format!("{kept} {filler}"));
        let sending = async {
            tokio::select! {
                sent = sender.send(next) => sent.map_err(|error| error.to_string()),
                // This client does not tell a send that its connection is closed.
                told = client.connection.on_close() => Err(told.expect_err("a reason").to_string()),
            }
        };
        match tokio::time::timeout(TEST_TIMEOUT, sending).await.expect("an answer, or an end") {
            Ok(Outcome::Accepted(_)) => kept += 1,
            Ok(other) => panic!("{other:?}"),
            Err(told) => break told,
        }
    };
    assert!(told.contains("Nothing can be changed now"), "{told}");

    // Everybody can connect, and is refused with what SDKs try again.
    let mut client = Client::connect_to(&address).await;
    let mut sender = client.sender("q").await;
    match sender.send(message("refused")).await.expect("an answer") {
        Outcome::Rejected(rejected) => {
            let error = format!("{:?}", rejected.error.expect("a reason"));
            assert!(error.contains("com.microsoft:server-busy"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let mut requests = Requests::open(&mut client, "q/$management").await;
    let reply = requests.ask("com.microsoft:get-message-sessions", Vec::new()).await;
    assert_eq!(reply.status, 503);
    let mut receiver = client.receiver("q", 1).await;

    // With room again, who waits is served, and the same client goes on.
    let id = program.id().expect("it runs").to_string();
    let raised = std::process::Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited:"]).status();
    assert!(raised.expect("prlimit runs").success());
    let first = tokio::time::timeout(TEST_TIMEOUT, one(&mut receiver)).await.expect("it is handed out");
    assert!(text(&first).starts_with("0 "));
    receiver.release(&first).await.expect("released");
    let outcome = sender.send(message("last")).await.expect("an answer");
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");

    // What was accepted outlives a kill; what was not answered may be there.
    program.kill().await.expect("killed");
    let (_program, address) = start(&["--state", &state]).await;
    let mut client = Client::connect_to(&address).await;
    let mut receiver = client.receiver("q", 1000).await;
    let mut found = Vec::new();
    while found.last().is_none_or(|last| last != "last") {
        let next = tokio::time::timeout(TEST_TIMEOUT, one(&mut receiver)).await.expect("it is there");
        found.extend(texts(&[next]).iter().filter_map(|text| text.split(' ').next().map(str::to_owned)));
    }
    let accepted = (0..kept).map(|nth| nth.to_string());
    assert!(accepted.eq(found.iter().take(kept).cloned()), "{found:?}");
    assert!(found.len() <= kept + 2, "{found:?}");
}
