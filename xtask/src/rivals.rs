//! The libraries that redrive is compared with, installed under `target/`: they are not part of the workspace.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds and installs them, and returns the folder. Prints and leaves out one that cannot be installed.
pub(crate) fn install() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let sources = root.join("tests/bench/rivals");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let folder = target.join("rivals");
    fs::create_dir_all(&folder).context("cannot create the folder of the rivals")?;
    for (name, install) in [("rust", rust as Install), ("rascal", rascal), ("aio-pika", aio_pika)] {
        println!("installing: {name}");
        if let Err(error) = install(&sources.join(name), &folder.join(name)) {
            println!("left out: {name}: {error:#}");
        }
    }
    Ok(folder)
}

type Install = fn(source: &Path, into: &Path) -> Result<()>;

fn rust(source: &Path, into: &Path) -> Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--locked"]);
    run(cargo.arg("--manifest-path").arg(source.join("Cargo.toml")).arg("--target-dir").arg(into))
}

fn rascal(source: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into)?;
    for file in ["package.json", "main.js"] {
        fs::copy(source.join(file), into.join(file))?;
    }
    run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--silent"]).current_dir(into))
}

fn aio_pika(source: &Path, into: &Path) -> Result<()> {
    run(Command::new("python3").args(["-m", "venv"]).arg(into))?;
    fs::copy(source.join("main.py"), into.join("main.py"))?;
    let requirements = source.join("requirements.txt");
    run(Command::new(into.join("bin/pip")).args(["install", "--quiet", "--requirement"]).arg(requirements))
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().display().to_string();
    let status = command.status().with_context(|| format!("could not run {name}"))?;
    ensure!(status.success(), "{name} ended with {status}");
    Ok(())
}
