//! The frames of a connection, before the client library reads them and after it has written its own.
//!
//! No message goes through the library: deliveries and what `basic.get` takes, settlements, copies and their confirms are read and written here.
//! That was two thirds of what a message cost. The library keeps all else: handshake, TLS, heartbeats, channels, topology, errors.
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
//! | [`channels`] | the channels whose messages are read and written here |
//! | [`deliveries`] | deliveries between the stream and their consumer |
//! | [`copies`] | a channel whose messages are written and confirmed here |
//! | [`confirms`] | copies that wait for the broker's answer |
//! | [`ended`] | why a channel or a connection has ended |
//! | [`taker`] | takes confirms, and puts the frames of messages together |
//! | [`frame`] | makes a frame readable |
//! | [`shorten`] | shortens a content header that is too long |
//! | [`reader`] | splits what is read into frames |
//! | [`writer`] | puts the library's frames and redrive's own behind each other |
//! | [`pump`] | the task that has the socket |
//! | [`library`] | the stream as the library sees it |
//! | `replay` | replays a stream, for tests and fuzzing |
//! | [`runtime`] | opens a connection, and passes it to the library |

mod channels;
mod confirms;
mod copies;
mod deliveries;
mod delivery_queue;
mod ended;
mod frame;
mod library;
mod pump;
mod reader;
#[cfg(any(test, fuzzing))]
pub(crate) mod replay;
mod runtime;
mod shorten;
mod taker;
mod writer;

pub(crate) use channels::{CloseReason, OwnChannel, OwnChannels};
pub(crate) use confirms::{Answer, Written};
pub(crate) use copies::CopyChannel;
pub(crate) use deliveries::{Got, Sink, TakenDelivery};
pub(crate) use delivery_queue::DeliveryQueue;
pub(crate) use runtime::{Opened, connect};
