#![doc = include_str!("../README.md")]

mod as_text;
mod audit;
mod body;
mod edit;
mod export;
#[cfg(feature = "exporter")]
mod exporter;
mod filter;
mod group;
mod journal;
mod json;
mod plan;
mod printable;
mod run;
#[cfg(feature = "runner")]
mod runner;
mod shown;
mod snapshot;
#[cfg(all(unix, feature = "socket"))]
mod socket;
mod view;

pub use audit::{
    AuditAction, AuditCounts, AuditLog, AuditRecord, MESSAGES_WITHOUT_REASON, ReasonRequired, require_reason,
};
pub use body::BodyView;
pub use edit::{
    Edit, EditClass, EditDocument, EditError, EditText, MessagePart, ParseEditError, SensitiveEdits, diff,
};
pub use export::{
    ExportError, ExportLines, ExportedEntry, ParseLineError, ReadExportError, ReadLineError, UnwritableValue,
    export,
};
#[cfg(feature = "exporter")]
pub use exporter::{CONTENT_TYPE, InvalidPrefix, ShelfExporter, ShelfMetrics};
pub use filter::{Filter, ParseFilterError, Verdict};
pub use group::{GroupId, ParseGroupIdError, Template};
pub use journal::{
    Journal, JournalError, JournalFolder, JournalHeader, Operator, Replay, ShelfLock, StoppedRun,
    UncertainEntries,
};
#[doc(hidden)]
pub use journal::{JournalFile, JournalRecord};
pub use json::same_number;
pub use plan::{
    ContentDigest, LeftOutEntry, ParseDigestError, Plan, PlanAction, PlanError, PlanOptions, PlanSample,
    PlannedEntry, Target, WhyLeftOut,
};
pub use printable::{printable, printable_json};
#[doc(hidden)]
pub use redrive_core::own_file;
pub use run::{
    EntryState, Event, Fate, FateCounts, FateSource, Hold, PauseReason, Run, RunOptions, RunReport, SeenFate,
    Step, StopReason, Waiting,
};
#[cfg(feature = "runner")]
pub use runner::{Activity, Fates, FinishedRun, LookForFates, RunControl, RunProgress, Runner, ShelfFates};
pub use shown::ShownFailure;
pub use snapshot::{GroupSummary, LeftOut, Sample, ShelfSnapshot, SnapshotFold, SnapshotOptions, snapshot};
#[cfg(all(unix, feature = "socket"))]
pub use socket::{BindError, OperatorSocket, OperatorSocketBuilder, SocketShelves};
pub use view::{Entries, EntriesPage, ShelfView, Trend, TrendOptions, ViewEntry, ViewOptions};
