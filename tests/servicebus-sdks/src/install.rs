//! The clients, in the versions that the tests name. What they need is pinned by `python/requirements.txt` and
//! `javascript/package-lock.json`.

use anyhow::{Context as _, Result, anyhow, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A client that is ready to run its suite.
#[derive(Debug)]
pub struct Client {
    /// `azure-servicebus 7.15.0`
    pub name: String,
    /// What runs the suite: an interpreter and the file.
    pub program: PathBuf,
    /// The suite's file, the first argument of `program`.
    pub suite: PathBuf,
    /// Under what name the suite finds the client.
    pub package: String,
}

/// Installs this version of the Python client into a virtual environment of its own.
///
/// # Errors
/// There is no Python of at least 3.11, or the packages cannot be had; the error says which.
pub fn python(version: &str) -> Result<Client> {
    let sources = sources().join("python");
    let requirement = format!("azure-servicebus=={version}");
    let pinned = format!("{requirement}\n{}", fs::read_to_string(sources.join("requirements.txt"))?);
    let environment = target().join(format!("python-{version}"));
    let program = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !is_installed(&environment, &pinned) {
        let system = ["python3", "python"].into_iter().find(|name| is_new_enough(name));
        let system = system.context("there is no Python of at least 3.11 on this machine")?;
        run(Command::new(system).args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
        run(pip.args([&requirement, "--requirement"]).arg(sources.join("requirements.txt")))?;
        mark_installed(&environment, &pinned)?;
    }
    Ok(Client {
        name: format!("Python azure-servicebus {version}"),
        program,
        suite: sources.join("suite.py"),
        package: "azure.servicebus".to_owned(),
    })
}

/// The JavaScript client of this version: installs all that `javascript/package.json` names, once.
///
/// # Errors
/// There is no Node and npm, or the packages cannot be had; the error says which.
pub fn javascript(version: &str) -> Result<Client> {
    static INSTALLED: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| javascript_packages().map_err(|error| format!("{error:#}")));
    let directory = installed.as_ref().map_err(|error| anyhow!("{error}"))?;
    Ok(Client {
        name: format!("JavaScript @azure/service-bus {version}"),
        program: "node".into(),
        suite: directory.join("suite.mjs"),
        package: format!("service-bus-{version}"),
    })
}

/// Copies the suite beside the packages: Node looks for modules above the file that asks.
fn javascript_packages() -> Result<PathBuf> {
    let sources = sources().join("javascript");
    let directory = target().join("javascript");
    copy(&sources, &directory)?;
    let pinned = fs::read_to_string(sources.join("package-lock.json"))?;
    if !is_installed(&directory, &pinned) {
        let npm = if cfg!(windows) { "npm.cmd" } else { "npm" };
        let mut npm = Command::new(npm);
        run(npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&directory))?;
        mark_installed(&directory, &pinned)?;
    }
    Ok(directory)
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| sources().join("../../target")).join("servicebus-sdks")
}

fn is_new_enough(python: &str) -> bool {
    let asks = "import sys; sys.exit(sys.version_info < (3, 11))";
    Command::new(python).args(["-c", asks]).status().is_ok_and(|status| status.success())
}

/// What is installed is written down only once it is whole: an installation that was killed begins again.
fn mark_installed(directory: &Path, pinned: &str) -> Result<()> {
    Ok(fs::write(directory.join("installed"), pinned)?)
}

fn is_installed(directory: &Path, pinned: &str) -> bool {
    fs::read_to_string(directory.join("installed")).is_ok_and(|installed| installed == pinned)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            // A scenario that was removed must not run on.
            if target.exists() {
                fs::remove_dir_all(&target)?;
            }
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let said =
        command.output().with_context(|| format!("{} cannot be run", command.get_program().display()))?;
    if !said.status.success() {
        let text = String::from_utf8_lossy(&said.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
        bail!("`{} {}` failed: {last}", command.get_program().display(), words(command));
    }
    Ok(())
}

fn words(command: &Command) -> String {
    command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
