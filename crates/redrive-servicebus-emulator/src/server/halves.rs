//! The two halves of a connection, independent of the protocol around it.

use tokio::io::{AsyncRead, AsyncWrite};

/// What a client says, and what it is told.
pub(crate) type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);
