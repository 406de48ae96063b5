//! The RabbitMQ emulator compared with RabbitMQ.
//!
//! | module | does |
//! |---|---|
//! | [`scenario`] | what a scenario is made of: topology and steps |
//! | [`generate`] | makes a scenario from a seed |
//! | [`run`] | runs one on a target, and notes what can be observed |
//! | [`observation`] | compares two runs |
//! | [`target`] | where one runs: a real broker, or an emulator with its own clock |
//! | [`campaign`] | many scenarios at once |
//! | [`nodes`] | the real brokers |
//! | [`shrink`] | makes a scenario that differs smaller |
//! | [`recordings`] | what RabbitMQ did |
//! | [`regression`] | those that once differed |
//! | `client`, `message`, `wire` | an AMQP client that hides nothing |

pub mod campaign;
mod client;
pub mod generate;
mod message;
mod names;
pub mod nodes;
pub mod observation;
pub mod recordings;
pub mod regression;
pub mod run;
pub mod scenario;
pub mod shrink;
pub mod target;
mod wire;
