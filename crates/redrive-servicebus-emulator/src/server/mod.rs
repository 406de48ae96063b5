//! From sockets to the broker: what clients say becomes calls of [`Broker`](crate::broker::Broker), and what it answers
//! becomes frames. Read it in the order of a frame's way: `listener`, `socket`, `door`, `connection`, `session`, and then the
//! link that it is for.

mod address;
mod cbs;
pub(crate) mod clock;
mod connection;
mod context;
mod coordinator;
mod delivery;
pub(crate) mod door;
mod errors;
mod halves;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod hub;
pub(crate) mod keys;
pub(crate) mod listener;
mod mailbox;
mod management;
mod opening;
pub(crate) mod port;
mod producer;
pub(crate) mod replay;
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
