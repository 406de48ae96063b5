//! What must hold for the pure parts, whatever they are given.

mod arbitrary;
mod history;
mod redact;
mod retry;
mod settlement;
