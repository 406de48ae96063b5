//! Shortens a content header to the frame size that the library reads. Pure.
//!
//! RabbitMQ accepts headers that exceed the negotiated frame size by 8 bytes, adds `x-death` to them without checking that size, and
//! delivers messages that were published over protocols without frames. The library ends the connection over each of these.

use std::fmt::Write as _;
use std::ops::Range;

use super::frame::Walk;

/// Room for the header that names what was left out.
const MARK: usize = 1024;
/// Maximum number of left-out headers to name.
const NAMED: usize = 3;
/// Class, weight and size of the body; the flags follow.
const FLAGS: usize = 2 + 2 + 8;
const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;

/// Returns the payload of a content header that is longer than `most` bytes, with as many of its headers as fit: the broker's own and
/// redrive's before all others, short ones before long ones. A header `mark` names the others. `None` if that does not help, or the
/// payload is malformed: the library may refuse it.
///
/// The payload must have been made readable before.
pub(super) fn shorten(payload: &mut [u8], most: usize, mark: &str) -> Option<Shortened> {
    let Found { table, entries } = find(payload)?;
    let (before, after) = (&payload[..table.start], &payload[table.end..]);
    let room = most.checked_sub(before.len() + LENGTH + MARK + after.len())?;
    let kept = choose(&entries, payload, room);
    let left_out =
        describe(entries.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(entry, _)| entry), payload);

    let mut headers = Vec::with_capacity(room + MARK);
    for (entry, _) in entries.iter().zip(&kept).filter(|(_, kept)| **kept) {
        headers.extend(&payload[entry.whole.clone()]);
    }
    headers.push(u8::try_from(mark.len()).ok()?);
    headers.extend(mark.as_bytes());
    headers.push(b'S');
    headers.extend(u32::try_from(left_out.len()).ok()?.to_be_bytes());
    headers.extend(left_out.as_bytes());

    let length = u32::try_from(headers.len()).ok()?.to_be_bytes();
    let payload = [before, &length, &headers, after].concat();
    (payload.len() <= most).then_some(Shortened { payload, left_out })
}

/// A shortened payload, and a description of what it lacks.
#[derive(Debug)]
pub(super) struct Shortened {
    pub(super) payload: Vec<u8>,
    pub(super) left_out: String,
}

const LENGTH: usize = 4;

struct Found {
    /// Including its length field.
    table: Range<usize>,
    entries: Vec<Entry>,
}

struct Entry {
    name: Range<usize>,
    whole: Range<usize>,
}

/// Finds the headers.
fn find(payload: &mut [u8]) -> Option<Found> {
    let whole = payload.len();
    let mut walk = Walk::along(payload);
    walk.skip(FLAGS)?;
    let flags = walk.u16()?;
    if flags & HEADERS == 0 {
        return None;
    }
    for _ in [CONTENT_TYPE, CONTENT_ENCODING].into_iter().filter(|flag| flags & flag != 0) {
        walk.short_text()?;
    }
    let start = whole - walk.left();
    let mut inside = walk.part()?;
    let end = whole - walk.left();
    let mut entries = Vec::new();
    while inside.left() > 0 {
        let at = end - inside.left();
        inside.short_text()?;
        let name = at + 1..end - inside.left();
        inside.value(0)?;
        entries.push(Entry { name, whole: at..end - inside.left() });
    }
    Some(Found { table: start..end, entries })
}

/// Decides for each entry whether it is kept.
fn choose(entries: &[Entry], payload: &[u8], mut room: usize) -> Vec<bool> {
    let counts = |entry: &Entry| {
        let name = &payload[entry.name.clone()];
        name.starts_with(redrive_core::header_names::PREFIX.as_bytes()) || name.starts_with(b"x-")
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
fn describe<'a>(left_out: impl Iterator<Item = &'a Entry>, payload: &[u8]) -> String {
    let mut text = "headers that do not fit a frame".to_owned();
    let mut more = 0;
    for (number, entry) in left_out.enumerate() {
        if number >= NAMED {
            more += 1;
            continue;
        }
        let separator = if number == 0 { ':' } else { ',' };
        let name = String::from_utf8_lossy(&payload[entry.name.clone()]);
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
