//! The emulator as people start it: a process.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::QUEUE;
use crate::process;

/// Ends when it is dropped.
pub(super) struct Emulator {
    child: Child,
    address: String,
    /// From its start until it accepts.
    pub(super) started_in: Duration,
}

impl Emulator {
    pub(super) async fn start(binary: &Path) -> Result<Self> {
        let began = Instant::now();
        let mut child = Command::new(binary)
            .args(["--listen", "127.0.0.1:0", "--queue", QUEUE])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let output = child.stdout.take().context("its output is piped")?;
        let line = BufReader::new(output).lines().next_line().await?.context("it ended at once")?;
        let started_in = began.elapsed();
        let address = line.strip_prefix("listening on ").context("it says where it listens")?.to_owned();
        Ok(Self { child, address, started_in })
    }

    pub(super) fn connection_string(&self) -> String {
        format!(
            "Endpoint=sb://{};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
             UseDevelopmentEmulator=true;",
            self.address
        )
    }

    pub(super) fn process(&self) -> Result<u32> {
        self.child.id().context("the emulator ended")
    }

    pub(super) fn resident_mib(&self) -> Result<f64> {
        process::resident_mib(self.process()?).context("its memory cannot be read")
    }
}
