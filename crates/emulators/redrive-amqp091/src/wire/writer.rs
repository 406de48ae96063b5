use bytes::{BufMut as _, BytesMut};

use crate::ShortStr;

/// Appends fields.
pub(crate) struct Writer<'a> {
    out: &'a mut BytesMut,
    /// The position of the next bit in the last byte; 0 if the next bit begins a byte.
    next_bit: u8,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(out: &'a mut BytesMut) -> Self {
        Self { out, next_bit: 0 }
    }

    pub(crate) fn bit(&mut self, bit: bool) {
        if self.next_bit == 0 {
            self.out.put_u8(0);
        }
        if let Some(last) = self.out.last_mut() {
            *last |= u8::from(bit) << self.next_bit;
        }
        self.next_bit = (self.next_bit + 1) % 8;
    }

    pub(crate) fn u8(&mut self, number: u8) {
        self.next_bit = 0;
        self.out.put_u8(number);
    }

    pub(crate) fn u16(&mut self, number: u16) {
        self.next_bit = 0;
        self.out.put_u16(number);
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.next_bit = 0;
        self.out.put_u32(number);
    }

    pub(crate) fn u64(&mut self, number: u64) {
        self.next_bit = 0;
        self.out.put_u64(number);
    }

    pub(crate) fn short_str(&mut self, text: &ShortStr) {
        // A short string has at most 255 bytes.
        self.u8(text.len() as u8);
        self.out.put_slice(text.as_bytes());
    }

    /// Fields of 4 GiB and more do not fit any frame; their callers hold less in memory.
    pub(crate) fn long_str(&mut self, text: &[u8]) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.out.put_slice(text);
    }
}
