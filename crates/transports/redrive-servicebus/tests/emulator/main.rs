//! Tests of the transport on the emulator, beyond the contract suite.

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
mod raw;
mod refused;
#[cfg(feature = "rest")]
mod rest;
mod sessions;
mod stuck;
mod transactions;
