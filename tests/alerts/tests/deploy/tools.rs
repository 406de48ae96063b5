//! Prometheus and promtool: those of this machine, or of Debian's package, which needs neither root nor an installation.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, ensure};
use redrive_brokers::command::{APT_DOWNLOADS, patiently, run};

const HOW_TO_GET_IT: &str = "these tests need the programs prometheus and promtool (2.42 or newer): put them into the PATH, or run \
                             this on Debian or Ubuntu, where they are unpacked from the package prometheus";

/// The programs.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) prometheus: PathBuf,
    pub(crate) promtool: PathBuf,
}

impl Tools {
    /// Finds them, once for all tests.
    pub(crate) fn find() -> Result<&'static Tools> {
        static TOOLS: OnceLock<Result<Tools, String>> = OnceLock::new();
        let found = TOOLS.get_or_init(|| find().context(HOW_TO_GET_IT).map_err(|error| format!("{error:#}")));
        found.as_ref().map_err(|error| anyhow!("{error}"))
    }

    /// Lets promtool read and judge what a scrape gave.
    pub(crate) fn check_metrics(&self, text: &str) -> Result<()> {
        let mut command = Command::new(&self.promtool);
        command
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("could not run promtool")?;
        child.stdin.take().context("promtool has no input")?.write_all(text.as_bytes())?;
        let output = child.wait_with_output()?;
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "promtool does not like the metrics: {said}");
        Ok(())
    }
}

fn find() -> Result<Tools> {
    let own = Tools { prometheus: "prometheus".into(), promtool: "promtool".into() };
    if [&own.prometheus, &own.promtool]
        .iter()
        .all(|program| run(Command::new(program).arg("--version")).is_ok())
    {
        return Ok(own);
    }
    let folder = downloads().join("prometheus");
    if !folder.exists() {
        unpack(&folder)?;
    }
    let programs = folder.join("usr/bin");
    Ok(Tools { prometheus: programs.join("prometheus"), promtool: programs.join("promtool") })
}

/// Unpacks Debian's package into `folder`: whole, or not at all.
fn unpack(folder: &Path) -> Result<()> {
    run(Command::new("apt-get").arg("--version"))?;
    fs::create_dir_all(downloads())?;
    let work = tempfile::tempdir_in(downloads())?;
    let unpacked = work.path().join("unpacked");
    download("prometheus", work.path(), &unpacked)?;
    if !unpacked.join("usr/bin/promtool").exists() {
        // A package of its own in newer Debians.
        download("promtool", work.path(), &unpacked)?;
    }
    // Another test run may have been faster.
    fs::rename(&unpacked, folder).or_else(|error| if folder.exists() { Ok(()) } else { Err(error) })?;
    Ok(())
}

/// Downloads `package` into the folder `work`, and unpacks it into `unpacked`.
fn download(package: &str, work: &Path, unpacked: &Path) -> Result<()> {
    let download =
        || run(Command::new("apt-get").args(APT_DOWNLOADS).args(["download", package]).current_dir(work));
    if download().is_err() {
        // The lists of packages are missing, or old. Only root may load them; for others the download may still succeed later.
        let _ = run(Command::new("apt-get").args(APT_DOWNLOADS).arg("update"));
        patiently(download)?;
    }
    let mut files = fs::read_dir(work)?.flatten().map(|entry| entry.path());
    let of_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
    };
    let file = files.find(of_package).with_context(|| format!("apt-get left no package {package}"))?;
    run(Command::new("dpkg-deb").arg("--extract").args([&file, unpacked]))?;
    Ok(())
}

/// Where these tests keep what they download.
pub(crate) fn downloads() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target")).join("alerts")
}
