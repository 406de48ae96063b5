//! Clients and amounts at the limits, against the program as a process of its own: what it takes, and that it stays small.

#[path = "../binary/mod.rs"]
mod binary;
mod client;
mod connections;
mod full_disk;
mod half_open;
mod program;
mod queues;
mod slow_reader;

/// Reads a number from the environment: these tests are small in the ordinary run.
fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}
