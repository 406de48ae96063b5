//! Entries of shelves, and what is done with them, for operators' tools. The trait is [`Shelves`](crate::Shelves).

pub use crate::operate::{
    EntryHandle, EntryOutcome, EntryResult, Holder, Lease, Leased, Owner, ParseCursorError, ParseHandleError,
    REPORT_QUEUE_PREFIX, ReportRequest, Reported, Reports, Selection, ShelfCursor, ShelfPage, ShelfReport,
    Shelved, WorkQueue, edited,
};
