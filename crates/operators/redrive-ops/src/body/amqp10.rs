//! Reads a body that RabbitMQ hands over as AMQP 1.0 encodes it: sections of data, of a sequence, or of a value.
//!
//! A text or bytes are the body; any other value becomes JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use redrive_core::{Timestamp, rfc3339};

use super::MOST_UNPACKED;

/// Maximum depth of lists and maps.
const DEEPEST: usize = 64;

/// Returns the body in these sections; `None` if they are none, or too large to be shown.
pub(super) fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut from = Reader { bytes, written: 0 };
    let (mut data, mut sequence) = (Vec::new(), Vec::new());
    let mut sections = 0;
    while !from.bytes.is_empty() {
        match from.section()? {
            0x75 => data.extend_from_slice(from.binary()?),
            0x76 => sequence.push(from.json(0)?),
            0x77 if sections == 0 => {
                let value = from.value()?;
                return from.bytes.is_empty().then_some(value);
            }
            _ => return None,
        }
        sections += 1;
    }
    if sequence.is_empty() {
        return (sections > 0).then_some(data);
    }
    // Several sections continue one list.
    let inside = |list: &String| Some(list.strip_prefix('[')?.strip_suffix(']')?.to_owned());
    let items: Vec<_> = sequence.iter().map(inside).collect::<Option<_>>()?;
    let items: Vec<_> = items.into_iter().filter(|items| !items.is_empty()).collect();
    Some(format!("[{}]", items.join(",")).into_bytes())
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Number of bytes of JSON so far: an array of a million nulls takes few bytes here.
    written: usize,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// Takes a length of one byte, or of four.
    fn length(&mut self, is_long: bool) -> Option<usize> {
        if is_long {
            usize::try_from(u32::from_be_bytes(self.array()?)).ok()
        } else {
            self.byte().map(usize::from)
        }
    }

    /// Takes the descriptor of a section.
    fn section(&mut self) -> Option<u64> {
        (self.byte()? == 0).then_some(())?;
        match self.byte()? {
            0x53 => self.byte().map(u64::from),
            0x80 => self.array().map(u64::from_be_bytes),
            code @ (0xa3 | 0xb3) => {
                let length = self.length(code == 0xb3)?;
                match self.take(length)? {
                    b"amqp:data:binary" => Some(0x75),
                    b"amqp:amqp-sequence:list" => Some(0x76),
                    b"amqp:amqp-value:*" => Some(0x77),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn binary(&mut self) -> Option<&'a [u8]> {
        let code = self.byte()?;
        matches!(code, 0xa0 | 0xb0).then_some(())?;
        let length = self.length(code == 0xb0)?;
        self.take(length)
    }

    /// Takes a value: a text or bytes as they are, any other as JSON.
    fn value(&mut self) -> Option<Vec<u8>> {
        match self.bytes.first()? {
            0xa0 | 0xb0 | 0xa1 | 0xb1 | 0xa3 | 0xb3 => {
                let is_long = self.byte()? & 0xf0 == 0xb0;
                let length = self.length(is_long)?;
                self.take(length).map(<[u8]>::to_vec)
            }
            _ => self.json(0).map(String::into_bytes),
        }
    }

    fn json(&mut self, depth: usize) -> Option<String> {
        let code = self.code(depth)?;
        self.json_of(code, depth)
    }

    /// Takes the code of a type; a description of it says nothing that JSON could.
    fn code(&mut self, depth: usize) -> Option<u8> {
        let code = self.byte()?;
        if code != 0 {
            return Some(code);
        }
        (depth < DEEPEST).then_some(())?;
        self.json(depth + 1)?;
        self.code(depth + 1)
    }

    /// Takes what follows the code of a type.
    fn json_of(&mut self, code: u8, depth: usize) -> Option<String> {
        let json = match code {
            0x40 => "null".to_owned(),
            0x41 => "true".to_owned(),
            0x42 => "false".to_owned(),
            0x56 => (self.byte()? != 0).to_string(),
            0x43 | 0x44 => "0".to_owned(),
            0x50 | 0x52 | 0x53 => self.byte()?.to_string(),
            0x60 => u16::from_be_bytes(self.array()?).to_string(),
            0x70 => u32::from_be_bytes(self.array()?).to_string(),
            0x80 => u64::from_be_bytes(self.array()?).to_string(),
            0x51 | 0x54 | 0x55 => self.byte()?.cast_signed().to_string(),
            0x61 => i16::from_be_bytes(self.array()?).to_string(),
            0x71 => i32::from_be_bytes(self.array()?).to_string(),
            0x81 => i64::from_be_bytes(self.array()?).to_string(),
            0x72 => float(f32::from_be_bytes(self.array()?).to_string()),
            0x82 => float(f64::from_be_bytes(self.array()?).to_string()),
            0x73 => text(&char::from_u32(u32::from_be_bytes(self.array()?))?.to_string()),
            0x83 => time(i64::from_be_bytes(self.array()?)),
            0x98 => uuid(u128::from_be_bytes(self.array()?)),
            // Decimals of IEEE 754, which hardly anybody writes: their bytes.
            0x74 => text(&BASE64.encode(self.take(4)?)),
            0x84 => text(&BASE64.encode(self.take(8)?)),
            0x94 => text(&BASE64.encode(self.take(16)?)),
            0xa0 | 0xb0 | 0xa1 | 0xb1 | 0xa3 | 0xb3 => {
                let length = self.length(code & 0xf0 == 0xb0)?;
                let bytes = self.take(length)?;
                std::str::from_utf8(bytes).map_or_else(|_| text(&BASE64.encode(bytes)), text)
            }
            0x45 => "[]".to_owned(),
            0xc0 | 0xd0 => self.many(code == 0xd0, depth, Self::list)?,
            0xc1 | 0xd1 => self.many(code == 0xd1, depth, Self::map)?,
            0xe0 | 0xf0 => self.many(code == 0xf0, depth, Self::items)?,
            _ => return None,
        };
        self.written += json.len();
        (self.written <= MOST_UNPACKED).then_some(json)
    }

    /// Takes a list, a map or an array: its size, its count, and what is in it.
    fn many(
        &mut self,
        is_long: bool,
        depth: usize,
        read: impl Fn(&mut Self, usize, usize) -> Option<String>,
    ) -> Option<String> {
        (depth < DEEPEST).then_some(())?;
        let size = self.length(is_long)?;
        let mut inside = Self { bytes: self.take(size)?, written: self.written };
        let count = inside.length(is_long)?;
        let json = read(&mut inside, count, depth + 1)?;
        inside.bytes.is_empty().then_some(json)
    }

    fn list(&mut self, count: usize, depth: usize) -> Option<String> {
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.json(depth)?);
        }
        Some(format!("[{}]", items.join(",")))
    }

    fn map(&mut self, count: usize, depth: usize) -> Option<String> {
        let mut entries = Vec::new();
        for _ in 0..count / 2 {
            let key = self.json(depth)?;
            // The keys of JSON are texts.
            let key = if key.starts_with('"') { key } else { text(&key) };
            entries.push(format!("{key}:{}", self.json(depth)?));
        }
        Some(format!("{{{}}}", entries.join(",")))
    }

    /// Takes the elements of an array, which have one type.
    fn items(&mut self, count: usize, depth: usize) -> Option<String> {
        let code = self.code(depth)?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.json_of(code, depth)?);
        }
        Some(format!("[{}]", items.join(",")))
    }
}

fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// JSON has no infinities and no NaN.
fn float(number: String) -> String {
    if number.ends_with(|last: char| last.is_ascii_digit()) { number } else { text(&number) }
}

fn time(millis: i64) -> String {
    let time = Timestamp::from_unix_millis(millis).to_system_time().and_then(rfc3339);
    time.map_or_else(|| millis.to_string(), |time| text(&time))
}

fn uuid(number: u128) -> String {
    let hex = format!("{number:032x}");
    text(&[&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
