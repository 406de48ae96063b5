//! The options that say how the namespace is reached, and as whom.

/// How the namespace is reached, by the names that Microsoft's clients have for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportType {
    /// AMQP on TLS, on port 5671.
    #[default]
    AmqpTcp,
    /// AMQP in a WebSocket on TLS, on port 443: for networks that let nothing else out. HTTP proxies are not asked.
    #[cfg(feature = "websockets")]
    AmqpWebSockets,
}

/// What is said of the connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionOptions {
    /// Else as the connection string says.
    pub(crate) transport: Option<TransportType>,
    pub(crate) ca_certificates: Option<String>,
}
