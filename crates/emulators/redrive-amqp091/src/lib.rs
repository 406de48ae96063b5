//! AMQP 0-9-1 with RabbitMQ's extensions as a codec: frames, methods, properties and field tables, without I/O.
//!
//! Read it in this order: [`Frame`] splits a stream of bytes; a method frame's payload is a [`Method`], a header frame's a
//! [`ContentHeader`] with [`Properties`]; headers are a [`RawTable`], decoded on request into a [`Table`] of [`Value`]s.
//!
//! Decoding shares the received bytes instead of copying them, and is total: every input is a value or a [`DecodeError`].
#![cfg_attr(doctest, doc = include_str!("../README.md"))]
#![forbid(unsafe_code)]

mod content;
mod error;
mod field;
mod frame;
mod method;
mod properties;
mod raw_table;
mod readable;
pub mod reply;
mod short_str;
mod value;
mod wire;

#[cfg(test)]
mod tests;

pub use content::{ContentHeader, write_content, write_header_frame};
pub use error::DecodeError;
pub use frame::{
    FRAME_END, FRAME_HEAD, FRAME_OVERHEAD, Frame, FrameKind, HEARTBEAT, PROTOCOL_HEADER, write_frame,
    write_frame_head,
};
pub use method::{
    Access, Basic, Channel, Confirm, Connection, Exchange, Method, Queue, Tx, access, basic, channel,
    confirm, connection, exchange, queue, tx,
};
pub use properties::Properties;
pub use raw_table::{Entries, RawTable};
pub use readable::{Changed, make_readable};
pub use short_str::{ShortStr, TooLong};
pub use value::{Decimal, Table, Value};
