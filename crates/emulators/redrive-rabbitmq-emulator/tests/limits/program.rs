//! The emulator as a process of its own, whose memory and files can be looked at.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::client::{Client, TEST_TIMEOUT};

const PROGRAM: &str = env!("CARGO_BIN_EXE_redrive-rabbitmq-emulator");

pub(crate) struct Program {
    pub(crate) child: Child,
    address: String,
    http: String,
}

impl Program {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        Self::start_by(Command::new(PROGRAM), arguments).await
    }

    /// Starts it under limits of the system, such as `ulimit -n 64`.
    pub(crate) async fn start_limited(limits: &str, arguments: &[&str]) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{limits}; exec \"$0\" \"$@\""), PROGRAM]);
        Self::start_by(shell, arguments).await
    }

    async fn start_by(mut command: Command, arguments: &[&str]) -> Self {
        let mut child = command
            .args(["--listen", "127.0.0.1:0", "--listen-http", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a program");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut http = String::new();
        loop {
            let line = lines.next_line().await.expect("output").expect("it says where it listens");
            if let Some(address) = line.strip_prefix("listening for HTTP on ") {
                address.clone_into(&mut http);
            } else if let Some(address) = line.strip_prefix("listening on ") {
                return Self { child, address: address.to_owned(), http };
            }
        }
    }

    /// Connects a client that asks for no heartbeats.
    pub(crate) async fn client(&self) -> Client {
        self.client_with(0).await
    }

    /// `heartbeat`: in seconds.
    pub(crate) async fn client_with(&self, heartbeat: u16) -> Client {
        Client::connect(self.socket().await, heartbeat).await
    }

    pub(crate) async fn socket(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// Returns the memory that it has, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id().expect("it runs"));
        let status = std::fs::read_to_string(path).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes * 1024
    }

    /// Returns the processor time that it has used, in milliseconds.
    pub(crate) fn cpu_millis(&self) -> u64 {
        let tasks = format!("/proc/{}/task", self.child.id().expect("it runs"));
        let nanos = std::fs::read_dir(tasks).expect("its threads").filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        nanos.sum::<u64>() / 1_000_000
    }

    pub(crate) fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.child.id().expect("it runs"));
        std::fs::read_dir(folder).expect("its files").count()
    }

    /// Sends a request as `guest`, and returns the whole response.
    pub(crate) async fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).await.expect("a connection");
        let head = format!(
            "{request} HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut response = String::new();
        stream.read_to_string(&mut response).await.expect("a response");
        response
    }

    /// Waits until the response to a request has this text.
    pub(crate) async fn wait_for(&self, request: &str, text: &str) {
        let waiting = async {
            while !self.http(request).await.contains(text) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("a response with this text");
    }
}
