//! AMQP 1.0, as far as Service Bus uses it: values, messages, frames. No I/O.
//!
//! Decoding is total: for any bytes it returns a value or a [`DecodeError`]. It never panics. [`MAX_DEPTH`] bounds its depth, and
//! a constant times the length of the input bounds its memory.

mod decode;
mod encode;
mod fields;
pub(crate) mod frame;
mod message;
pub(crate) mod performative;
pub(crate) mod state;
mod value;

#[cfg(test)]
mod tests;

pub use decode::{DecodeError, MAX_DEPTH, Reader};
pub use encode::{encode_value, encoded_len};
pub use fields::Fields;
pub use message::{Header, Message, Properties};
pub use value::{Map, Value};
