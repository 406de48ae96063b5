//! The options that say how the namespace is reached, and as whom.

#[cfg(feature = "entra")]
use std::sync::Arc;

#[cfg(feature = "entra")]
use azure_core::credentials::TokenCredential;
use redrive_core::TransportError;

use super::Options;
use crate::address::Address;
use crate::transport::ServiceBus;

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

impl Options {
    /// How the namespace is reached: as the connection string says (`TransportType=AmqpWebSockets`), and
    /// [`TransportType::AmqpTcp`] where that says nothing, unless told here.
    pub fn transport(mut self, transport: TransportType) -> Self {
        self.connection.transport = Some(transport);
        self
    }

    /// Certificates (PEM) to trust besides those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.connection.ca_certificates = Some(pem.into());
        self
    }

    /// Connects to the namespace of this connection string, as the Azure portal shows it; with
    /// `UseDevelopmentEmulator=true` without TLS. The rights of the key are checked when the transport is opened.
    ///
    /// # Errors
    ///
    /// When the connection string is malformed or for another entity, the options contradict each other, or the namespace
    /// cannot be reached or its certificate is not trusted.
    pub async fn connect(self, connection_string: &str) -> Result<ServiceBus, TransportError> {
        ServiceBus::open(self, Address::parse(connection_string)?).await
    }

    /// Connects to a namespace by its host name, `shop.servicebus.windows.net`, as an identity of Microsoft Entra ID; always
    /// on TLS. The identity is asked for a token for each entity, and again when half of the time is over that a token is good
    /// for; it has 30 s to answer. Its rights are checked when the transport is opened: it needs the roles `Azure Service
    /// Bus Data Receiver` and `Azure Service Bus Data Sender`.
    ///
    /// ```no_run
    /// # async fn connect(
    /// #     credential: std::sync::Arc<dyn azure_core::credentials::TokenCredential>,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// use redrive_servicebus::ServiceBus;
    ///
    /// // From the crate `azure_identity`, for example: ManagedIdentityCredential::new(None)?
    /// let transport = ServiceBus::options("orders")
    ///     .connect_with("shop.servicebus.windows.net", credential)
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// When that is no host name, the options contradict each other, or the namespace cannot be reached or its certificate is
    /// not trusted.
    #[cfg(feature = "entra")]
    pub async fn connect_with(
        self,
        namespace: &str,
        credential: Arc<dyn TokenCredential>,
    ) -> Result<ServiceBus, TransportError> {
        ServiceBus::open(self, Address::of_identity(namespace, credential)?).await
    }
}
