//! The same broker by HTTP: the run-time REST API of Service Bus, on a port of its own.
//! <https://learn.microsoft.com/rest/api/servicebus/service-bus-runtime-rest>.
//!
//! Read it in the order of a request's way: `server` and `connection`, then `route` (what is asked), `call` (asking the
//! broker), and `message` with `properties` (messages as headers and bytes).

mod call;
mod connection;
mod message;
mod properties;
mod route;
mod server;

pub(crate) use server::HttpServer;
