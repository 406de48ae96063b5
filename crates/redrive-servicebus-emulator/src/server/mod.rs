//! From sockets to the broker: what clients say becomes calls of [`Broker`](crate::broker::Broker), and what it answers
//! becomes frames. Read it in the order of a frame's way: `listener`, `socket`, `door`, `connection`, `session`, and then the
//! link that it is for.

mod accepting;
mod address;
mod attach;
mod cbs;
pub(crate) mod clock;
mod connection;
mod consumer;
mod context;
mod coordinator;
pub(crate) mod door;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod hub;
mod idle;
mod inlet;
pub(crate) mod keys;
mod link;
pub(crate) mod listener;
mod mailbox;
mod management;
mod opening;
mod outgoing;
pub(crate) mod port;
mod producer;
pub(crate) mod replay;
mod replies;
mod requests;
mod rules;
mod session;
mod socket;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(feature = "websockets")]
mod websocket;

#[cfg(test)]
mod tests;
