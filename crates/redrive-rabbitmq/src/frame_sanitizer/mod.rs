//! What stands between the socket and the client library: every frame is looked at before the library reads it.
//!
//! The library ends the connection on a message id, a property or a header name that is not UTF-8, and overflows the
//! stack on headers nested very deeply. RabbitMQ takes such messages from publishers in other languages, and would hand
//! them out again, each time with the same end: one message would hold up its queue, or kill every process. Here they
//! become messages that can be read, handled and set aside. On the way the greeting is read, which tells the version.
//!
//! The library also ends the connection on a content header that is longer than the frame size agreed on. RabbitMQ hands such
//! headers out. Here they lose what does not fit, and say so: nothing is copied of such a message, and no handler sees it.
//!
//! [`frame`] decides what a frame may contain, [`shorten`] what is left of one that is too long, [`stream`] cuts the stream into
//! frames, [`runtime`] hands it to the library, [`waiter`] ends it when the connection is given up.

mod frame;
mod runtime;
mod shorten;
mod stream;
mod waiter;

use std::sync::LazyLock;

pub(crate) use runtime::connect;

/// The name of the header that stands for those that were left out. Another one in each process: no publisher can write it.
pub(crate) fn left_out_mark() -> &'static str {
    static MARK: LazyLock<String> = LazyLock::new(|| format!("redrive-left-out-{:016x}", fastrand::u64(..)));
    &MARK
}
