//! The shelves of a running service, on a Unix domain socket: the end of the service, and that of an operator.
//!
//! | module | does |
//! |---|---|
//! | [`frame`] | bytes to frames, and back |
//! | [`wire`] | what the two ends say to each other, as values |
//! | [`claim`] | the file of the socket: who may use it, whose it is |
//! | [`server`] | the end of the service: opens the socket and lets operators in |
//! | [`peer`] | one operator, as the service sees it |
//! | [`connection`] | one connection, as the operator sees it |
//! | [`client`] | the end of the operator: [`Shelves`](redrive_core::Shelves) |
//!
//! The service greets, the operator names a queue, and from then on each request has one answer. An answer is a frame, followed by as many
//! more as it says: an entry of a page, as a line of an export, or the result of an entry.

mod claim;
mod client;
mod connection;
mod frame;
mod peer;
mod server;
mod wire;

pub use self::claim::BindError;
pub use self::client::SocketShelves;
pub use self::server::{OperatorSocket, OperatorSocketBuilder};
