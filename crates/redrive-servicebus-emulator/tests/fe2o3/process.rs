//! The emulator as a program.

use crate::client::{Client, PATIENCE};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The program with a queue `q`, and where it listens.
async fn start(arguments: &[&str]) -> (Child, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_redrive-servicebus-emulator"))
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
        let told = tokio::time::timeout(PATIENCE, client.connection.on_close()).await.expect("an end");
        let told = told.expect_err("the emulator closes with a reason").to_string();
        assert!(told.contains("The emulator ends"), "{signal}: {told}");
        let status =
            tokio::time::timeout(PATIENCE, program.wait()).await.expect("it ends").expect("a status");
        assert!(status.success(), "{signal}: {status}");
    }
}
