//! Detects whether a client speaks TLS: the first byte tells.

use std::io;

use redrive_emulator_host::{Halves, plain};
use tokio::net::TcpStream;

/// The protocols that clients may use beside plain TCP.
#[derive(Debug, Default)]
pub(crate) struct ProtocolDetect {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<redrive_emulator_host::Identity>,
}

impl ProtocolDetect {
    /// Accepts a client. Without a certificate, a TLS client is treated as plain TCP, and learns from the response what is expected.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Halves> {
        #[cfg(feature = "tls")]
        if let Some(identity) = &self.tls {
            /// The first byte of a TLS client: a handshake.
            const TLS: u8 = 0x16;
            let mut first = [0];
            stream.peek(&mut first).await?;
            if first[0] == TLS {
                let (reading, writing) = tokio::io::split(identity.accept(stream).await?);
                return Ok((Box::new(reading), Box::new(writing)));
            }
        }
        Ok(plain(stream))
    }
}
