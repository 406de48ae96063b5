//! An emulator behind TLS, for the tests of connecting.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redrive_contract::Started;
use redrive_core::transport::{Needs, Settlement};
use redrive_core::{BoxError, Message};
use redrive_servicebus::{Options, ServiceBus};
use redrive_servicebus_emulator::{Builder, Emulator, Settings};

pub(crate) const QUEUE: &str = "orders";
/// A key that no error may contain.
pub(crate) const KEY: &str = "very-secret";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// An emulator that is reached with TLS and WebSockets, with a certificate of a test authority.
pub(crate) struct Secured {
    pub(crate) emulator: Emulator,
    /// The certificate of the authority.
    pub(crate) ca: String,
}

impl Secured {
    /// Starts an emulator with a certificate for a host of this name.
    pub(crate) async fn named(host: &str) -> Result<Self, BoxError> {
        Self::start(Emulator::builder().key("app", KEY), host).await
    }

    pub(crate) async fn start(emulator: Builder, host: &str) -> Result<Self, BoxError> {
        let authority = authority("ours")?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &authority)?;
        let emulator = emulator.queue(QUEUE, settings()).tls(certificate.pem(), key.serialize_pem());
        let emulator = emulator.websockets().start().await?;
        Ok(Self { emulator, ca: authority.pem() })
    }

    /// Returns the host and port to connect to. The certificate may be for this host.
    pub(crate) fn host(&self) -> String {
        format!("localhost:{}", self.emulator.address().port())
    }

    pub(crate) fn connection_string(&self) -> String {
        format!("Endpoint=sb://{};SharedAccessKeyName=app;SharedAccessKey={KEY}", self.host())
    }

    /// Returns options of a client that trusts the authority.
    pub(crate) fn options(&self) -> Options {
        ServiceBus::options(QUEUE).ca_certificates(self.ca.clone())
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.max_message_size = 4 << 20;
    settings
}

/// Creates an authority that signs certificates.
pub(crate) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, BoxError> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?)
}

/// Opens a transport for [`a_message_goes_round`].
pub(crate) async fn opened(transport: ServiceBus) -> Result<Started<ServiceBus>, BoxError> {
    let mut needs = Needs::none();
    needs.waits.insert(WAIT);
    needs.prefetch = 1;
    Ok(Started::open(transport, &needs).await?)
}

const WAIT: Duration = Duration::from_millis(100);

/// Sends a message that fails, is redelivered and is completed, which uses every kind of link.
pub(crate) async fn a_message_goes_round(
    transport: &Started<ServiceBus>,
    body: &str,
) -> Result<(), BoxError> {
    transport.publish(Message::new(body.to_owned()).with_id("m")).await?;
    let first = transport.next_within(TIMEOUT).await;
    let copy = first.delivery.message().clone();
    let rescheduled = transport.settle(first.receipt, Settlement::Reschedule { wait: WAIT, copy }).await;
    rescheduled.map_err(|refused| refused.error)?;
    let again = transport.next_within(TIMEOUT).await;
    assert_eq!(again.delivery.message().body(), body);
    transport.settle(again.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    Ok(())
}
