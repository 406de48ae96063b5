//! Makes frames readable for the client library. Pure; changes a frame in place and never its length.
//! ([`shorten`](super::shorten) shortens frames that are too long.)

/// Types of frames to check: methods and content headers. Bodies and heartbeats need no check.
pub(crate) const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY: u8 = 3;
pub(crate) const HEARTBEAT: u8 = 8;

/// Size of type, channel and size before the payload; an end mark follows the payload.
pub(super) const HEAD: usize = 7;
pub(super) const END: usize = 1;

/// Class and method.
pub(super) const CONNECTION_CLOSE: [u8; 4] = [0, 10, 0, 50];
pub(super) const CONNECTION_CLOSE_OK: [u8; 4] = [0, 10, 0, 51];
pub(super) const CHANNEL_CLOSE: [u8; 4] = [0, 20, 0, 40];
pub(super) const CHANNEL_CLOSE_OK: [u8; 4] = [0, 20, 0, 41];
pub(super) const BASIC_RETURN: [u8; 4] = [0, 60, 0, 50];
pub(super) const BASIC_DELIVER: [u8; 4] = [0, 60, 0, 60];
pub(super) const BASIC_GET_OK: [u8; 4] = [0, 60, 0, 71];
pub(super) const BASIC_GET_EMPTY: [u8; 4] = [0, 60, 0, 72];
pub(super) const BASIC_ACK: [u8; 4] = [0, 60, 0, 80];
pub(super) const BASIC_NACK: [u8; 4] = [0, 60, 0, 120];

/// Maximum depth of tables and arrays; deeper ones become byte arrays. The library reads them recursively: in a debug build, a
/// stack of 2 MiB overflows at 156 to 195 levels.
const DEEPEST: usize = 64;
/// Replaces a byte that is not part of a UTF-8 character.
const UNREADABLE: u8 = b'?';

/// What was changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// Text that was not UTF-8.
    pub(crate) text: bool,
    /// Tables or arrays that were nested too deeply.
    pub(crate) depth: bool,
}

impl Changed {
    pub(crate) fn anything(self) -> bool {
        self.text || self.depth
    }
}

/// Makes the payload of a frame readable. Leaves other malformations for the library to refuse.
pub(crate) fn make_readable(frame_type: u8, payload: &mut [u8]) -> Changed {
    if is_harmless(frame_type, payload) { Changed::default() } else { walk_along(frame_type, payload) }
}

/// Changes the reply code of `channel.close` and `connection.close`.
pub(super) fn set_close_code(payload: &mut [u8], code: u16) {
    const CODE: std::ops::Range<usize> = 4..6;
    if let Some(current) = payload.get_mut(CODE) {
        current.copy_from_slice(&code.to_be_bytes());
    }
}

fn walk_along(frame_type: u8, payload: &mut [u8]) -> Changed {
    let mut walk = Walk::along(payload);
    // Ends early if the frame does; changes until then stay.
    let _ = match frame_type {
        METHOD => walk.method(),
        HEADER => walk.header(),
        _ => None,
    };
    walk.changed
}

/// Returns the frame size that the broker proposes, if this is `connection.tune`; 0 means any.
pub(super) fn proposed_frame_max(method: &[u8]) -> Option<u32> {
    let rest = method.strip_prefix(&[0, 10, 0, 30])?;
    // After the maximum channel number.
    rest.get(2..)?.first_chunk().map(|size| u32::from_be_bytes(*size))
}

/// Quick check that is enough for most messages: if every byte is ASCII, every text is UTF-8, and so few bytes cannot be nested
/// too deeply.
fn is_harmless(frame_type: u8, payload: &[u8]) -> bool {
    // A nested array takes its type and its length.
    const LEVEL: usize = 1 + 4;
    const CLASS_TO_FLAGS: usize = 2 + 2 + 8 + 2;
    const TAG_AND_REDELIVERED: usize = 8 + 1;
    match (frame_type, payload) {
        (HEADER, _) if payload.len() < LEVEL * DEEPEST => {
            payload.get(CLASS_TO_FLAGS..).is_some_and(<[u8]>::is_ascii)
        }
        // basic.deliver: its number may have any bytes.
        (METHOD, [0, 60, 0, 60, length, rest @ ..]) => {
            let (tag, rest) = rest.split_at(rest.len().min(usize::from(*length)));
            tag.is_ascii() && rest.get(TAG_AND_REDELIVERED..).is_some_and(<[u8]>::is_ascii)
        }
        _ => false,
    }
}

/// Position in a payload.
pub(super) struct Walk<'a> {
    rest: &'a mut [u8],
    changed: Changed,
}

