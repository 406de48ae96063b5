//! Opens a state file only if it is intact. redb trusts what it reads: if bytes are missing or changed, it aborts the process by
//! an assertion, or continues without the lost data.

use std::fs::File;
use std::io::Read as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use redb::{Database, DatabaseError, StorageError};

use super::Cause;

/// Size of redb's cache. The broker already has everything in memory.
const CACHE: usize = 8 << 20;

/// Size of the header of redb's file format 3, up to the fields that determine the file's length.
const HEADER: usize = 32;

/// Opens the file, or creates it.
///
/// # Errors
/// If the file was cut, or a checksum is wrong: every page has one. Nothing is read from such a file.
pub(super) fn open(path: &Path) -> Result<Database, Cause> {
    check_length(path)?;
    // The data that locates the pages has no checksum: if it is wrong, redb panics.
    match catch_unwind(AssertUnwindSafe(|| open_checked(path))) {
        Ok(Ok(Some(database))) => Ok(database),
        Ok(Ok(None)) => Err(Cause::Damaged { what: "a checksum in it is wrong".to_owned() }),
        Ok(Err(DatabaseError::Storage(StorageError::Corrupted(what)))) => {
            Err(Cause::Damaged { what: format!("a checksum in it is wrong ({what})") })
        }
        Ok(Err(error)) => Err(Cause::Database(error.into())),
        Err(_) => Err(Cause::Damaged { what: "its pages do not fit together".to_owned() }),
    }
}

/// Returns `None` if redb had to repair the file.
fn open_checked(path: &Path) -> Result<Option<Database>, DatabaseError> {
    let file = private_file(path).map_err(StorageError::Io)?;
    let mut database = Database::builder().set_cache_size(CACHE).create_file(file)?;
    match database.check_integrity() {
        Ok(whole) => Ok(whole.then_some(database)),
        Err(error) => {
            // Dropping it would write to the file, and assert that there is nothing to repair.
            std::mem::forget(database);
            Err(error)
        }
    }
}

/// Opens the file, or creates it so that only its owner can read it from the first moment: it holds bodies of messages. A symbolic link
/// that leads nowhere is not followed.
fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true);
    let mut creating = options.clone();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut creating, 0o600);
    match creating.create_new(true).open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let mut file = options.open(path)?;
            keep_private(&mut file, path);
            Ok(file)
        }
        created => created,
    }
}

/// Takes from others what an earlier version, or a copy, let them do with a state file. The mode of another file is not changed.
#[cfg(unix)]
fn keep_private(file: &mut File, path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;

    let Ok(known) = file.metadata() else { return };
    let mut magic = [0; 4];
    let is_state = known.len() == 0 || (file.read_exact(&mut magic).is_ok() && magic == *b"redb");
    if is_state
        && known.permissions().mode() & 0o077 != 0
        && let Err(error) = file.set_permissions(std::fs::Permissions::from_mode(0o600))
    {
        let path = path.display();
        tracing::warn!(%path, %error, "others can read the state file, and its mode cannot be changed to 0600");
    }
}

#[cfg(not(unix))]
fn keep_private(_: &mut File, _: &Path) {}

/// Checks the length: after a crash a file may be longer than its header says, but never shorter.
fn check_length(path: &Path) -> Result<(), Cause> {
    let unreadable = |error: std::io::Error| Cause::Database(StorageError::Io(error).into());
    // redb creates the file, or reports why it cannot.
    let Ok(mut file) = File::open(path) else { return Ok(()) };
    let length = file.metadata().map_err(unreadable)?.len();
    if length == 0 {
        tracing::warn!(path = %path.display(), "the state file exists and is empty: creating it");
    }
    let mut header = [0; HEADER];
    if length < HEADER as u64 || file.read_exact(&mut header).is_err() || !header.starts_with(b"redb") {
        // An empty file, or no state file: redb distinguishes them.
        return Ok(());
    }
    match length_by(&header) {
        Some(least) if length >= least => Ok(()),
        Some(least) => {
            Err(Cause::Damaged { what: format!("it has {length} bytes, and must have at least {least}") })
        }
        None => Err(Cause::Damaged { what: "its header is wrong".to_owned() }),
    }
}

/// Returns the length of a file with this header: a page for the header, full regions, and the last region.
fn length_by(header: &[u8; HEADER]) -> Option<u64> {
    let number =
        |at: usize| header.get(at..at + 4)?.try_into().ok().map(|bytes| u64::from(u32::from_le_bytes(bytes)));
    let (page, region_header, region) = (number(12)?, number(16)?, number(20)?);
    let (full, last) = (number(24)?, number(28)?);
    let last = if last == 0 { 0 } else { region_header + last };
    full.checked_mul(region_header + region)?.checked_add(last + 1)?.checked_mul(page)
}
