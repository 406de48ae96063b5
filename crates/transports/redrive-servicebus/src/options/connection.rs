//! The options of the connection to the namespace.

/// The protocol below AMQP, with the names of Microsoft's clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportType {
    /// AMQP on TLS, on port 5671.
    #[default]
    AmqpTcp,
    /// AMQP in a WebSocket on TLS, on port 443, for networks that block other ports. HTTP proxies are not supported.
    #[cfg(feature = "websockets")]
    AmqpWebSockets,
}

/// The options of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// Default: the transport type of the connection string.
    pub(crate) transport: Option<TransportType>,
    pub(crate) ca_certificates: Option<String>,
}
