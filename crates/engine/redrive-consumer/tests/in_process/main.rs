//! Consumers on the in-process broker, on paused time.

mod consumers;
mod settling;
