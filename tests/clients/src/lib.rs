//! Tests of the emulators with clients of other projects; each scenario of RabbitMQ holds on RabbitMQ itself, too.
//!
//! The scenarios are written in the clients' languages, because only the clients know what they accept: `rabbitmq/` (pika,
//! aio-pika, amqplib, rascal; lapin and amqprs under `tests/rabbitmq`) and `servicebus/` (Microsoft's clients of Python and
//! JavaScript, in several versions). `python/` and `javascript/` have what both share. This crate runs them:
//!
//! | module | does |
//! |---|---|
//! | [`install`] | installs the clients, in pinned versions, under `target/clients` |
//! | [`suite`] | runs the scenarios of one client, and counts the results |
//! | `stage` | answers the requests of scenarios in other languages |
//! | [`rabbitmq`] | a broker for one scenario, real or emulated; lets time pass and cuts connections |
//! | [`ServiceBus`] | an emulator for one scenario; advances its clock and injects faults |
//!
//! `cargo xtask test --servicebus-sdks` runs Microsoft's clients in all versions. By hand, for one scenario:
//! `REDRIVE_SCENARIO=name cargo test -p redrive-clients --test servicebus python_7_15_0 -- --nocapture`.

pub mod install;
pub mod rabbitmq;
mod servicebus;
mod stage;
pub mod suite;

pub use servicebus::ServiceBus;
