//! Tests of connecting to a namespace: with TLS, with WebSockets, and with an identity.

#[cfg(feature = "entra")]
mod entra;
mod secured;
mod tls;
#[cfg(feature = "websockets")]
mod websockets;
