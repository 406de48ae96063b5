use bytes::Bytes;

use crate::{DecodeError, ShortStr};

/// Reads fields from a payload, one after the other. What it returns shares the payload's bytes.
pub(crate) struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
    /// The byte of the last bit, and the position of the next one; 0 if the next bit begins a byte.
    bits: u8,
    next_bit: u8,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a Bytes) -> Self {
        Self { bytes, at: 0, bits: 0, next_bit: 0 }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// # Errors
    /// If there is something left.
    pub(crate) fn finish(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }

    pub(crate) fn bit(&mut self) -> Result<bool, DecodeError> {
        if self.next_bit == 0 {
            self.bits = self.u8()?;
        }
        let bit = self.bits >> self.next_bit & 1 == 1;
        self.next_bit = (self.next_bit + 1) % 8;
        Ok(bit)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn short_str(&mut self) -> Result<ShortStr, DecodeError> {
        let length = self.u8()?;
        self.take(usize::from(length)).map(ShortStr::from_wire)
    }

    pub(crate) fn long_str(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let rest = &self.bytes[self.at..];
        let array = *rest.first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.advance(N);
        Ok(array)
    }

    pub(crate) fn skip(&mut self, length: usize) -> Result<(), DecodeError> {
        if length > self.remaining() {
            return Err(DecodeError::Truncated);
        }
        self.advance(length);
        Ok(())
    }

    pub(crate) fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        let from = self.at;
        self.skip(length)?;
        Ok(self.bytes.slice(from..from + length))
    }

    /// Returns the next bytes without sharing them.
    pub(crate) fn peek(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let from = self.at;
        self.skip(length)?;
        Ok(&self.bytes[from..from + length])
    }

    fn advance(&mut self, length: usize) {
        self.at += length;
        self.next_bit = 0;
    }
}
