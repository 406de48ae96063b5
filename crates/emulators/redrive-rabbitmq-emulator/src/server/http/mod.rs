//! HTTP: the part of RabbitMQ's management API that tools use, and the emulator's own calls.
//!
//! `server` accepts, `call` is one request without I/O, `api` answers for RabbitMQ, `own` for the emulator.

mod api;
mod call;
mod own;
mod server;

pub(crate) use server::accept;
