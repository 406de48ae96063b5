//! A file that is only appended to.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;

use crate::own_file;

/// What a journal needs of a disk. A trait, so that a test can fill the disk.
pub(super) trait Disk: Send + Sync {
    /// Writes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Returns once everything that was written survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file.
    fn cut(&mut self, len: u64) -> io::Result<()>;
    /// Returns true if the file is still at its path.
    fn is_at(&self, path: &Path) -> bool;
}

impl Disk for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(io::SeekFrom::End(0)).map(|_| ())
    }

    fn is_at(&self, path: &Path) -> bool {
        own_file::is_at(self, path)
    }
}

/// Creates a file that only its owner reads.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a new name in a folder survive a loss of power.
pub(super) fn sync_folder(file: &Path) -> io::Result<()> {
    // Other systems cannot open a folder.
    #[cfg(unix)]
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Opens a file and reads all of it.
pub(super) fn open(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((file, bytes))
}
