//! The common parts of redrive's emulators: everything around a broker that does not depend on its protocol.
//!
//! [`Host`] runs an emulator over crashes, stops and restarts; a [`Plan`] tells it how. [`StateFile`] and [`Journal`] keep its content,
//! [`Clock`] is its time, and [`Ports`] are its addresses.
#![forbid(unsafe_code)]

mod accepting;
mod clock;
mod door;
mod halves;
mod host;
mod port;
#[cfg(feature = "program")]
pub mod program;
mod store;
mod time;
#[cfg(feature = "tls")]
mod tls;

pub use accepting::Accepting;
pub use clock::{Clock, TooFar, pass_time};
pub use door::Door;
pub use halves::{Halves, plain, send, until};
pub use host::{Host, Plan};
pub use port::{Listen, ListenError, Listeners, Ports};
pub use store::{Cause, Journal, StateFile, StoreError, Ticket, check_format, rows};
pub use time::Timestamp;
#[cfg(feature = "tls")]
pub use tls::{Identity, IdentityError, TlsStream};
