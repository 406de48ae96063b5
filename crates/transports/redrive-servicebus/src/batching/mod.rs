//! Settles several deliveries in one request.
//!
//! `completions` completes and abandons messages, and `replacements` stores copies and completes their originals.

mod completions;
mod replacements;

pub(crate) use completions::CompletionBatcher;
pub(crate) use replacements::{ReplaceError, TransactionBatcher};
