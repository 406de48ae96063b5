//! The clients of Python and JavaScript. Each broker's `python/requirements.txt` and `javascript/package-lock.json` pin what they
//! need.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

/// One test installs, the others wait for it.
static INSTALLING: Mutex<()> = Mutex::new(());

/// A client that is ready to run its scenarios.
#[derive(Debug)]
pub struct Client {
    /// `Python azure-servicebus 7.15.0`
    pub name: String,
    /// The interpreter.
    pub program: PathBuf,
    /// The first arguments of `program`: the suite's file, and where the scenarios are if they are elsewhere.
    pub suite: Vec<PathBuf>,
    /// Under what name the suite finds a client that has several versions installed.
    pub package: String,
}

/// Installs pika and aio-pika.
///
/// # Errors
/// There is no Python of at least 3.11, or the packages cannot be had; the error says which.
pub fn pika() -> Result<Client> {
    python("rabbitmq", "python", "Python pika and aio-pika".to_owned(), None)
}

/// Installs this version of Microsoft's Python client.
///
/// # Errors
/// As of [`pika`].
pub fn azure_python(version: &str) -> Result<Client> {
    let name = format!("Python azure-servicebus {version}");
    let requirement = format!("azure-servicebus=={version}");
    python("servicebus", &format!("python-{version}"), name, Some(&requirement))
}

/// Installs amqplib and rascal.
///
/// # Errors
/// There is no Node and npm, or the packages cannot be had; the error says which.
pub fn amqplib() -> Result<Client> {
    javascript("rabbitmq", "JavaScript amqplib and rascal".to_owned(), String::new())
}

/// Microsoft's JavaScript client of this version: installs all versions that `servicebus/javascript/package.json` names.
///
/// # Errors
/// As of [`amqplib`].
pub fn azure_javascript(version: &str) -> Result<Client> {
    let name = format!("JavaScript @azure/service-bus {version}");
    javascript("servicebus", name, format!("service-bus-{version}"))
}

/// Installs what `requirements.txt` names, and `requirement`, into a virtual environment.
fn python(broker: &str, environment: &str, name: String, requirement: Option<&str>) -> Result<Client> {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let scenarios = sources().join(broker).join("python");
    let requirements = scenarios.join("requirements.txt");
    let pinned = format!("{}\n{}", requirement.unwrap_or_default(), fs::read_to_string(&requirements)?);
    let environment = target().join(broker).join(environment);
    let program = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !is_installed(&environment, &pinned) {
        let system = ["python3", "python"].into_iter().find(|name| is_new_enough(name));
        let system = system.context("there is no Python of at least 3.11 on this machine")?;
        run(Command::new(system).args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
        run(pip.args(requirement).arg("--requirement").arg(requirements))?;
        mark_installed(&environment, &pinned)?;
    }
    Ok(Client {
        name,
        program,
        suite: vec![sources().join("python/suite.py"), scenarios],
        package: String::new(),
    })
}

/// Installs what `package-lock.json` names. The suite is copied beside the packages: Node looks for modules above the file that asks.
fn javascript(broker: &str, name: String, package: String) -> Result<Client> {
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let scenarios = sources().join(broker).join("javascript");
    let directory = target().join(broker).join("javascript");
    copy(&scenarios, &directory)?;
    copy(&sources().join("javascript"), &directory)?;
    let pinned = fs::read_to_string(scenarios.join("package-lock.json"))?;
    if !is_installed(&directory, &pinned) {
        let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        run(npm.args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&directory))?;
        mark_installed(&directory, &pinned)?;
    }
    Ok(Client { name, program: "node".into(), suite: vec![directory.join("suite.mjs")], package })
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| sources().join("../../target")).join("clients")
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
    let shown = command.get_program().display().to_string();
    let said = command.output().with_context(|| format!("{shown} cannot be run"))?;
    if !said.status.success() {
        let text = String::from_utf8_lossy(&said.stderr);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it does not say why");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        bail!("`{shown} {}` failed: {last}", words.join(" "));
    }
    Ok(())
}
