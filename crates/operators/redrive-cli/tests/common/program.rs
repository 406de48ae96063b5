//! The built program: its commands, and its page.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{On, Shop};

/// The built program, with a state of its own.
pub(crate) struct Cli {
    broker: String,
    folder: Arc<tempfile::TempDir>,
    variable: Option<(&'static str, &'static str)>,
}

pub(crate) struct Output {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Cli {
    pub(crate) fn new(shop: &Shop) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (broker, secret) = match &shop.on {
            On::RabbitMq { url, .. } => {
                let (scheme, rest) = url.split_once("://").expect("a URL");
                let (user, host) = rest.rsplit_once('@').expect("a user");
                let (user, password) = user.split_once(':').expect("a password");
                (format!("{scheme}://{user}@{host}"), password.to_owned())
            }
            On::ServiceBus(emulator) => ("servicebus".to_owned(), emulator.connection_string()),
            #[cfg(unix)]
            On::Memory(own) => (format!("unix:{}", own.socket.path().display()), String::new()),
        };
        std::fs::write(folder.path().join("secret"), secret).expect("written");
        Self { broker, folder: Arc::new(folder), variable: None }
    }

    /// The same with an environment variable.
    pub(crate) fn with(&self, name: &'static str, value: &'static str) -> Self {
        Self { broker: self.broker.clone(), folder: Arc::clone(&self.folder), variable: Some((name, value)) }
    }

    /// The same through a proxy.
    pub(crate) fn through(&self, proxy: std::net::SocketAddr) -> Self {
        let (before, host) = self.broker.rsplit_once('@').expect("a user");
        let path = host.split_once('/').map_or("", |(_, path)| path);
        let broker = format!("{before}@{proxy}/{path}");
        Self { broker, folder: Arc::clone(&self.folder), variable: self.variable }
    }

    pub(crate) fn broker(&self) -> &str {
        &self.broker
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command
            .env("REDRIVE_BROKER", &self.broker)
            .env("REDRIVE_SECRET_FILE", self.path("secret"))
            .env("REDRIVE_STATE", self.state())
            .envs(self.variable)
            .env_remove("VISUAL")
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    pub(crate) fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).expect("written");
    }

    /// The id of the newest run.
    pub(crate) fn last_run(&self) -> Option<String> {
        let files = std::fs::read_dir(self.state().join("runs")).ok()?;
        let names = files.filter_map(|file| file.expect("a file").file_name().into_string().ok());
        let runs = names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned));
        runs.max()
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Output {
        let ran = self.command(arguments).output();
        let limit = std::time::Duration::from_secs(180);
        let ran = tokio::time::timeout(limit, ran).await.expect("it ends").expect("it runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Output { code: ran.status.code().expect("no signal"), out: text(ran.stdout), err: text(ran.stderr) }
    }

    pub(crate) async fn ok(&self, arguments: &[&str]) -> Output {
        let output = self.run(arguments).await;
        assert_eq!(output.code, 0, "{arguments:?}: {}\n{}", output.out, output.err);
        output
    }

    pub(crate) async fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.ok(&[&["--json"], arguments].concat()).await;
        serde_json::from_str(&output.out).expect("JSON")
    }

    /// How many originals were exported.
    pub(crate) fn originals(&self) -> usize {
        let files = std::fs::read_dir(self.state().join("originals")).expect("a folder");
        let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text"));
        texts.map(|text| text.lines().count()).sum()
    }

    pub(crate) fn audit(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.state().join("audit.jsonl")).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// A page that is served.
pub(crate) struct Page {
    /// The address of one login.
    pub(crate) url: String,
    server: tokio::process::Child,
}

impl Page {
    pub(crate) async fn start(cli: &Cli, arguments: &[&str]) -> Self {
        Self::of(cli.command(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat())).await
    }

    /// A server that prints its address.
    pub(crate) async fn of(mut command: Command) -> Self {
        let mut server = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let mut lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
        let url = tokio::time::timeout(std::time::Duration::from_secs(180), lines.next_line()).await;
        let url = url.expect("in time").expect("text").expect("an address");
        Self { url, server }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        let (own, _) = self.url.split_once("/login").expect("an address");
        format!("{own}{path}")
    }

    pub(crate) async fn stop(mut self) {
        self.server.kill().await.expect("killed");
    }

    /// Ends it as an orchestrator does.
    #[cfg(unix)]
    pub(crate) async fn terminate(mut self) {
        super::tell_to_end(&self.server);
        let ended = tokio::time::timeout(std::time::Duration::from_secs(60), self.server.wait()).await;
        assert!(ended.expect("in time").expect("it ends").success());
    }
}
