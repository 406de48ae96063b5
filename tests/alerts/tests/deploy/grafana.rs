//! The dashboard against Grafana's own types: there is no Grafana in the registries that these tests install from.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use redrive_brokers::command::run;
use redrive_brokers::report;

use crate::{deploy, tools};

/// npm's names are other ones on Windows.
const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };

#[test]
fn the_dashboard_is_what_grafana_s_types_say() -> Result<()> {
    if run(Command::new(NPM).arg("--version")).is_err() {
        report("NOT RUN: the dashboard against Grafana's types: there is no npm");
        return Ok(());
    }
    let (sources, folder) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("grafana"), tools::downloads().join("grafana"));
    fs::create_dir_all(&folder)?;
    let lock = fs::read_to_string(sources.join("package-lock.json"))?;
    // Written once all packages are there: an installation that was killed begins again.
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).ok().as_ref() != Some(&lock) {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(sources.join(file), folder.join(file))?;
        }
        run(Command::new(NPM).args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder))?;
        fs::write(&installed, &lock)?;
    }
    for file in ["tsconfig.json", "types.ts"] {
        fs::copy(sources.join(file), folder.join(file))?;
    }
    // As source text the compiler knows each string for what it is, and finds fields that no type has.
    let dashboard = fs::read_to_string(deploy("grafana/redrive.json"))?;
    let source = format!(
        "import type {{ Checked }} from './types';\nexport const dashboard: Checked = {dashboard};\n"
    );
    fs::write(folder.join("dashboard.ts"), source)?;
    run(Command::new("node")
        .args(["node_modules/typescript/bin/tsc", "--project", "."])
        .current_dir(&folder))?;
    Ok(())
}
