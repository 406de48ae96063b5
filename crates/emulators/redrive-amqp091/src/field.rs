//! [`Field`] reads and writes each type of a method's argument.

use bytes::Bytes;

use crate::wire::{Reader, Writer};
use crate::{DecodeError, RawTable, ShortStr};

/// A type of a method's argument.
pub(crate) trait Field: Sized {
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError>;
    fn write(&self, to: &mut Writer<'_>);
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Field for $number {
            fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
                from.$number()
            }

            fn write(&self, to: &mut Writer<'_>) {
                to.$number(*self);
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64);

/// Consecutive bits share a byte.
impl Field for bool {
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.bit()
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.bit(*self);
    }
}

impl Field for ShortStr {
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.short_str()
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.short_str(self);
    }
}

/// A long string.
impl Field for Bytes {
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        from.long_str()
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.long_str(self);
    }
}

impl Field for RawTable {
    fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        RawTable::checked(from.long_str()?)
    }

    fn write(&self, to: &mut Writer<'_>) {
        to.long_str(self.as_bytes());
    }
}
