//! What an operator does on the shelves of a queue, whichever face asks for it: the command line, the terminal page, the web page.
//!
//! | module | does |
//! |---|---|
//! | [`absence`] | reads a shelf to judge by what is not on it |
//! | [`mod@connect`] | connects to the broker |
//! | [`state`] | plans, journals, originals and the audit log on disk |
//! | [`plan`] | makes a plan, and keeps it |
//! | [`mod@begin`] | exports the originals, runs a plan, writes the audit log |
//! | [`edit`] | stores an edited message |
//! | [`edits`] | stores many, and goes on where a command died |
//! | [`edit_journal`] | what commands edited, and how far they came |
//! | [`outcome`] | how a run ended, in words |
//! | [`differs`] | what will differ once it is restored |
//! | [`restore`] | restores messages, for an undo and an import |
//! | [`restore_journal`] | notes what is restored, entry by entry |
//! | [`undo`] | brings back what was discarded |
//! | [`import`] | puts back what was exported |
//! | [`asks`] | what other processes ask of a run |

mod absence;
pub(crate) mod asks;
pub(crate) mod begin;
pub(crate) mod connect;
pub(crate) mod differs;
pub(crate) mod edit;
mod edit_journal;
pub(crate) mod edits;
pub(crate) mod import;
pub(crate) mod outcome;
pub(crate) mod plan;
pub(crate) mod restore;
mod restore_journal;
#[cfg(test)]
mod restore_tests;
pub(crate) mod state;
pub(crate) mod undo;

pub(crate) use self::begin::{Begun, begin, operator, resume};
pub(crate) use self::connect::{Desk, connect, connect_all, named_queues, within};
pub(crate) use self::plan::make;
pub(crate) use self::state::{SavedPlan, State};
