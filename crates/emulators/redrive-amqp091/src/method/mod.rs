//! The methods: one struct each, in a module of their class; an enum for each class; [`Method`] is any of them.

#[macro_use]
mod macros;
mod definitions;

pub use definitions::{
    Access, Basic, Channel, Confirm, Connection, Exchange, Method, Queue, Tx, access, basic, channel,
    confirm, connection, exchange, queue, tx,
};
