//! The signals that end a process, sent to a process of its own.
#![cfg(all(unix, feature = "signal"))]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use redrive_consumer::shutdown_signal;

/// Set in the process that is sent signals.
const INSIDE: &str = "REDRIVE_TEST_SHUTDOWN";

/// Not a test by itself: what the process does that the tests start.
#[tokio::test]
async fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let waiting = tokio::spawn(shutdown_signal());
    tokio::task::yield_now().await;
    println!("listening");
    waiting.await.expect("no panic");
    println!("asked");
    std::future::pending::<()>().await;
}

/// The process, with a function that waits until it prints a line.
fn start() -> (Child, impl FnMut(&str)) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "inside", "--nocapture"]).env(INSIDE, "1").stdout(Stdio::piped());
    let mut process = command.spawn().expect("started");
    let mut lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    let wait_for = move |wanted: &str| {
        let found = lines.any(|line| line.expect("read").contains(wanted));
        assert!(found, "it ended before it said `{wanted}`");
    };
    (process, wait_for)
}

fn send(signal: &str, process: &Child) {
    let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
    assert!(sent.expect("`kill` runs").success());
}

#[test]
fn the_first_signal_asks_and_the_second_ends() {
    for (first, second) in [("-TERM", "-TERM"), ("-INT", "-INT"), ("-TERM", "-INT")] {
        let (mut process, mut wait_for) = start();
        wait_for("listening");
        send(first, &process);
        wait_for("asked");
        send(second, &process);
        let status = process.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{first} {second}");
    }
}
