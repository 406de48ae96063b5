//! The emulator as a process of its own.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_redrive-rabbitmq-emulator");
/// `guest`, as HTTP has it.
pub(crate) const GUEST: &str = "authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\n";

pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) address: String,
    pub(crate) http: Option<String>,
}

/// Starts it on a port of its own, and waits until it listens.
pub(crate) async fn start(mut command: Command, arguments: &[&str]) -> Process {
    let mut child = command
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
            return Process { child, address: address.to_owned(), http };
        }
    }
}

/// Sends a request as `guest`, and returns the whole response.
pub(crate) async fn http(address: &str, request: &str, body: &str) -> String {
    http_with(address, request, &format!("host: {address}\r\n{GUEST}"), body).await
}

pub(crate) async fn http_with(address: &str, request: &str, headers: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let length = body.len();
    let head =
        format!("{request} HTTP/1.1\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    response
}
