//! An emulator in a process of its own.

use std::path::PathBuf;
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::sleep;

use super::place::Left;

/// So often it is started, until it has its port: somebody else may have it for a moment.
const STARTS: u32 = 300;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(200);

/// An emulator in a process of its own, with a state file; `src/bin/servicebus_emulator.rs`.
#[derive(Debug)]
pub struct EmulatorProcess {
    program: &'static str,
    state_file: PathBuf,
    address: String,
    connection_string: String,
    running: Running,
}

#[derive(Debug)]
struct Running {
    process: Child,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl EmulatorProcess {
    /// Starts it on a free port; returns when it accepts connections.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(program: &'static str, state_file: PathBuf) -> Self {
        // None of those that outgoing connections get: it would be gone while the emulator is dead.
        let port = redrive_brokers::free_port().expect("a free port");
        let (running, address, connection_string) =
            run(program, &format!("127.0.0.1:{port}"), &state_file).await;
        Self { program, state_file, address, connection_string, running }
    }

    /// What clients connect with; the same after a restart.
    #[must_use]
    pub fn connection_string(&self) -> &str {
        &self.connection_string
    }

    /// SIGKILL, and a new start on the same port with what the state file has.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn kill_and_restart(&mut self) {
        self.running.process.kill().await.expect("the emulator can be killed");
        (self.running, _, _) = run(self.program, &self.address, &self.state_file).await;
    }

    /// Ends all connections without a word; answers how many there were.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn drop_connections(&mut self) -> usize {
        self.ask("drop").await[0]
    }

    /// Ends the locks of at most this many messages in flight; answers of how many.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn expire(&mut self, most: usize) -> usize {
        self.ask(&format!("expire {most}")).await[0]
    }

    /// Where the messages are.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn look(&mut self) -> Left {
        let [work, waiting, shelf, parked] = self.ask("look").await[..] else { panic!("four numbers") };
        Left { work, waiting, shelf, parked }
    }

    async fn ask<T: FromStr<Err: std::fmt::Debug>>(&mut self, line: &str) -> Vec<T> {
        let line = format!("{line}\n");
        self.running.asks.write_all(line.as_bytes()).await.expect("the emulator listens");
        let answer = answer(&mut self.running).await.expect("the emulator lives");
        answer.split(' ').map(|word| word.parse().expect("a number")).collect()
    }
}

async fn run(program: &str, listen: &str, state_file: &PathBuf) -> (Running, String, String) {
    for _ in 0..STARTS {
        let mut process = Command::new(program)
            .arg(listen)
            .arg(state_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the emulator can be started");
        let asks = process.stdin.take().expect("its input is piped");
        let answers = BufReader::new(process.stdout.take().expect("its output is piped")).lines();
        let mut running = Running { process, asks, answers };
        if let Some(said) = answer(&mut running).await {
            let (address, connection_string) =
                said.split_once(' ').expect("an address and a connection string");
            return (running, address.to_owned(), connection_string.to_owned());
        }
        // It has said on its standard error why it ended.
        sleep(PAUSE).await;
    }
    panic!("the emulator does not start at {listen}");
}

/// `None` when it is dead.
async fn answer(running: &mut Running) -> Option<String> {
    running.answers.next_line().await.expect("its output can be read")
}
