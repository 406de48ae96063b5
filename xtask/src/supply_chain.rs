//! Compares every dependency with `deny.toml`: licences, sources, and crates that must not come in. `cargo deny` does it more thoroughly, and
//! takes seven minutes of a processor to install.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::links::root;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[test]
fn every_dependency_is_allowed() -> Result<()> {
    let rules: toml::Table = fs::read_to_string(root().join("deny.toml"))?.parse()?;
    let allowed = texts(&rules["licenses"]["allow"]);
    let banned: Vec<_> = rules["bans"]["deny"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|ban| ban["crate"].as_str())
        .collect();
    ensure!(!allowed.is_empty() && !banned.is_empty(), "deny.toml has other names");
    let mut wrong = Vec::new();
    for package in packages()? {
        let name = package["name"].as_str().context("a name")?;
        if banned.contains(&name) {
            wrong.push(format!("{name} is banned"));
        }
        match package["license"].as_str() {
            Some(license) if is_allowed(license, &allowed) => {}
            license => wrong.push(format!("{name} has the licence {license:?}")),
        }
        let source = package["source"].as_str();
        if source.is_some_and(|source| source != CRATES_IO) {
            wrong.push(format!("{name} comes from {source:?}"));
        }
        let of_workspace =
            package["dependencies"].as_array().into_iter().flatten().filter(|_| source.is_none());
        let any_version =
            of_workspace.filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
        wrong.extend(
            any_version.map(|dependency| format!("{name} takes any version of {}", dependency["name"])),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// Returns all packages that `Cargo.lock` names and some target or feature uses.
fn packages() -> Result<Vec<Value>> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--format-version", "1", "--all-features", "--locked"]).current_dir(root());
    let output = metadata.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout)?;
    match metadata["packages"].take() {
        Value::Array(packages) => Ok(packages),
        other => anyhow::bail!("no packages: {other}"),
    }
}

fn texts(list: &toml::Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(toml::Value::as_str).collect()
}

/// Returns true if an SPDX expression lets choose licences that are all allowed. `/` is an old `OR`.
fn is_allowed(license: &str, allowed: &[&str]) -> bool {
    let spaced = license.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let is_allowed = any(&mut words, allowed);
    is_allowed && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut is_allowed = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_allowed |= all(words, allowed);
    }
    is_allowed
}

fn all(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    let mut is_allowed = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        is_allowed &= one(words, allowed);
    }
    is_allowed
}

fn one(words: &mut Words<'_>, allowed: &[&str]) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let is_allowed = any(words, allowed);
        return words.next_if_eq(&")").is_some() && is_allowed;
    }
    let Some(license) = words.next() else { return false };
    match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => {
            allowed.contains(&format!("{license} WITH {exception}").as_str()) || allowed.contains(&license)
        }
        None => allowed.contains(&license),
    }
}

#[test]
fn expressions_of_licences() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
    for license in
        ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"]
    {
        assert!(is_allowed(license, &allowed), "{license}");
    }
    for license in
        ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "Apache-2.0 WITH other", "", "MIT MIT", "(MIT"]
    {
        assert!(!is_allowed(license, &allowed), "{license}");
    }
}
