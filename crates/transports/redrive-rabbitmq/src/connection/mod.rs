//! Connections to RabbitMQ.
//!
//! | module | contains |
//! |---|---|
//! | [`address`] | the broker's address and the user |
//! | [`url`] | splits URLs, and never shows what it cannot split |
//! | [`credentials`], [`renewal`] | providers of passwords and tokens, and their renewal |
//! | [`options`] | how to connect |
//! | [`timeouts`] | how long to wait for the broker's answer |
//! | [`uninterrupted`] | requests that go on if their caller goes away |
//! | [`open`] | one connection, from its opening on |
//! | [`channel`] | one channel, closed in order |
//! | [`reconnecting`] | the connection of one role, made again when it is lost |
//! | [`channel_pool`] | channels to publish on |

mod address;
mod channel;
mod channel_pool;
mod credentials;
mod open;
mod options;
mod reconnecting;
mod renewal;
mod timeouts;
mod uninterrupted;
mod url;

pub use address::Address;
pub(crate) use address::{Addresses, url_from_env};
pub(crate) use channel::Channel;
pub(crate) use channel_pool::{ChannelPool, blocked_by_the_broker};
pub use credentials::{Credentials, CredentialsProvider};
pub(crate) use open::Connection;
pub use options::ConnectionOptions;
pub(crate) use reconnecting::{ReconnectingConnection, Role};
pub(crate) use timeouts::{LONGEST_BACKOFF, while_open, with_timeout, within_unblocked};
pub(crate) use uninterrupted::{joined, uninterrupted};
#[cfg(feature = "management")]
pub(crate) use url::BrokerUrl;
