//! Real brokers for the tests.
//!
//! | module | gives |
//! |---|---|
//! | [`mod@env`] | the broker a test shall use: a shared one by its URL, or a private one to kill |
//! | [`emulator`](fn@emulator) (feature `emulator`) | an emulator of RabbitMQ, or RabbitMQ itself if that was asked for |
//! | [`node`] | a private RabbitMQ node: start, SIGKILL, restart on the same data, `rabbitmqctl` |
//! | [`turn`](fn@node_in_turn) | one node for several tests of a process |
//! | [`cluster`] | three nodes in three network namespaces: kill one, divide one from the others |
//! | [`browser`] | Chromium and its driver, for pages |
//! | [`install`] | RabbitMQ 3.10 and 4.3 on this machine, side by side |
//! | [`proxy`] | a TCP proxy that freezes, cuts, refuses and delays |
//! | [`handshake`] | whether somebody speaks AMQP on a port, and who |
//! | [`process`], [`command`] | processes that die with the test; programs that run to their end |
//! | [`Refusals`] | a bound for messages that RabbitMQ 3.10 refuses while their quorum queue is new |
//! | [`report`](fn@report) | a line for the closing report of `cargo xtask test` |
//!
//! Everything but the proxy blocks: a broker takes seconds to start, and most callers have nothing else
//! to do meanwhile. Inside a runtime use [`Node::start_async`] and [`Node::aside`].
//!
//! A test against a broker carries the version in its path (`mod v3_10`, `mod v4_3`), so that
//! `--skip v4_3` leaves that broker out and the closing report can count what ran where.

pub mod browser;
pub mod cluster;
pub mod command;
pub mod env;
pub mod handshake;
pub mod install;
pub mod node;
pub mod process;
pub mod proxy;

mod chroot;
#[cfg(feature = "emulator")]
mod emulator;
mod network;
mod new_queue;
mod ports;
mod report;
mod starts;
mod turn;
mod version;

pub use cluster::Cluster;
#[cfg(feature = "emulator")]
pub use emulator::{Emulated, emulator};
pub use env::{
    Broker, ON_RABBITMQ_VARIABLE, broker, emulated_on_rabbitmq, own_node, own_node_with, own_node_with_files,
    own_node_with_plugins, shared_url,
};
pub use new_queue::Refusals;
pub use node::Node;
pub use ports::free_port;
pub use proxy::Proxy;
pub use report::{REPORT_VARIABLE, report};
pub use starts::waited as waited_to_start;
pub use turn::{Turn, node_in_turn};
pub use version::Version;
