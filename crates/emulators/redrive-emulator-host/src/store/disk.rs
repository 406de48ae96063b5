//! An in-memory disk for tests; it can be full.

use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use redb::{Database, StorageBackend};

use super::StateFile;

#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
}

impl Disk {
    /// Returns the state file that is the content.
    pub(crate) fn file(&self) -> StateFile {
        let disk = self.clone();
        let open = move |_: &Path| Ok(Database::builder().create_with_backend(disk.clone())?);
        StateFile::opened_by(Path::new("disk"), Box::new(open))
    }

    /// Makes all writes fail from now on, or succeed again.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    fn check_room(&self) -> Result<()> {
        if self.full.load(Ordering::Relaxed) { Err(Error::from(ErrorKind::StorageFull)) } else { Ok(()) }
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.lock();
        let part = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(part.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.check_room()?;
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        self.check_room()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.check_room()?;
        self.bytes.lock()[offset as usize..offset as usize + data.len()].copy_from_slice(data);
        Ok(())
    }
}
