//! Finds RabbitMQ on this machine, or installs it if possible.

use crate::command::{APT_DOWNLOADS, patiently, run};
use crate::{Version, chroot};
use anyhow::{Context as _, Result, bail, ensure};
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A RabbitMQ that [`Node`](crate::Node) can run.
#[derive(Debug, Clone)]
pub struct Installation {
    version: Version,
    release: String,
    place: Place,
}

/// Where a RabbitMQ is installed.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// This machine's own package.
    Machine,
    /// A package inside another Debian, in this folder.
    Chroot(PathBuf),
    /// A Docker image.
    Docker,
}

impl Installation {
    /// The version asked for.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The exact release, for example `3.10.8`.
    pub fn release(&self) -> &str {
        &self.release
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// How a program that is given the node's folder `data` sees that folder.
    pub(crate) fn inside(&self, data: &Path) -> PathBuf {
        if let Place::Chroot(_) = self.place { chroot::DATA.into() } else { data.to_owned() }
    }

    /// The `rabbitmqadmin` of this installation, which may read `data`, and that folder as the program sees it. [`None`] with Docker,
    /// whose image lacks it.
    pub fn rabbitmqadmin(&self, data: &Path) -> Option<(Command, PathBuf)> {
        match self.place {
            Place::Machine | Place::Chroot(_) => {
                Some((self.command(data, "rabbitmqadmin"), self.inside(data)))
            }
            Place::Docker => None,
        }
    }

    /// A command that runs `program` of this installation with the node's folder `data`.
    pub(crate) fn command(&self, data: &Path, program: &str) -> Command {
        match &self.place {
            Place::Chroot(root) => chroot::enter(root, data, program),
            Place::Machine | Place::Docker => Command::new(program),
        }
    }
}

/// The installation of `version` on this machine, if there is one: a package, or a Docker image.
pub fn find(version: Version) -> Option<Installation> {
    find_package(version).or_else(|| find_image(version))
}

fn find_package(version: Version) -> Option<Installation> {
    let found = |root: &Path, place| {
        let release = release_in(root)?;
        version.covers(&release).then_some(Installation { version, release, place })
    };
    found(Path::new("/"), Place::Machine).or_else(|| {
        // Only root may enter the other Debian.
        let root = cached_root(version).filter(|_| is_root())?;
        found(&root.clone(), Place::Chroot(root))
    })
}

fn find_image(version: Version) -> Option<Installation> {
    let format = "{{range .Config.Env}}{{println .}}{{end}}";
    let variables =
        run(Command::new("docker").args(["image", "inspect", "--format", format, &image(version)])).ok()?;
    let release = variables.lines().find_map(|line| line.strip_prefix("RABBITMQ_VERSION="))?.to_owned();
    Some(Installation { version, release, place: Place::Docker })
}

/// Returns the installation of `version`; installs it if it is missing. On Debian and Ubuntu, as root: this machine's own package if
/// it has the version, otherwise another Debian in `~/.cache/redrive`. Everywhere else: the Docker image.
///
/// # Errors
/// If every way failed; with the reason of each.
pub fn install(version: Version) -> Result<Installation> {
    if let Some(found) = find_package(version) {
        return Ok(found);
    }
    let package_error = match install_package(version) {
        Ok(installed) => return Ok(installed),
        Err(error) => error,
    };
    if let Some(found) = find_image(version) {
        return Ok(found);
    }
    // Fails at once without Docker.
    let pulled = run(Command::new("docker").arg("version"))
        .and_then(|_| patiently(|| run(Command::new("docker").args(["pull", "--quiet", &image(version)]))));
    match (pulled, find_image(version)) {
        (Ok(_), Some(installed)) => Ok(installed),
        (Ok(_), None) => bail!("{package_error:#}\nthe image {} does not tell its version", image(version)),
        (Err(error), _) => bail!("{package_error:#}\n{error:#}"),
    }
}

fn install_package(version: Version) -> Result<Installation> {
    ensure!(
        Path::new("/etc/debian_version").exists() && is_root(),
        "installing the package rabbitmq-server {version} needs Debian or Ubuntu, as root"
    );
    let cache = cache().context("neither XDG_CACHE_HOME nor HOME is set: there is no place to install to")?;
    fs::create_dir_all(&cache).with_context(|| format!("could not create {}", cache.display()))?;
    // Held until this returns: two test runs must not install at the same time.
    let lock = Lock::take(&cache.join("install.lock"))?;
    if let Some(found) = find_package(version) {
        return Ok(found);
    }

    let update = patiently(|| run(Command::new("apt-get").args(APT_DOWNLOADS).arg("update")));
    let offered = run(Command::new("apt-cache").args(["policy", "rabbitmq-server"]))?;
    if chroot::candidate(&offered).is_some_and(|candidate| version.covers(candidate)) {
        apt_install(&["rabbitmq-server"])?;
    } else {
        if !Path::new("/usr/sbin/debootstrap").exists() {
            apt_install(&["debootstrap", "debian-archive-keyring"])?;
        }
        let root = cache.join(format!("rabbitmq-{version}"));
        patiently(|| chroot::build(version, &root))?;
    }
    drop(lock);
    match (find_package(version), update) {
        (Some(installed), _) => Ok(installed),
        (None, Err(error)) => Err(error.context(format!("RabbitMQ {version} was not installed"))),
        (None, Ok(_)) => bail!(
            "rabbitmq-server was installed, but no RabbitMQ {version} is there now; another version in \
             /usr/lib/rabbitmq/lib?"
        ),
    }
}

/// The Docker image of `version`.
pub fn image(version: Version) -> String {
    format!("rabbitmq:{version}-alpine")
}

/// The release of the RabbitMQ under `root`: its folder is named after it.
fn release_in(root: &Path) -> Option<String> {
    ["rabbitmq-server", "rabbitmqctl"]
        .iter()
        .all(|program| root.join("usr/lib/rabbitmq/bin").join(program).exists())
        .then_some(())?;
    let mut entries = fs::read_dir(root.join("usr/lib/rabbitmq/lib")).ok()?.flatten();
    entries.find_map(|entry| entry.file_name().to_str()?.strip_prefix("rabbitmq_server-").map(str::to_owned))
}

/// Returns this program, and installs Debian's packages with it if it is missing, as root of Debian or Ubuntu.
///
/// # Errors
/// If they cannot be installed.
pub fn installed(program: &str, packages: &[&str]) -> Result<PathBuf> {
    let path = Path::new(program);
    if path.exists() {
        return Ok(path.to_owned());
    }
    let cache = cache().context("neither XDG_CACHE_HOME nor HOME is set: there is no place for a lock")?;
    fs::create_dir_all(&cache).with_context(|| format!("could not create {}", cache.display()))?;
    // Held until this returns: two test runs must not install at the same time.
    let lock = Lock::take(&cache.join("install.lock"))?;
    if !path.exists() {
        patiently(|| run(Command::new("apt-get").args(APT_DOWNLOADS).arg("update")))?;
        apt_install(packages)?;
    }
    drop(lock);
    ensure!(path.exists(), "{} was installed, and there is no {program}", packages.join(", "));
    Ok(path.to_owned())
}

pub(crate) fn apt_install(packages: &[&str]) -> Result<()> {
    let quiet = NoServices::begin()?;
    let install = || {
        run(Command::new("apt-get")
            .args(APT_DOWNLOADS)
            .args(["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"])
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    patiently(install).with_context(|| format!("could not install {}", packages.join(", ")))?;
    drop(quiet);
    if packages.contains(&"rabbitmq-server") && Path::new("/run/systemd/system").exists() {
        // The package enables a broker for the whole machine; the tests run their own.
        run(Command::new("systemctl").args(["disable", "--now", "rabbitmq-server"]))?;
    }
    Ok(())
}

/// A lock between processes, held until dropped or until this process dies.
pub(crate) struct Lock(#[expect(dead_code, reason = "it is the lock")] File);

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Lock> {
        let file = open(path)?;
        file.lock().with_context(|| format!("could not lock {}", path.display()))?;
        Ok(Lock(file))
    }

    /// `None`: another process, or another thread of this one, has it.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Lock>> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("could not lock {}", path.display()))
            }
        }
    }
}

