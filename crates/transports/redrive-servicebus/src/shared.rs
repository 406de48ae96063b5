//! The state that a transport, its receipts and its shelves share.

use std::sync::Arc;

use crate::batching::{CompletionBatcher, TransactionBatcher};
use crate::connection::ReconnectingConnection;
use crate::locks::Locks;
use crate::options::Options;

/// The state that a transport, its receipts and its shelves share. Receipts keep it alive, so it must hold neither receipts nor
/// the inbox.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) connection: Arc<ReconnectingConnection>,
    /// The locks of all deliveries in flight.
    pub(crate) locks: Arc<Locks>,
    pub(crate) completions: CompletionBatcher,
    pub(crate) replacements: TransactionBatcher,
}

impl Shared {
    pub(crate) fn new(options: Options, connection: ReconnectingConnection) -> Self {
        let connection = Arc::new(connection);
        Self {
            locks: Arc::default(),
            completions: CompletionBatcher::new(Arc::clone(&connection)),
            replacements: TransactionBatcher::new(Arc::clone(&connection), options.has_transactions()),
            options,
            connection,
        }
    }

    /// Returns the path of the consumed entity.
    pub(crate) fn entity(&self) -> String {
        self.options.entity.path()
    }
}
