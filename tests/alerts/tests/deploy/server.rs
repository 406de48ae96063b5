//! A running Prometheus, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use redrive_brokers::command::tail;
use redrive_brokers::free_port;
use redrive_brokers::process::{Group, Watcher};
use serde_json::Value;

use crate::tools::Tools;

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);

/// A Prometheus of its own; it and its data are gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    url: String,
    _process: Group,
    // Dropped last: it kills the process, and removes the folder.
    _watcher: Watcher,
}

/// An alerting rule: two may have one name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) name: String,
    pub(crate) severity: String,
}

/// An alert that fires.
#[derive(Debug)]
pub(crate) struct Alert {
    pub(crate) rule: Rule,
    pub(crate) queue_name: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Server {
    /// Starts one that scrapes `target` and evaluates `rules` twice a second.
    pub(crate) fn start(tools: &Tools, target: SocketAddr, rules: &str) -> Result<Server> {
        let folder = tempfile::Builder::new().prefix("redrive-prometheus.").tempdir()?.keep();
        let watcher = Watcher::start(&folder, None)?;
        fs::write(folder.join("rules.yml"), rules)?;
        fs::write(folder.join("prometheus.yml"), configuration(target))?;
        let mut last = None;
        // Somebody may take the port before Prometheus does.
        for _ in 0..3 {
            let port = free_port()?;
            let mut process = spawn(tools, &folder, port)?;
            watcher.cover([&process])?;
            match await_ready(&mut process, port) {
                Ok(url) => return Ok(Server { url, _process: process, _watcher: watcher }),
                Err(error) => last = Some(error),
            }
            process.kill()?;
        }
        let output = fs::read_to_string(folder.join("output")).unwrap_or_default();
        Err(last.context("no port")?)
            .with_context(|| format!("Prometheus does not start: {}", tail(&output, 15)))
    }

    /// What answers `query` now: labels and values.
    pub(crate) fn query(&self, query: &str) -> Result<Vec<(String, String)>> {
        let result = &self.ask("query", &[("query", query)])?["result"];
        let series = result.as_array().with_context(|| format!("no series: {result}"))?;
        Ok(series.iter().map(|series| (series["metric"].to_string(), text(&series["value"][1]))).collect())
    }

    /// Every alerting rule that is loaded.
    pub(crate) fn rules(&self) -> Result<BTreeSet<Rule>> {
        let answer = self.ask("rules", &[("type", "alert")])?;
        let groups = answer["groups"].as_array().context("no groups")?;
        let rules = groups.iter().filter_map(|group| group["rules"].as_array()).flatten();
        Ok(rules
            .map(|rule| Rule { name: text(&rule["name"]), severity: text(&rule["labels"]["severity"]) })
            .collect())
    }

    /// The alerts that fire now.
    pub(crate) fn alerts(&self) -> Result<Vec<Alert>> {
        let answer = self.ask("alerts", &[])?;
        let alerts = answer["alerts"].as_array().context("no alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        Ok(firing
            .map(|alert| {
                let labels = &alert["labels"];
                let annotations = alert["annotations"].as_object().into_iter().flatten();
                Alert {
                    rule: Rule { name: text(&labels["alertname"]), severity: text(&labels["severity"]) },
                    queue_name: text(&labels["queue_name"]),
                    annotations: annotations.map(|(name, value)| (name.clone(), text(value))).collect(),
                }
            })
            .collect())
    }

    fn ask(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Value> {
        let mut request = ureq::get(format!("{}/api/v1/{what}", self.url));
        for (name, value) in parameters {
            request = request.query(name, value);
        }
        // What is wrong with a query stands in the answer, whose status is not 200 then.
        let mut response = request.config().http_status_as_error(false).build().call()?;
        let mut answer: Value = serde_json::from_str(&response.body_mut().read_to_string()?)?;
        ensure!(
            answer["status"] == "success",
            "Prometheus refuses {what} {parameters:?}: {}",
            answer["error"]
        );
        Ok(answer["data"].take())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.severity)
    }
}

fn configuration(target: SocketAddr) -> String {
    format!(
        "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
         rule_files: [rules.yml]\n\
         scrape_configs:\n\
         - {{job_name: services, static_configs: [{{targets: ['{target}']}}]}}\n"
    )
}

fn spawn(tools: &Tools, folder: &Path, port: u16) -> Result<Group> {
    let output = File::create(folder.join("output"))?;
    let mut command = Command::new(&tools.prometheus);
    command
        .arg("--config.file=prometheus.yml")
        .arg("--storage.tsdb.path=data")
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .arg("--log.level=warn")
        .current_dir(folder)
        .stdout(output.try_clone()?)
        .stderr(output);
    Group::spawn(&mut command)
}

fn await_ready(process: &mut Group, port: u16) -> Result<String> {
    let url = format!("http://127.0.0.1:{port}");
    let began = Instant::now();
    while ureq::get(format!("{url}/-/ready")).call().is_err() {
        ensure!(!process.ended()?, "it ended");
        if began.elapsed() > START {
            bail!("it is not ready after {START:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(url)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
