//! A connection, whatever protocol it is wrapped in.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a client says, and what it is told.
pub(crate) type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);
