//! Checks what users start with: the packages, each feature of the facade alone, and the quickstart on each broker.

use crate::closing::Closing;
use crate::step;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::process::Command;

/// Compiles the facade without features, and with each of them alone.
pub(crate) fn check_features(closing: &mut Closing) -> Result<()> {
    for feature in std::iter::once(String::new()).chain(features()?) {
        let arguments = ["check", "--package", "redrive", "--no-default-features", "--features", &feature];
        closing.take(step::cargo(&arguments, &[], |_| {})?);
    }
    Ok(())
}

/// Packages every crate that is published.
pub(crate) fn package(closing: &mut Closing) -> Result<()> {
    let published = packages()?.into_iter().filter(|package| package["publish"].is_null());
    let names: Vec<_> = published.filter_map(|package| package["name"].as_str().map(str::to_owned)).collect();
    let mut arguments = vec!["package", "--no-verify", "--allow-dirty", "--quiet"];
    arguments.extend(names.iter().flat_map(|name| ["--package", name]));
    closing.take(step::cargo(&arguments, &[], |_| {})?);
    Ok(())
}

fn features() -> Result<Vec<String>> {
    let packages = packages()?;
    let facade = packages.iter().find(|package| package["name"] == "redrive").context("no facade")?;
    let features = facade["features"].as_object().context("no features")?;
    Ok(features.keys().filter(|name| *name != "default").cloned().collect())
}

fn packages() -> Result<Vec<Value>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let printed = Command::new(cargo).args(["metadata", "--no-deps", "--format-version=1"]).output()?;
    let mut metadata: Value =
        serde_json::from_slice(&printed.stdout).context("cargo metadata does not answer")?;
    Ok(metadata["packages"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// Runs the quickstart as `docs/getting-started.md` says; on RabbitMQ, if there is one.
pub(crate) fn run_quickstarts(rabbitmq: Option<&str>, closing: &mut Closing) -> Result<()> {
    let quickstart = ["run", "--example", "quickstart"];
    let alone = |feature| [&quickstart[..], &["--no-default-features", "--features", feature]].concat();
    let mut runs = vec![quickstart.to_vec(), alone("servicebus"), alone("rabbitmq")];
    match rabbitmq {
        Some(url) => runs.push([&alone("rabbitmq")[..], &["--", url]].concat()),
        None => closing.not_run.push("the quickstart on RabbitMQ itself (no broker)".into()),
    }
    for run in runs {
        let mut parked = false;
        let mut step = step::cargo(&run, &[], |line| {
            parked |= line.contains("order-8") && line.contains("onto the parking shelf");
        })?;
        // A quickstart that succeeds but ends early has shown nothing.
        step.passed &= parked;
        closing.take(step);
    }
    Ok(())
}
