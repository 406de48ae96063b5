//! The transport on real brokers, beside the contract suite: how it settles, and what the timing, the set-up or the failure of a broker decides.

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
mod settling;
mod sharing;
mod tls;
mod transfer;
