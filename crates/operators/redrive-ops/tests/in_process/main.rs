//! Shelves in process: looked at, exported, and worked on by runs.

mod export;
#[cfg(feature = "exporter")]
mod exporter;
#[cfg(feature = "runner")]
mod runner;
mod snapshot;
mod view;
