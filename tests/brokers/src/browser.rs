//! A browser for tests of pages: Debian's Chromium and its driver.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::install::{Lock, apt_install, cache};

/// Where Debian's package puts the driver.
const DRIVER: &str = "/usr/bin/chromedriver";

/// Returns the program that drives a Chromium, and installs both if they are missing, as root of Debian or Ubuntu.
///
/// # Errors
/// If they cannot be installed.
pub fn chromedriver() -> Result<PathBuf> {
    let driver = Path::new(DRIVER);
    if driver.exists() {
        return Ok(driver.to_owned());
    }
    let cache = cache().context("neither XDG_CACHE_HOME nor HOME is set: there is no place for a lock")?;
    std::fs::create_dir_all(&cache).with_context(|| format!("could not create {}", cache.display()))?;
    // Held until this returns: two test runs must not install at the same time.
    let lock = Lock::take(&cache.join("install.lock"))?;
    if !driver.exists() {
        crate::command::patiently(|| {
            crate::command::run(Command::new("apt-get").args(crate::command::APT_DOWNLOADS).arg("update"))
        })?;
        apt_install(&["chromium", "chromium-driver"])?;
    }
    drop(lock);
    ensure!(driver.exists(), "the package chromium-driver was installed, and there is no {DRIVER}");
    Ok(driver.to_owned())
}
