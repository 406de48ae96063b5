#![doc = include_str!("../README.md")]

#[cfg(feature = "exporter")]
mod exporter;
mod group;
mod snapshot;

#[cfg(feature = "exporter")]
pub use exporter::{CONTENT_TYPE, InvalidPrefix, ShelfExporter, ShelfMetrics};
pub use group::{GroupId, ParseGroupIdError, Template};
pub use snapshot::{GroupSummary, LeftOut, Sample, ShelfSnapshot, SnapshotFold, SnapshotOptions, snapshot};
