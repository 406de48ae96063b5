//! `cargo xtask bench`: starts brokers configured for load, then builds and runs the benchmark.

use crate::{rivals, servers};
use anyhow::{Context as _, Result};
use redrive_brokers::Version;
use std::process::{Command, ExitCode};

/// Configuration as on servers: more memory than the small nodes of the tests, and RabbitMQ's default size of the write-ahead log.
const CONFIGURATION: [&str; 2] =
    ["vm_memory_high_watermark.absolute = 6GB", "raft.wal_max_size_bytes = 512000000"];

/// Runs a benchmark that needs no shared RabbitMQ: that of the emulator, which needs its release build, or one that starts its own
/// nodes.
pub(crate) fn run_alone(arguments: &[String]) -> Result<ExitCode> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let packages = ["--package", "redrive-bench", "--package", "redrive-servicebus-emulator"];
    let built = Command::new(&cargo).args(["build", "--quiet", "--release"]).args(packages).status();
    if !built.context("could not run cargo")?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--release", "--package", "redrive-bench", "--"]).args(arguments);
    let status = command.status().context("could not run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs `redrive-bench` with these arguments on brokers of these `versions`, and on request against rival libraries.
pub(crate) fn run(versions: &[Version], with_rivals: bool, arguments: &[String]) -> Result<ExitCode> {
    let servers = servers::find_with(versions, &CONFIGURATION)?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["run", "--quiet", "--release", "--package", "redrive-bench", "--"]).args(arguments);
    if with_rivals {
        command.arg("--rivals").arg(rivals::install()?);
    }
    for version in Version::ALL {
        command.env_remove(version.url_variable());
    }
    for server in &servers {
        println!("{}", server.describe());
        command.env(server.version.url_variable(), server.url());
    }
    let status = command.status().context("could not run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
