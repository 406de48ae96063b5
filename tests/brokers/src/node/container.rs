//! A node as a Docker container, where RabbitMQ cannot be installed.

use super::{Engine, Setup, configuration};
use crate::command::{run, tail};
use crate::install::{Installation, image};
use crate::process::Watcher;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Where the container has the files of a test.
const FILES: &str = "/etc/rabbitmq/redrive-files";

/// One container, named like its node.
#[derive(Debug)]
pub(super) struct Container {
    name: String,
    /// Removes the container; dropped last.
    _watcher: Watcher,
}

impl Container {
    pub(super) fn prepare(
        installation: &Installation,
        id: &str,
        node: &str,
        setup: &Setup<'_>,
    ) -> Result<Container> {
        let name = format!("redrive-{id}");
        let data: PathBuf = std::env::temp_dir().join(format!("redrive-broker-{id}"));
        fs::create_dir_all(&data).with_context(|| format!("could not create {}", data.display()))?;
        let watcher = Watcher::start(&data, Some(&name))?;
        let file = data.join("redrive.conf");
        // Connections through a published port do not come from loopback, to which RabbitMQ restricts guest.
        let configuration = configuration(setup.config, FILES);
        fs::write(&file, format!("loopback_users.guest = false\n{configuration}"))?;
        run(docker().args(["create", "--name", &name]).args([
            "--env",
            &format!("RABBITMQ_NODENAME={node}"),
            "--publish",
            &format!("127.0.0.1:{}:5672", setup.port),
            "--publish",
            &format!("127.0.0.1:{}:15672", setup.management_port),
            &image(installation.version()),
        ]))?;
        // Copied, not mounted: the Docker daemon may see other folders than this process.
        let target = format!("{name}:/etc/rabbitmq/conf.d/90-redrive.conf");
        run(docker().arg("cp").arg(&file).arg(target))?;
        setup.write_files(&data.join("files"))?;
        run(docker().arg("cp").arg(data.join("files")).arg(format!("{name}:{FILES}")))?;
        let plugins = data.join("enabled_plugins");
        fs::write(&plugins, setup.enabled_plugins())?;
        run(docker().arg("cp").arg(&plugins).arg(format!("{name}:/etc/rabbitmq/enabled_plugins")))?;
        Ok(Container { name, _watcher: watcher })
    }

    fn running(&self) -> Result<bool> {
        let state = run(docker().args(["inspect", "--format", "{{.State.Running}}", &self.name]))?;
        Ok(state.trim() == "true")
    }
}

impl Engine for Container {
    fn start(&mut self) -> Result<()> {
        run(docker().args(["start", &self.name])).map(drop)
    }

    fn alive(&mut self) -> Result<()> {
        ensure!(self.running()?, "the container {} ended", self.name);
        Ok(())
    }

    fn kill(&mut self) -> Result<()> {
        if self.running()? {
            run(docker().args(["kill", &self.name]))?;
            run(docker().args(["wait", &self.name]))?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        // Not `rabbitmqctl stop`: it would end the container, and with it the command.
        run(docker().args(["stop", "--time", "300", &self.name])).map(drop)
    }

    fn evaluate(&self) -> Option<Command> {
        // The image has no `erl_call`.
        None
    }

    fn ctl(&self) -> Command {
        let mut command = docker();
        command.args(["exec", &self.name, "rabbitmqctl", "--quiet"]);
        command
    }

    fn output(&self) -> String {
        tail(&self.log(), 25)
    }

    fn log(&self) -> String {
        run(docker().args(["logs", &self.name])).unwrap_or_default()
    }
}

fn docker() -> Command {
    Command::new("docker")
}
