//! Connections to RabbitMQ.
//!
//! | module | is |
//! |---|---|
//! | [`address`] | where the broker is, and as whom |
//! | [`credentials`], [`renewal`] | who provides passwords and tokens, and how the broker gets fresh ones |
//! | [`options`] | how to connect |
//! | [`timeouts`] | how long an answer of the broker is waited for |
//! | [`open`] | one connection that is open, or was |
//! | [`reconnecting`] | the connection of one role, made again when it is lost |
//! | [`channel_pool`] | channels to publish on |
//! | [`connections`] | all connections of one transport, or of many |
//! | [`access`] | those connections as one transport uses them |

mod access;
mod address;
mod channel_pool;
mod connections;
mod credentials;
mod open;
mod options;
mod reconnecting;
mod renewal;
mod timeouts;

pub(crate) use access::{ConnectionAccess, Ownership};
#[cfg(test)]
pub(crate) use address::Address;
pub(crate) use address::url_from_env;
pub(crate) use channel_pool::{ChannelPool, blocked_by_the_broker};
pub use connections::Connections;
pub use credentials::{Credentials, CredentialsProvider};
pub(crate) use open::Connection;
pub use options::ConnectionOptions;
pub(crate) use reconnecting::ReconnectingConnection;
#[cfg(test)]
pub(crate) use reconnecting::Role;
pub(crate) use timeouts::{LONGEST_BACKOFF, while_open, with_timeout, within_unblocked};