fn open(path: &Path) -> Result<File> {
    let opened = File::options().create(true).append(true).open(path);
    opened.with_context(|| format!("could not open {}", path.display()))
}

/// Prevents packages from starting services while it lives: Debian asks `policy-rc.d`.
struct NoServices {
    ours: Option<PathBuf>,
}

impl NoServices {
    fn begin() -> Result<NoServices> {
        let path = PathBuf::from("/usr/sbin/policy-rc.d");
        let created = File::options().write(true).create_new(true).mode(0o755).open(&path);
        match created {
            Ok(mut file) => {
                file.write_all(
                    b"#!/bin/sh\n# By redrive's tests, for the time of one installation.\nexit 101\n",
                )?;
                Ok(NoServices { ours: Some(path) })
            }
            // A policy exists already, for example in a container image.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(NoServices { ours: None }),
            Err(error) => Err(error).with_context(|| format!("could not create {}", path.display())),
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = &self.ours {
            let _gone = fs::remove_file(path);
        }
    }
}

fn cached_root(version: Version) -> Option<PathBuf> {
    Some(cache()?.join(format!("rabbitmq-{version}")))
}

pub(crate) fn cache() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    Some(set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?.join("redrive"))
}

fn is_root() -> bool {
    // The owner of a process's own folder is the user it acts as.
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