impl<'a> Walk<'a> {
    pub(super) fn along(payload: &'a mut [u8]) -> Self {
        Self { rest: payload, changed: Changed::default() }
    }

    /// Returns the number of remaining bytes.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Checks the methods that contain text from users.
    fn method(&mut self) -> Option<()> {
        const CODE: usize = 2;
        const TAG_AND_REDELIVERED: usize = 9;
        let method = *self.rest.first_chunk()?;
        self.skip(method.len())?;
        match method {
            CONNECTION_CLOSE | CHANNEL_CLOSE => {
                self.skip(CODE)?;
                self.short_text()
            }
            BASIC_RETURN => {
                self.skip(CODE)?;
                self.short_text()?;
                self.exchange_and_routing_key()
            }
            BASIC_DELIVER => {
                self.short_text()?;
                self.skip(TAG_AND_REDELIVERED)?;
                self.exchange_and_routing_key()
            }
            BASIC_GET_OK => {
                self.skip(TAG_AND_REDELIVERED)?;
                self.exchange_and_routing_key()
            }
            _ => Some(()),
        }
    }

    fn exchange_and_routing_key(&mut self) -> Option<()> {
        self.short_text()?;
        self.short_text()
    }

    /// Checks a content header: class, weight and size of the body; then the flags, and the properties that they announce.
    fn header(&mut self) -> Option<()> {
        self.skip(2 + 2 + 8)?;
        let flags = self.u16()?;
        // The lowest bit would announce more flags; no property needs them.
        for bit in (1..16).rev().filter(|bit| flags & (1 << bit) != 0) {
            match bit {
                13 => self.table(0)?,
                // Delivery mode and priority, and the timestamp.
                12 | 11 => self.skip(1)?,
                6 => self.skip(8)?,
                1 => return None,
                _ => self.short_text()?,
            }
        }
        Some(())
    }

    fn table(&mut self, depth: usize) -> Option<()> {
        let mut inside = self.part()?;
        while !inside.rest.is_empty() {
            inside.short_text()?;
            inside.value(depth)?;
        }
        self.changed = inside.changed;
        Some(())
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        let mut inside = self.part()?;
        while !inside.rest.is_empty() {
            inside.value(depth)?;
        }
        self.changed = inside.changed;
        Some(())
    }

    /// Checks a value within a table or array of depth `depth`.
    pub(super) fn value(&mut self, depth: usize) -> Option<()> {
        let field_type = self.rest.first_mut()?;
        if matches!(field_type, b'F' | b'A') && depth + 1 >= DEEPEST {
            // Becomes a byte array with the same length and content.
            *field_type = b'x';
            self.changed.depth = true;
        }
        let field_type = *field_type;
        self.skip(1)?;
        match field_type {
            b'F' => self.table(depth + 1),
            b'A' => self.array(depth + 1),
            b'S' | b'x' => self.part().map(|_| ()),
            b't' | b'b' | b'B' => self.skip(1),
            b's' | b'U' | b'u' => self.skip(2),
            b'I' | b'i' | b'f' => self.skip(4),
            b'D' => self.skip(5),
            b'L' | b'l' | b'd' | b'T' => self.skip(8),
            b'V' => Some(()),
            _ => None,
        }
    }

    pub(super) fn short_text(&mut self) -> Option<()> {
        let length = usize::from(*self.rest.first()?);
        self.skip(1)?;
        let text = self.take(length)?;
        if text.is_ascii() {
            return Some(());
        }
        let mut from = 0;
        while let Err(unreadable) = std::str::from_utf8(&text[from..]) {
            let start = from + unreadable.valid_up_to();
            let end = unreadable.error_len().map_or(text.len(), |length| start + length);
            text[start..end].fill(UNREADABLE);
            self.changed.text = true;
            from = end;
        }
        Some(())
    }

    /// Returns the part after a length of four bytes, with the changes so far.
    pub(super) fn part(&mut self) -> Option<Walk<'a>> {
        let length = u32::from_be_bytes(*self.rest.first_chunk()?);
        self.skip(4)?;
        let rest = self.take(usize::try_from(length).ok()?)?;
        Some(Walk { rest, changed: self.changed })
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let number = u16::from_be_bytes(*self.rest.first_chunk()?);
        self.skip(2)?;
        Some(number)
    }

    pub(super) fn skip(&mut self, length: usize) -> Option<()> {
        self.take(length).map(|_| ())
    }

    fn take(&mut self, length: usize) -> Option<&'a mut [u8]> {
        self.rest.split_off_mut(..length)
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
