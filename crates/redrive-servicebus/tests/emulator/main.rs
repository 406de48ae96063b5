//! The transport on the emulator: what the contract suite does not ask.

mod bad_input;
mod connecting;
mod faults;
mod lost;
mod nothing_lost;
mod parity;
mod pausing;
mod preflight;
mod proxy;
mod publishing;
#[cfg(feature = "rest")]
mod rest;
mod sessions;
mod stuck;
