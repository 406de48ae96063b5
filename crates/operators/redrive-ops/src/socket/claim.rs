//! The file of a socket: who may use it, and whose it is.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use redrive_core::own_file;
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::time::timeout;

/// How long a program that has the socket may take to let somebody in. One that takes longer lives.
const LIVES: Duration = Duration::from_secs(1);
/// How many operators may wait to be let in.
const BACKLOG: u32 = 64;

/// A socket for operators could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another process has the socket.
    #[error(
        "cannot open the operators' socket {}: another process has it: end that process, or choose another path",
        .0.display()
    )]
    InUse(PathBuf),
    /// Something else has that name.
    #[error("cannot open the operators' socket {}: this is a file and no socket: choose another path", .0.display())]
    NotASocket(PathBuf),
    /// The operating system refuses it.
    #[error("cannot open the operators' socket {}: cannot {what}: {error}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The path of the socket.
        path: PathBuf,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
}

/// The right to the path of a socket, until it is dropped. Then the socket is removed.
#[derive(Debug)]
pub(super) struct Claim {
    path: PathBuf,
    /// Device and inode of the socket, once there is one.
    made: Option<(u64, u64)>,
    _lock: File,
}

impl Claim {
    /// Claims a path. A socket that a dead process left there is removed.
    ///
    /// # Errors
    ///
    /// If a living process has it, or it is no socket.
    pub(super) async fn new(path: PathBuf) -> Result<Self, BindError> {
        let mut name = path.clone().into_os_string();
        name.push(".lock");
        let failed = |what| failed(&path, what);
        let lock = own_file::options().write(true).create(true).truncate(false).open(name);
        let lock = lock.map_err(failed("create its lock file"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(BindError::InUse(path)),
            Err(TryLockError::Error(error)) => return Err(failed("lock its lock file")(error)),
        }
        match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed("look at it")(error)),
            Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path)),
            // The lock says that no service of redrive has it. Another program may.
            Ok(_) if lives(&path).await.map_err(failed("look whether it is used"))? => {
                return Err(BindError::InUse(path));
            }
            Ok(_) => fs::remove_file(&path).map_err(failed("remove the one of a dead process"))?,
        }
        Ok(Self { path, made: None, _lock: lock })
    }

    /// Makes the socket, with these permissions.
    ///
    /// # Errors
    ///
    /// If the operating system refuses it.
    pub(super) fn listen(&mut self, mode: u32) -> Result<UnixListener, BindError> {
        let path = &self.path;
        let socket = UnixSocket::new_stream().map_err(failed(path, "make a socket"))?;
        socket.bind(path).map_err(failed(path, "bind it"))?;
        let found = fs::symlink_metadata(path).map_err(failed(path, "look at it"))?;
        self.made = Some((found.dev(), found.ino()));
        // Before anybody can connect.
        fs::set_permissions(&self.path, Permissions::from_mode(mode))
            .map_err(failed(path, "set its permissions"))?;
        socket.listen(BACKLOG).map_err(failed(path, "listen on it"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Not that of somebody else who took its place.
        let found = fs::symlink_metadata(&self.path).ok().map(|found| (found.dev(), found.ino()));
        if self.made.is_some() && found == self.made {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> BindError {
    let path = path.to_owned();
    move |error| BindError::Io { what, path, error }
}

/// Returns true if a process listens.
async fn lives(path: &Path) -> io::Result<bool> {
    match timeout(LIVES, UnixStream::connect(path)).await {
        Ok(Err(error)) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
            Ok(false)
        }
        // Its backlog is full.
        Ok(Err(error)) if error.kind() == ErrorKind::WouldBlock => Ok(true),
        Ok(connected) => connected.map(|_| true),
        Err(_) => Ok(true),
    }
}
