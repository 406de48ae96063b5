//! Undoes a content encoding, up to a limit.

use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

#[derive(Clone, Copy)]
pub(super) enum Packing {
    Gzip,
    Deflate,
}

impl Packing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// Why bytes are not unpacked.
pub(super) enum Unpacked {
    /// There is more than the limit. The beginning.
    TooLarge(Vec<u8>),
    /// They are not packed so, or not whole.
    Damaged,
}

/// Returns the unpacked bytes, at most `most`.
pub(super) fn unpacked(bytes: &[u8], packing: Packing, most: usize) -> Result<Vec<u8>, Unpacked> {
    match packing {
        Packing::Gzip => read(MultiGzDecoder::new(bytes), most),
        // The standard means zlib; some programs leave its frame out.
        Packing::Deflate => match read(ZlibDecoder::new(bytes), most) {
            Err(Unpacked::Damaged) => read(DeflateDecoder::new(bytes), most),
            read => read,
        },
    }
}

fn read(from: impl Read, most: usize) -> Result<Vec<u8>, Unpacked> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut bytes).map_err(|_| Unpacked::Damaged)?;
    if bytes.len() > most {
        bytes.truncate(most);
        return Err(Unpacked::TooLarge(bytes));
    }
    Ok(bytes)
}
