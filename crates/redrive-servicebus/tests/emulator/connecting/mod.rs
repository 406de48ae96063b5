//! How a namespace is reached: on TLS, in WebSockets, and as an identity.

#[cfg(feature = "entra")]
mod entra;
mod secured;
mod tls;
#[cfg(feature = "websockets")]
mod websockets;
