//! Tests of the Service Bus emulator with Microsoft's own clients.
//!
//! The scenarios are written in the clients' languages, in `python/` and `javascript/`, because only the clients know what
//! they accept. This crate runs them:
//!
//! | module | does |
//! |---|---|
//! | [`install`] | installs the clients, each in the versions that the tests name, under `target/servicebus-sdks` |
//! | `stage` | starts an emulator for a scenario, advances its clock and injects faults, as the scenario requests |
//! | [`suite`] | runs the scenarios of one client, and counts the results |
//!
//! `cargo xtask test --servicebus-sdks` runs all of them. By hand, for one scenario:
//! `REDRIVE_SERVICEBUS_SCENARIO=name cargo test -p redrive-servicebus-sdks --test python python_7_15_0 -- --nocapture`.

pub mod install;
mod stage;
pub mod suite;
