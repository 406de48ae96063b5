//! The clients of Python and JavaScript. `python/requirements.txt` and `javascript/package-lock.json` pin them and what they need.

use anyhow::{Context as _, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is ready to run a suite.
#[derive(Debug)]
pub struct Language {
    /// `Python`
    pub name: &'static str,
    /// The interpreter.
    pub program: PathBuf,
    /// The suite's file, the first argument of `program`.
    pub suite: PathBuf,
}

/// Installs pika and aio-pika into a virtual environment.
///
/// # Errors
/// There is no Python of at least 3.11, or the packages cannot be had; the error says which.
pub fn python() -> Result<Language> {
    let sources = sources().join("python");
    let pinned = fs::read_to_string(sources.join("requirements.txt"))?;
    let environment = target().join("python");
    let program = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !is_installed(&environment, &pinned) {
        let system = ["python3", "python"].into_iter().find(|name| is_new_enough(name));
        let system = system.context("there is no Python of at least 3.11 on this machine")?;
        run(Command::new(system).args(["-m", "venv", "--clear"]).arg(&environment))?;
        let mut pip = Command::new(&program);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1"]);
        run(pip.arg("--requirement").arg(sources.join("requirements.txt")))?;
        mark_installed(&environment, &pinned)?;
    }
    Ok(Language { name: "Python pika and aio-pika", program, suite: sources.join("suite.py") })
}

/// Installs amqplib and rascal. The suite is copied beside the packages: Node looks for modules above the file that asks.
///
/// # Errors
/// There is no Node and npm, or the packages cannot be had; the error says which.
pub fn javascript() -> Result<Language> {
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
    Ok(Language {
        name: "JavaScript amqplib and rascal",
        program: "node".into(),
        suite: directory.join("suite.mjs"),
    })
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn target() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| sources().join("../../target")).join("rabbitmq-clients")
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
