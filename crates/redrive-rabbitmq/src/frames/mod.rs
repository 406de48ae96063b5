//! Reads what RabbitMQ sends before the client library does.
//!
//! Deliveries of consumers are taken off the stream here, and never reach the library: reading, queueing and passing them on was two
//! thirds of what a message cost. The library keeps all else: handshake, TLS, heartbeats, channels, topology, errors.
//!
//! The rest is sanitized for the library. It ends the connection if a message id, a property or a header name is not UTF-8, and
//! overflows the stack on headers that are nested very deeply. RabbitMQ accepts such messages from publishers in other languages, and
//! would deliver them again and again: one message would stop its queue, or kill every process. A sanitized message can be read, handled
//! and shelved. The greeting, which contains the broker's version, is read in passing.
//!
//! The library also ends the connection on a content header that is longer than the negotiated frame size, which RabbitMQ may send.
//! Sanitized headers lose what does not fit, and are marked: no such message is copied or reaches a handler.
//!
//! | module | does |
//! |---|---|
//! | [`deliveries`] | the deliveries of each channel, between the stream and their consumer |
//! | [`taker`] | puts the frames of a delivery together |
//! | [`frame`] | makes a frame readable |
//! | [`shorten`] | shortens a content header that is too long |
//! | [`reader`] | splits the stream into frames |
//! | [`stream`] | the stream as the library reads it |
//! | [`runtime`] | passes the stream to the library |
//! | [`waiter`] | ends the stream when nobody waits for its connection any more |

mod deliveries;
mod frame;
mod reader;
mod runtime;
mod shorten;
mod stream;
mod taker;
mod waiter;

use std::sync::LazyLock;

pub(crate) use deliveries::{Deliveries, DeliveryQueue, Taken};
pub(crate) use runtime::{Opened, connect};

/// Returns the name of the header that replaces left-out ones. It differs in each process, so that no publisher can write it.
pub(crate) fn left_out_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| format!("redrive-left-out-{:016x}", fastrand::u64(..)));
    &MARK
}
