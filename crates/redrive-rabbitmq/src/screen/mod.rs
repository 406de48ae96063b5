//! What stands between the socket and the client library: every frame is looked at before the library reads it.
//!
//! The library ends the connection on a message id, a property or a header name that is not UTF-8, and overflows the
//! stack on headers nested very deeply. RabbitMQ takes such messages from publishers in other languages, and would hand
//! them out again, each time with the same end: one message would hold up its queue, or kill every process. Here they
//! become messages that can be read, handled and set aside. On the way the greeting is read, which tells the version.
//!
//! [`frame`] decides what a frame may contain, [`stream`] cuts the stream into frames, [`runtime`] hands it to the
//! library.

mod frame;
mod runtime;
mod stream;

pub(crate) use runtime::connect;
