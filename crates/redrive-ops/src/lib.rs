#![doc = include_str!("../README.md")]

#[cfg(feature = "exporter")]
mod exporter;
mod filter;
mod group;
mod snapshot;
mod view;

#[cfg(feature = "exporter")]
pub use exporter::{CONTENT_TYPE, InvalidPrefix, ShelfExporter, ShelfMetrics};
pub use filter::{Filter, ParseFilterError};
pub use group::{GroupId, ParseGroupIdError, Template};
pub use snapshot::{GroupSummary, LeftOut, Sample, ShelfSnapshot, SnapshotFold, SnapshotOptions, snapshot};
pub use view::{Entries, EntriesPage, ShelfView, Trend, TrendOptions, ViewEntry, ViewOptions};
