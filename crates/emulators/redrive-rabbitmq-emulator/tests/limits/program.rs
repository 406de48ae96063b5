//! The emulator as a process of its own, whose memory and files can be looked at.

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::binary::{self, PROGRAM, Process};
use crate::client::{Client, TEST_TIMEOUT};

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

    async fn start_by(command: Command, arguments: &[&str]) -> Self {
        let arguments = [&["--listen-http", "127.0.0.1:0"], arguments].concat();
        let Process { child, address, http } = binary::start(command, &arguments).await;
        Self { child, address, http: http.expect("it says so first") }
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
        binary::http(&self.http, request, "").await
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
