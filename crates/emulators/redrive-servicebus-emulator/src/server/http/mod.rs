//! Serves the same broker by HTTP: the run-time REST API of Service Bus, on its own port.
//! <https://learn.microsoft.com/rest/api/servicebus/service-bus-runtime-rest>.
//!
//! Read it in the order in which a request passes: `connection`, then `route` (which operation), `call` (calls the
//! broker), and `message` with `properties` (messages as headers and bytes).

mod call;
mod connection;
mod message;
mod properties;
mod route;

pub(crate) use connection::accept;
