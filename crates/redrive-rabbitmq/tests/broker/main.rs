//! The transport on real brokers: what the contract suite does not ask.

#[path = "../common/mod.rs"]
mod common;
mod fault_proxy;

mod connecting;
mod dead_letters;
mod documented;
mod interruptions;
#[cfg(feature = "management")]
mod management;
mod modes;
mod native;
mod oauth;
mod preflight;
mod publishing;
mod refusing;
mod replaced;
mod restarts;
mod settling;
mod sharing;
mod shelves;
mod starting;
mod story;
mod subscribing;
mod tls;
mod transfer;
