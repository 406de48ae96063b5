//! How clients come in: by plain TCP, by TLS, or by WebSockets on either. All on the same port: the first byte that a
//! client says tells them apart.

use std::io;

use tokio::net::TcpStream;

use super::halves::Halves;

/// In which ways clients may come in, beside plain TCP.
#[derive(Debug, Default)]
pub(crate) struct Door {
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<super::tls::Identity>,
    #[cfg(feature = "websockets")]
    pub(crate) websockets: bool,
}

impl Door {
    /// Lets a client in. One whose way is not open is taken for one of plain TCP, and is told what is spoken there.
    pub(crate) async fn open(&self, stream: TcpStream) -> io::Result<Halves> {
        #[cfg(any(feature = "tls", feature = "websockets"))]
        if self.has_choice() {
            return self.open_by_first_byte(stream).await;
        }
        Ok(plain(stream))
    }
}

fn plain(stream: TcpStream) -> Halves {
    let (reading, writing) = stream.into_split();
    (Box::new(reading), Box::new(writing))
}

#[cfg(any(feature = "tls", feature = "websockets"))]
mod choice {
    use std::io;

    use tokio::net::TcpStream;

    use super::{Door, Halves, plain};

    /// The first byte of a TLS client: a handshake.
    #[cfg(feature = "tls")]
    const TLS: u8 = 0x16;
    /// The first byte of a WebSocket client: a `GET`.
    #[cfg(feature = "websockets")]
    const HTTP: u8 = b'G';

    impl Door {
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

        pub(super) async fn open_by_first_byte(&self, stream: TcpStream) -> io::Result<Halves> {
            let mut first = [0];
            stream.peek(&mut first).await?;
            #[cfg(feature = "tls")]
            if let (TLS, Some(identity)) = (first[0], &self.tls) {
                return self.open_within_tls(identity.accept(stream).await?).await;
            }
            #[cfg(feature = "websockets")]
            if first[0] == HTTP && self.websockets {
                return crate::server::websocket::accept(stream).await;
            }
            Ok(plain(stream))
        }

        #[cfg(feature = "tls")]
        async fn open_within_tls(&self, stream: crate::server::tls::Stream) -> io::Result<Halves> {
            #[cfg(feature = "websockets")]
            if self.websockets {
                use tokio::io::AsyncBufReadExt as _;

                let mut stream = tokio::io::BufReader::new(stream);
                if stream.fill_buf().await?.first() == Some(&HTTP) {
                    return crate::server::websocket::accept(stream).await;
                }
                let (reading, writing) = tokio::io::split(stream);
                return Ok((Box::new(reading), Box::new(writing)));
            }
            let (reading, writing) = tokio::io::split(stream);
            Ok((Box::new(reading), Box::new(writing)))
        }
    }
}
