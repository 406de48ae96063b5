//! A Debian of another release in a folder, for the RabbitMQ version that this machine's packages lack.
//!
//! Mounts live in a private mount namespace (`unshare --mount`): they end with the program, so nothing
//! piles up, nothing is missing after a reboot, and removing the cache can never reach the host's /dev.

use crate::Version;
use crate::command::{APT_DOWNLOADS, patiently, run};
use anyhow::{Context as _, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Where the data folder of a node appears inside.
pub(crate) const DATA: &str = "/srv";

/// Mounts what a program needs and goes inside. `$1` the root, `$2` the folder to show as [`DATA`].
/// Without /etc/hosts RabbitMQ hangs in prelaunch, looking for its own host.
const ENTER: &str = r#"
root=$1 data=$2; shift 2
mount --bind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind /etc/hosts "$root/etc/hosts"
mount --bind "$data" "$root/srv"
exec chroot "$root" "$@"
"#;

/// A command that runs `program` inside `root`, seeing `data` as [`DATA`].
pub(crate) fn enter(root: &Path, data: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", ENTER, "sh"]);
    command.args([root, data]).arg(program);
    command
}

/// Settings for debootstrap's downloads. By default wget waits 15 minutes for a stalled one.
const WGETRC: &str = "timeout = 60\ntries = 5\nretry_connrefused = on\n";

/// Builds the root with RabbitMQ of `version` in it. On error `root` does not exist.
pub(crate) fn build(version: Version, root: &Path) -> Result<()> {
    let building = root.with_extension("building");
    remove(&building)?;
    let built = fill(version, &building);
    if built.is_err() {
        remove(&building)?;
    }
    built?;
    // Last and atomic: an existing root is complete.
    fs::rename(&building, root)
        .with_context(|| format!("could not rename {} to {}", building.display(), root.display()))
}

fn fill(version: Version, root: &Path) -> Result<()> {
    let suite = version.debian_suite();
    fs::create_dir_all(root).with_context(|| format!("could not create {}", root.display()))?;
    let mirror = mirror();
    let scripts = Path::new("/usr/share/debootstrap/scripts");
    // An older debootstrap does not know newer releases by name; they are all made like sid.
    let script = if scripts.join(suite).exists() { suite } else { "sid" };
    let wgetrc = root.with_extension("wgetrc");
    fs::write(&wgetrc, WGETRC).with_context(|| format!("could not write {}", wgetrc.display()))?;
    run(Command::new("unshare")
        .args(["--mount", "--propagation", "private", "debootstrap", "--variant=minbase", suite])
        .args([root, Path::new(&mirror), &scripts.join(script)])
        .env("WGETRC", &wgetrc))
    .with_context(|| {
        format!(
            "could not make a Debian {suite} from {mirror}; this needs root with the right to mount, \
             and that mirror"
        )
    })?;

    let policy = root.join("usr/sbin/policy-rc.d");
    fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))?;
    fs::copy("/etc/hosts", root.join("etc/hosts")).context("could not copy /etc/hosts")?;

    let offered = run(enter(root, Path::new("/mnt"), "apt-cache").args(["policy", "rabbitmq-server"]))?;
    let candidate = candidate(&offered).unwrap_or("none");
    ensure!(
        version.covers(candidate),
        "Debian {suite} at {mirror} offers rabbitmq-server {candidate}, not {version}; start a RabbitMQ \
         {version} yourself and set {}",
        version.url_variable()
    );
    patiently(|| {
        run(enter(root, Path::new("/mnt"), "apt-get")
            .args(APT_DOWNLOADS)
            .args(["install", "--yes", "--no-install-recommends", "rabbitmq-server"])
            .env("DEBIAN_FRONTEND", "noninteractive"))
    })?;
    run(enter(root, Path::new("/mnt"), "apt-get").arg("clean"))?;
    Ok(())
}

/// The version that `apt-cache policy` says would be installed.
pub(crate) fn candidate(policy: &str) -> Option<&str> {
    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate:")).map(str::trim)
}

/// The Debian mirror that this machine installs from.
fn mirror() -> String {
    let known = run(Command::new("apt-get").args([
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ]));
    let known = known.unwrap_or_default();
    known.lines().next().unwrap_or("http://deb.debian.org/debian").trim_end_matches('/').to_owned()
}

/// Removes a half-built root, unless something is mounted in it.
fn remove(root: &Path) -> Result<()> {
    if !root.exists() {
        return Ok(());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let inside = |line: &&str| line.split(' ').nth(1).is_some_and(|at| Path::new(at).starts_with(root));
    if let Some(mount) = mounts.lines().find(inside) {
        bail!("{} is in the way and has something mounted in it ({mount}); unmount it", root.display());
    }
    fs::remove_dir_all(root).with_context(|| format!("could not remove {}", root.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_candidate_is_read_from_apt_cache_policy() {
        let policy = "rabbitmq-server:\n  Installed: (none)\n  Candidate: 4.3.6-1\n  Version table:\n";
        assert_eq!(super::candidate(policy), Some("4.3.6-1"));
        assert_eq!(super::candidate(""), None);
    }
}
