//! The two halves of a connection, independent of the protocol below.

use tokio::io::{AsyncRead, AsyncWrite};

/// The input from the client, and the output to it.
pub(crate) type Halves = (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>);
