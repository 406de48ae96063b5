//! The Service Bus emulator under the eyes of Microsoft's own clients.
//!
//! The scenarios are written in the clients' languages, in `python/` and `javascript/`, because only the clients know what
//! they accept. What stands here lets them run:
//!
//! | module | does |
//! |---|---|
//! | [`install`] | the clients, each in the versions that the tests name, under `target/servicebus-sdks` |
//! | `stage` | starts an emulator for a scenario, moves its clock and breaks it, when the scenario says so |
//! | [`suite`] | runs the scenarios of one client, and counts what came of them |
//!
//! `cargo xtask test --servicebus-sdks` runs all of them. By hand, for one scenario:
//! `REDRIVE_SERVICEBUS_SCENARIO=name cargo test -p redrive-servicebus-sdks --test python python_7_15_0 -- --nocapture`.

pub mod install;
mod stage;
pub mod suite;
