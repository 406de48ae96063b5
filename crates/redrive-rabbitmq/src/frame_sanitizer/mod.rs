//! Sanitizes what RabbitMQ sends before the client library reads it.
//!
//! The library ends the connection when a message id, a property or a header name is not UTF-8, and overflows the stack on headers
//! that are nested very deeply. RabbitMQ accepts such messages from publishers in other languages, and would deliver them again and
//! again: one message would stop its queue, or kill every process. Sanitized, such a message can be read, handled and set aside.
//! The greeting, which says the broker's version, is read on the way.
//!
//! The library also ends the connection on a content header that is longer than the negotiated frame size. RabbitMQ sends such
//! headers. Sanitized, they lose what does not fit, and say so: such a message is not copied, and no handler sees it.
//!
//! | module | is |
//! |---|---|
//! | [`frame`] | what a frame may contain |
//! | [`shorten`] | what is kept of a header that is too long |
//! | [`stream`] | cuts the stream into frames |
//! | [`runtime`] | hands the stream to the library |
//! | [`waiter`] | ends the stream when nobody waits for its connection any more |

mod frame;
mod runtime;
mod shorten;
mod stream;
mod waiter;

use std::sync::LazyLock;

pub(crate) use runtime::connect;

/// The name of the header that replaces those that were left out. It differs in each process: no publisher can write it.
pub(crate) fn left_out_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| format!("redrive-left-out-{:016x}", fastrand::u64(..)));
    &MARK
}
