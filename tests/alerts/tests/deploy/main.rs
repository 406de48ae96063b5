//! The files of `deploy/`, tested with the programs that they are for.
//!
//! | module | does |
//! |---|---|
//! | [`dashboard`] | reads the dashboard: its panels, and the queries as Grafana would send them |
//! | [`grafana`] | the dashboard against Grafana's own types |
//! | [`rules`] | the rules, with their times shortened |
//! | [`service`] | a running service, whose metrics are the real ones |
//! | [`target`] | what Prometheus scrapes: the texts in `metrics/`, whose counters grow, then the service |
//! | [`tools`] | Prometheus and promtool: found, or unpacked from Debian's package |
//! | [`server`] | a running Prometheus, and what it answers |

mod dashboard;
mod grafana;
mod rules;
mod server;
mod service;
mod target;
mod tools;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use dashboard::Dashboard;
use redrive_brokers::command::run;
use server::{Alert, Server};
use target::Target;
use tools::Tools;

const HEALTHY: &str = include_str!("../../metrics/healthy.txt");
const FAILING: &str = include_str!("../../metrics/failing.txt");

/// How long to wait for what takes ten seconds at most on a machine of its own.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_and_ends() -> Result<()> {
    let promtool = &Tools::find()?.promtool;
    let folder = deploy("prometheus");
    run(Command::new(promtool).args(["check", "rules", "--lint-fatal", "rules.yml"]).current_dir(&folder))?;
    run(Command::new(promtool).args(["test", "rules", "rules_test.yml"]).current_dir(&folder))?;
    Ok(())
}

/// One Prometheus for all that needs one: it takes longer to start than to answer.
#[test]
fn on_a_real_prometheus_every_alert_fires_when_it_should_and_every_panel_has_data() -> Result<()> {
    let tools = Tools::find()?;
    let target = Target::serve(HEALTHY)?;
    let server = Server::start(tools, target.address(), &rules::shortened(&deploy("prometheus/rules.yml"))?)?;

    // As long as the rules look back, and longer: then they have seen all of it.
    let seen_for_long = format!("count(intake_paused offset {}) > 0", rules::OFFSET);
    until("the rules have looked back", || Ok(!server.query(&seen_for_long)?.is_empty()))?;
    let fired = server.query("max_over_time(ALERTS[1h])")?;
    ensure!(fired.is_empty(), "these fire although all is well: {fired:#?}");
    tools.check_metrics(&target.scrape()?)?;

    target.switch_to(FAILING);
    let expected = server.rules()?;
    ensure!(!expected.is_empty(), "Prometheus has loaded no alert");
    let mut firing = BTreeMap::new();
    until("every alert fires", || {
        firing.extend(server.alerts()?.into_iter().map(|alert| (alert.rule.clone(), alert)));
        let missing: Vec<_> = expected.iter().filter(|rule| !firing.contains_key(*rule)).collect();
        ensure!(missing.is_empty(), "these do not fire: {missing:?}");
        Ok(true)
    })?;
    firing.values().try_for_each(annotations_are_whole)?;
    tools.check_metrics(&target.scrape()?)?;

    // The real metrics. Only of this queue: Prometheus still has what the texts said.
    target.switch_to_service(service::start()?);
    let dashboard = Dashboard::read(&deploy("grafana/redrive.json"))?;
    for (place, query) in dashboard.queries(service::QUEUE) {
        until(&format!("{place} has data: {query}"), || {
            let values = server.query(&query)?;
            // What is shown as no number is no data either.
            Ok(!values.is_empty() && values.iter().any(|(_, value)| value != "NaN"))
        })?;
    }
    tools.check_metrics(&target.scrape()?)?;
    same_names(&target.scrape()?, FAILING)
}

/// The texts name the metrics and labels of the service, and no others. It does not show what does not happen to it.
fn same_names(service: &str, text: &str) -> Result<()> {
    let names = |page: &str| -> HashSet<String> {
        let series = page.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        series.map(|line| line.split(['{', ' ']).next().unwrap_or_default().to_owned()).collect()
    };
    let (service, text) = (names(service), names(text));
    let differing: Vec<_> = service.symmetric_difference(&text).collect();
    ensure!(differing.is_empty(), "in the service or the texts, and not in both: {differing:?}");
    Ok(())
}

#[test]
fn every_metric_of_the_fixtures_is_shown_or_alerted_on() -> Result<()> {
    let dashboard = Dashboard::read(&deploy("grafana/redrive.json"))?;
    let mut used: String = dashboard.queries(".+").into_iter().map(|(_, query)| query + "\n").collect();
    used += &std::fs::read_to_string(deploy("prometheus/rules.yml"))?;
    let names =
        [HEALTHY, FAILING].into_iter().flat_map(str::lines).filter_map(|line| line.strip_prefix("# TYPE "));
    let unused: BTreeSet<_> =
        names.filter_map(|line| line.split(' ').next()).filter(|name| !used.contains(name)).collect();
    assert!(unused.is_empty(), "neither a panel nor an alert uses {unused:?}");
    Ok(())
}

/// An expression that cannot be expanded stays in the text as an error.
fn annotations_are_whole(alert: &Alert) -> Result<()> {
    for name in ["summary", "description", "runbook_url"] {
        let text = alert.annotations.get(name).with_context(|| format!("{} has no {name}", alert.rule))?;
        let is_whole = !["{{", "<error", "<no value>", "  "].iter().any(|mark| text.contains(mark));
        ensure!(is_whole, "{name} of {}: {text}", alert.rule);
    }
    let (summary, link) = (&alert.annotations["summary"], &alert.annotations["runbook_url"]);
    ensure!(summary.contains(&alert.queue_name), "{} does not name its queue: {summary}", alert.rule);
    let heading = format!("docs/observability.md#{}", alert.rule.name.to_lowercase());
    ensure!(link.ends_with(&heading), "{} leads to {link}, and not to {heading}", alert.rule);
    Ok(())
}

/// Asks until the answer is yes. The last error says why it is not.
fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    loop {
        let answer = is_so();
        if matches!(answer, Ok(true)) {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            answer.with_context(|| format!("not within {PATIENCE:?}: {what}"))?;
            bail!("not within {PATIENCE:?}: {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}
