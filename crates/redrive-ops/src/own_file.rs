//! Files that are open for long: somebody may delete or replace them meanwhile, and what is written then is lost with the process.

use std::fs::File;
use std::path::Path;

/// Returns true if the open file is still the one at its path.
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), path.metadata()) else { return false };
    is_same(&open, &there)
}

#[cfg(unix)]
fn is_same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Other systems do not let an open file be deleted or replaced.
#[cfg(not(unix))]
fn is_same(_: &std::fs::Metadata, _: &std::fs::Metadata) -> bool {
    true
}
