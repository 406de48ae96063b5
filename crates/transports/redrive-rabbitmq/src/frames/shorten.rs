//! Shortens a content header to the frame size that the library reads. Pure.
//!
//! RabbitMQ accepts headers that exceed the negotiated frame size by 8 bytes, adds `x-death` to them without checking that size, and
//! delivers messages that were published over protocols without frames. The library ends the connection over each of these.

use std::fmt::Write as _;

use bytes::BytesMut;
use redrive_amqp091::{ContentHeader, RawTable, ShortStr, Value};
use redrive_core::Bytes;

/// Room for the header that names what was left out.
const MARK: usize = 1024;
/// Maximum number of left-out headers to name.
const NAMED: usize = 3;

/// Returns the payload of a content header that is longer than `most` bytes, with as many of its headers as fit: the broker's own and
/// redrive's before all others, short ones before long ones. A header `mark` names the others. `None` if that does not help, or the
/// payload is malformed: the library may refuse it.
///
/// The payload must have been made readable before.
pub(super) fn shorten(payload: &[u8], most: usize, mark: &str) -> Option<Shortened> {
    let mut header = ContentHeader::decode(&Bytes::copy_from_slice(payload)).ok()?;
    let all = header.properties.headers.take()?;
    let entries: Vec<_> = all.encoded_entries().map(|(name, whole)| Entry { name, whole }).collect();
    let around = payload.len() - all.as_bytes().len();
    let kept = choose(&entries, most.checked_sub(around + MARK)?);
    let (kept, left_out): (Vec<_>, Vec<_>) = entries.iter().zip(kept).partition(|(_, kept)| *kept);
    let left_out = describe(left_out.into_iter().map(|(entry, _)| entry));

    let mark = RawTable::from_iter([(ShortStr::truncated(mark), Value::from(&*left_out))]);
    let headers: Vec<_> = kept.iter().map(|(entry, _)| entry.whole).chain([mark.as_bytes()]).collect();
    header.properties.headers = Some(RawTable::checked(headers.concat().into()).ok()?);
    let mut payload = BytesMut::new();
    header.write(&mut payload);
    (payload.len() <= most).then_some(Shortened { payload, left_out })
}

/// A shortened payload, and a description of what it lacks.
#[derive(Debug)]
pub(super) struct Shortened {
    pub(super) payload: BytesMut,
    pub(super) left_out: String,
}

/// A header, still encoded.
struct Entry<'a> {
    name: &'a [u8],
    whole: &'a [u8],
}

/// Decides for each entry whether it is kept.
fn choose(entries: &[Entry<'_>], mut room: usize) -> Vec<bool> {
    let counts = |entry: &Entry<'_>| {
        entry.name.starts_with(redrive_core::header_names::PREFIX.as_bytes()) || entry.name.starts_with(b"x-")
    };
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&index| (!counts(&entries[index]), entries[index].whole.len()));
    let mut kept = vec![false; entries.len()];
    for index in order {
        if let Some(rest) = room.checked_sub(entries[index].whole.len()) {
            (room, kept[index]) = (rest, true);
        }
    }
    kept
}

/// Describes what was left out. Names are at most 255 bytes long, so that a few fit into [`MARK`].
fn describe<'a>(left_out: impl Iterator<Item = &'a Entry<'a>>) -> String {
    let mut text = "headers that do not fit a frame".to_owned();
    let mut more = 0;
    for (number, entry) in left_out.enumerate() {
        if number >= NAMED {
            more += 1;
            continue;
        }
        let separator = if number == 0 { ':' } else { ',' };
        let name = String::from_utf8_lossy(entry.name);
        // Writing to a string does not fail.
        let _ = write!(text, "{separator} `{name}` ({} bytes)", entry.whole.len());
    }
    if more > 0 {
        let _ = write!(text, ", and {more} more");
    }
    text
}

#[cfg(test)]
#[path = "shorten_tests.rs"]
mod tests;
