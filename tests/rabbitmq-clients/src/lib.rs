//! Tests of the RabbitMQ emulator with clients of other projects; each scenario holds on RabbitMQ itself, too.
//!
//! The scenarios are written in the clients' languages: `python/` (pika, aio-pika), `javascript/` (amqplib, rascal), and
//! `tests/lapin`, `tests/amqprs` for Rust. This crate runs them:
//!
//! | module | does |
//! |---|---|
//! | [`everywhere`] | makes the tests of the scenarios in Rust |
//! | [`install`] | installs the clients of Python and JavaScript, in pinned versions, under `target/rabbitmq-clients` |
//! | [`scene`] | a broker for one scenario, real or emulated; lets time pass and cuts connections |
//! | `stage` | gives scenes to scenarios in other languages |
//! | [`suite`] | runs the scenarios of one language, and counts the results |
//!
//! By hand, for one scenario: `REDRIVE_RABBITMQ_SCENARIO=name cargo test -p redrive-rabbitmq-clients --test python -- --nocapture`.

mod everywhere;
pub mod install;
pub mod scene;
mod stage;
pub mod suite;
