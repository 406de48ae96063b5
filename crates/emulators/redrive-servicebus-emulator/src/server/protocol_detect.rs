//! Detects the protocol of a client: plain TCP, TLS, or WebSockets on either. All share one port, and the first byte from the client
//! identifies the protocol.

use std::io;

use redrive_emulator_host::{Halves, plain};
use tokio::net::TcpStream;

/// The protocols that clients may use beside plain TCP.
#[derive(Debug, Default)]
pub(crate) struct ProtocolDetect {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<redrive_emulator_host::Identity>,
    #[cfg(feature = "websockets")]
    pub(crate) websockets: bool,
    /// `None`: tokens are checked, and every request for a WebSocket is let in.
    #[cfg(feature = "websockets")]
    pub(crate) door: Option<redrive_emulator_host::Door>,
}

impl ProtocolDetect {
    /// Accepts a client. A client with a disabled protocol is treated as plain TCP, and learns from the response what is expected.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<Halves> {
        #[cfg(any(feature = "tls", feature = "websockets"))]
        if self.has_choice() {
            return self.accept_by_first_byte(stream).await;
        }
        Ok(plain(stream))
    }
}

#[cfg(any(feature = "tls", feature = "websockets"))]
mod choice {
    use std::io;

    use redrive_emulator_host::{Halves, plain};
    use tokio::net::TcpStream;

    use super::ProtocolDetect;

    /// The first byte of a TLS client: a handshake.
    #[cfg(feature = "tls")]
    const TLS: u8 = 0x16;
    /// The first byte of a WebSocket client: a `GET`.
    #[cfg(feature = "websockets")]
    const HTTP: u8 = b'G';

    impl ProtocolDetect {
        pub(super) fn has_choice(&self) -> bool {
            let mut choice = false;
            #[cfg(feature = "tls")]
            {
                choice |= self.tls.is_some();
            }
            #[cfg(feature = "websockets")]
            {
                choice |= self.websockets;
            }
            choice
        }

        pub(super) async fn accept_by_first_byte(&self, stream: TcpStream) -> io::Result<Halves> {
            let mut first = [0];
            stream.peek(&mut first).await?;
            #[cfg(feature = "tls")]
            if let (TLS, Some(identity)) = (first[0], &self.tls) {
                return self.accept_within_tls(identity.accept(stream).await?).await;
            }
            #[cfg(feature = "websockets")]
            if first[0] == HTTP && self.websockets {
                return crate::server::websocket::accept(stream, self.door.as_ref()).await;
            }
            Ok(plain(stream))
        }

        #[cfg(feature = "tls")]
        async fn accept_within_tls(&self, stream: redrive_emulator_host::TlsStream) -> io::Result<Halves> {
            #[cfg(feature = "websockets")]
            if self.websockets {
                use tokio::io::AsyncBufReadExt as _;

                let mut stream = tokio::io::BufReader::new(stream);
                if stream.fill_buf().await?.first() == Some(&HTTP) {
                    return crate::server::websocket::accept(stream, self.door.as_ref()).await;
                }
                let (reading, writing) = tokio::io::split(stream);
                return Ok((Box::new(reading), Box::new(writing)));
            }
            let (reading, writing) = tokio::io::split(stream);
            Ok((Box::new(reading), Box::new(writing)))
        }
    }
}
