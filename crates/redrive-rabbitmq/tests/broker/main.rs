//! The transport on real brokers, where the contract suite does not ask and the emulator is not enough: existing set-ups, lost
//! connections, nodes that are set up or killed for a test.

#[path = "../common/mod.rs"]
mod common;
mod fault_proxy;

mod connecting;
mod dead_letters;
mod documented;
mod interruptions;
#[cfg(feature = "management")]
mod management;
mod native;
mod oauth;
mod refusing;
mod replaced;
mod restarts;
mod sharing;
mod tls;
mod transfer;
