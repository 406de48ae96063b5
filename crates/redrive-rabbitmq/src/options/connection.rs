//! The options that say how to connect, and how long that and storing a copy may take.

use std::sync::Arc;
use std::time::Duration;

use lapin::tcp::OwnedIdentity;

use super::Options;
use crate::credentials::CredentialsProvider;

impl Options {
    /// How often a sign of life is asked for, in whole seconds: 10 s, unless told otherwise. A dead connection is
    /// noticed after twice that time.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = heartbeat;
        self
    }

    /// The name that the broker shows for the connections; what each is for is added.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = name.into();
        self
    }

    /// Tries several addresses in an order that is new for each transport, so that the consumers of a cluster spread over
    /// its nodes. Unless told so: in the order in which they are given.
    pub fn shuffle_addresses(mut self) -> Self {
        self.shuffle_addresses = true;
        self
    }

    /// Asks for user and password, or for a token, before each connection, and again before what was got expires: see
    /// [`CredentialsProvider`]. What stands in the URL is then not used.
    pub fn credentials(mut self, provider: impl CredentialsProvider) -> Self {
        self.credentials = Some(Arc::new(provider));
        self
    }

    /// How long connecting to one address may take: 10 s, unless told otherwise.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long storing a copy may take: 30 s, unless told otherwise. After that it is not known whether it was
    /// stored, and the original stays.
    pub fn confirm_timeout(mut self, timeout: Duration) -> Self {
        self.confirm_timeout = timeout;
        self
    }

    /// How long an acknowledgement may wait for others, to be sent together with them: 5 ms, unless told otherwise.
    /// Fewer than 64 wait, and fewer than half the prefetch. Zero sends each at once, which costs about a third of the
    /// throughput of a trivial handler. What waits when the connection or the process ends comes again.
    pub fn ack_within(mut self, wait: Duration) -> Self {
        self.ack_within = wait;
        self
    }

    /// Sizes the prefetch by what is worked off: what is handed out in a twentieth of a second, from the consumer's own
    /// prefetch (twice its concurrency, unless told otherwise) up to this. It grows within a second, and shrinks after ten
    /// slow ones; each time the queue is subscribed to anew, and what is in hand stays in hand. Not with
    /// [`single_active_consumer`](Self::single_active_consumer), whose subscription is not given up, and not where the consumer's
    /// prefetch is 1. What a process has in hand when it dies is counted as handed out: more prefetch, more suspects. Without
    /// this option the prefetch stays as it is.
    pub fn prefetch_up_to(mut self, deliveries: u16) -> Self {
        self.prefetch_up_to = Some(deliveries);
        self
    }

    /// On how many channels copies may be on their way at once: 32, unless told otherwise. Each carries up to 256 copies
    /// for one target, and a target has two of them at most.
    pub fn publish_channels(mut self, channels: usize) -> Self {
        self.publish_channels = channels.max(1);
        self
    }

    /// Certificates (PEM) to trust besides those of the system.
    pub fn ca_certificates(mut self, pem: impl Into<String>) -> Self {
        self.tls.cert_chain = Some(pem.into());
        self
    }

    /// The certificate and key (PEM, PKCS #8) to show to the broker.
    pub fn client_certificate(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.identity = Some(OwnedIdentity::PKCS8 { pem: certificate.into(), key: key.into() });
        self
    }
}
