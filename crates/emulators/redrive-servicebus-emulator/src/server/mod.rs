//! Connects sockets to the broker: frames of clients become calls of [`Broker`](crate::broker::Broker), and its results become
//! frames. Read it in the order in which a frame passes: `listener`, `socket`, `protocol_detect`, `connection`, and `session`
//! with its links.

mod address;
mod cbs;
mod connection;
mod context;
mod coordinator;
mod delivery;
mod errors;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod keys;
pub(crate) mod listener;
pub(crate) mod mailbox;
mod management;
mod opening;
mod producer;
pub(crate) mod protocol_detect;
pub(crate) mod replay;
mod requests;
mod rules;
mod session;
pub(crate) mod shared_state;
mod socket;

#[cfg(feature = "websockets")]
mod websocket;

#[cfg(test)]
mod tests;
