//! The options of the connections of one transport.

use std::time::Duration;

use super::Options;
use crate::connection::{ConnectionOptions, CredentialsProvider};

impl Options {
    /// Sets the interval of heartbeats, in whole seconds. Default: 10 s. A dead connection is noticed after twice that time.
    pub fn heartbeat(self, heartbeat: Duration) -> Self {
        self.own("heartbeat", |connection| connection.heartbeat(heartbeat))
    }

    /// Sets the name that the broker shows for the connections; the role of each is added. Default: `redrive {queue}`.
    pub fn connection_name(self, name: impl Into<String>) -> Self {
        self.own("connection_name", |connection| connection.name(name))
    }

    /// Tries several addresses in an order that is random for each transport, so that the consumers of a cluster spread over its
    /// nodes. Default: in the given order.
    pub fn shuffle_addresses(self) -> Self {
        self.own("shuffle_addresses", ConnectionOptions::shuffle_addresses)
    }

    /// Asks a [`CredentialsProvider`] for user and password, or for a token, before each connection, and again before the
    /// credentials expire. The user of the URL is then ignored.
    pub fn credentials(self, provider: impl CredentialsProvider) -> Self {
        self.own("credentials", |connection| connection.credentials(provider))
    }

    /// Sets the time limit of connecting to one address. Default: 10 s.
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        self.own("connect_timeout", |connection| connection.connect_timeout(timeout))
    }

    /// Sets the time limit of storing a message. Default: 30 s. After that it is not known whether it is stored, and the original
    /// stays. For a consumer's copies, time in which the broker accepts no messages because its memory or disk is full does not
    /// count; for [`RabbitMq::publish`](crate::RabbitMq::publish) and for operators it does.
    pub fn confirm_timeout(self, timeout: Duration) -> Self {
        self.own("confirm_timeout", |connection| connection.confirm_timeout(timeout))
    }

    /// Sets the maximum number of channels on which messages are published at once. Default: 32. Each carries up to 256 messages
    /// for one target, and a target uses at most two of them.
    pub fn publish_channels(self, channels: usize) -> Self {
        self.own("publish_channels", |connection| connection.publish_channels(channels))
    }

    /// Adds trusted certificates (PEM) to those of the system.
    pub fn ca_certificates(self, pem: impl Into<String>) -> Self {
        self.own("ca_certificates", |connection| connection.ca_certificates(pem))
    }

    /// Sets the certificate and key (PEM, PKCS #8) that the client presents to the broker.
    pub fn client_certificate(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.own("client_certificate", |connection| connection.client_certificate(certificate, key))
    }

    /// Sets an option that has no effect on shared connections.
    fn own(
        mut self,
        option: &'static str,
        change: impl FnOnce(ConnectionOptions) -> ConnectionOptions,
    ) -> Self {
        self.connection = change(self.connection);
        self.wants_own_connections = Some(option);
        self
    }
}
