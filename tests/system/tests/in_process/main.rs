//! Consumers on the in-process broker, on paused time.

mod batches;
mod consumer;
mod handlers;
mod interruptions;
mod layers;
mod lost;
mod readiness;
mod refusals;
mod review;
mod router;
mod suspects;
