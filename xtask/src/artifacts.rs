//! Reads from cargo's messages which test programs can run.

use crate::programs::Program;
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Test programs as cargo reports them. Cargo compiles a test without the binaries that the test starts, and often before them: an
/// integration test is held back until the binaries of its package are built.
#[derive(Debug, Default)]
pub(crate) struct Artifacts {
    /// Binaries that are not built yet, by the manifest of their package.
    missing: HashMap<String, HashSet<String>>,
    /// Programs that need them, with that manifest.
    held: Vec<(String, Program)>,
}

impl Artifacts {
    /// Creates the state of the workspace before anything is built.
    pub(crate) fn of_workspace() -> Result<Self> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let printed = Command::new(cargo).args(["metadata", "--no-deps", "--format-version=1"]).output()?;
        let metadata = serde_json::from_slice(&printed.stdout).context("cargo metadata does not answer")?;
        Ok(Self::before(&metadata))
    }

    fn before(metadata: &Value) -> Self {
        let mut missing: HashMap<String, HashSet<String>> = HashMap::new();
        for package in metadata["packages"].as_array().into_iter().flatten() {
            let binaries = package["targets"].as_array().into_iter().flatten().filter(|it| is(it, "bin"));
            let names = binaries.map(|it| text(&it["name"])).collect();
            missing.insert(text(&package["manifest_path"]), names);
        }
        Self { missing, held: Vec::new() }
    }

    /// Returns the programs that can run now; `line` is one line of cargo's `--message-format=json`.
    pub(crate) fn read(&mut self, line: &str) -> Vec<Program> {
        let Ok(message) = serde_json::from_str::<Value>(line) else { return Vec::new() };
        let (target, path) = (&message["target"], &message["executable"]);
        if message["reason"] != "compiler-artifact" || !path.is_string() {
            return Vec::new();
        }
        let manifest = text(&message["manifest_path"]);
        if message["profile"]["test"] == true {
            let program = program(&manifest, &text(&target["src_path"]), &text(path));
            if !is(target, "test") {
                return vec![program];
            }
            self.held.push((manifest, program));
        } else if is(target, "bin")
            && let Some(missing) = self.missing.get_mut(&manifest)
        {
            missing.remove(&text(&target["name"]));
        }
        let waits = |manifest: &str| self.missing.get(manifest).is_some_and(|it| !it.is_empty());
        let can_run = self.held.extract_if(.., |(manifest, _)| !waits(manifest));
        can_run.map(|(_, program)| program).collect()
    }
}

fn program(manifest: &str, source: &str, executable: &str) -> Program {
    let folder = Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned();
    let source = Path::new(source);
    let source = source.strip_prefix(&folder).unwrap_or(source).display();
    let package = folder.file_name().unwrap_or_default().display();
    Program { name: format!("{package} {source}"), path: PathBuf::from(executable), folder }
}

fn is(target: &Value, kind: &str) -> bool {
    target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|it| it == kind))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn artifact(kind: &str, name: &str, test: bool, executable: Option<&str>) -> String {
        let source = format!("/w/system/{kind}s/{name}.rs");
        json!({
            "reason": "compiler-artifact",
            "manifest_path": "/w/system/Cargo.toml",
            "target": {"src_path": source, "kind": [kind], "name": name},
            "profile": {"test": test},
            "executable": executable,
        })
        .to_string()
    }

    fn names(programs: &[Program]) -> Vec<&str> {
        programs.iter().map(|it| it.name.as_str()).collect()
    }

    fn system(binaries: &[&str]) -> Artifacts {
        let targets: Vec<_> = binaries.iter().map(|name| json!({"kind": ["bin"], "name": name})).collect();
        Artifacts::before(
            &json!({"packages": [{"manifest_path": "/w/system/Cargo.toml", "targets": targets}]}),
        )
    }

    #[test]
    fn only_what_is_made_of_tests_is_a_program() {
        let mut artifacts = system(&[]);
        let programs = artifacts.read(&artifact("test", "a", true, Some("/w/target/debug/deps/a-1")));
        assert_eq!(names(&programs), ["system tests/a.rs"]);
        assert_eq!(programs[0].folder.to_str(), Some("/w/system"));
        assert!(artifacts.read(&artifact("bin", "b", false, Some("/w/target/debug/b"))).is_empty());
        assert!(artifacts.read(&artifact("lib", "lib", true, None)).is_empty());
        assert!(artifacts.read("   Compiling redrive-core v0.1.0").is_empty());
    }

    #[test]
    fn a_test_waits_for_each_binary_of_its_package() {
        let mut artifacts = system(&["worker", "emulator"]);
        assert!(artifacts.read(&artifact("test", "a", true, Some("a-1"))).is_empty());
        assert!(artifacts.read(&artifact("bin", "worker", false, Some("worker"))).is_empty());
        // A binary's own tests start no other binary.
        assert_eq!(
            names(&artifacts.read(&artifact("bin", "worker", true, Some("worker-1")))),
            ["system bins/worker.rs"]
        );
        assert_eq!(
            names(&artifacts.read(&artifact("bin", "emulator", false, Some("emulator")))),
            ["system tests/a.rs"]
        );
        assert_eq!(names(&artifacts.read(&artifact("test", "b", true, Some("b-1")))), ["system tests/b.rs"]);
    }
}
