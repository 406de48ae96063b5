//! What a transport, its receipts and its shelves share.

use std::sync::Arc;

use crate::connection::ReconnectingConnection;
use crate::options::Options;
use crate::receive::locks::Locks;
use crate::settle::completions::CompletionBatcher;
use crate::settle::replacements::TransactionBatcher;

/// What a transport, its receipts and its shelves share. Receipts keep it alive; it keeps no receipts, and not the inbox where
/// they wait.
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

    /// The path of what is consumed.
    pub(crate) fn entity(&self) -> String {
        self.options.entity.path()
    }
}
