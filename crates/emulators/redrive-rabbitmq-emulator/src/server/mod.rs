//! Sockets around the broker.
//!
//! Read it in the order in which a frame passes: `listener` accepts, `protocol_detect` finds out about TLS, `socket` moves bytes,
//! `decoder` makes commands of them, and `shared_state` calls the broker.

pub(crate) mod decoder;
mod event_log;
#[cfg(feature = "http")]
pub(crate) mod http;
pub(crate) mod listener;
pub(crate) mod protocol_detect;
pub(crate) mod replay;
pub(crate) mod shared_state;
mod socket;
