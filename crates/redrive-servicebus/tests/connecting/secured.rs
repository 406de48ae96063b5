//! An emulator behind TLS, and what is done on it.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redrive_core::{BoxError, Message, Needs, Received, Settlement, Transport as _};
use redrive_servicebus::{Options, Receipt, ServiceBus};
use redrive_servicebus_emulator::{Emulator, Settings};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

pub(crate) const QUEUE: &str = "orders";
/// What must be in no error.
pub(crate) const KEY: &str = "very-secret";
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An emulator that is reached by TLS, with a certificate from an authority of its own.
pub(crate) struct Secured {
    pub(crate) emulator: Emulator,
    pub(crate) port: u16,
    /// The authority's certificate.
    pub(crate) ca: String,
    _relay: JoinSet<()>,
}

impl Secured {
    /// With a certificate for a host of this name.
    pub(crate) async fn named(host: &str) -> Result<Self, BoxError> {
        let emulator = Emulator::builder().key("app", KEY).queue(QUEUE, Settings::default()).start().await?;
        Self::in_front_of(emulator, host).await
    }

    /// In front of an emulator that stands.
    pub(crate) async fn in_front_of(emulator: Emulator, host: &str) -> Result<Self, BoxError> {
        let authority = authority("ours")?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![host.to_owned()])?.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::try_from(key.serialize_der())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let behind = emulator.address();
        let mut relay = JoinSet::new();
        relay.spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::new(config));
            // Ends with this task, and with it all of them.
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let Ok(mut client) = acceptor.accept(tcp).await else { return };
                    let Ok(mut server) = TcpStream::connect(behind).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Ok(Self { emulator, port, ca: authority.pem(), _relay: relay })
    }

    pub(crate) fn connection_string(&self) -> String {
        format!("Endpoint=sb://localhost:{};SharedAccessKeyName=app;SharedAccessKey={KEY}", self.port)
    }

    /// For a client that trusts the authority.
    pub(crate) fn options(&self) -> Options {
        ServiceBus::options(QUEUE).ca_certificates(self.ca.clone())
    }
}

/// Somebody who signs certificates.
pub(crate) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, BoxError> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.distinguished_name.push(DnType::CommonName, name);
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?)
}

/// A message is sent, fails, comes again and is completed: every kind of link there is.
pub(crate) async fn a_message_goes_round(transport: &ServiceBus, body: &str) -> Result<(), BoxError> {
    let wait = Duration::from_millis(100);
    let mut needs = Needs::none();
    needs.waits.insert(wait);
    needs.prefetch = 1;
    transport.start(&needs).await?;
    transport.publish(Message::new(body.to_owned()).with_id("m")).await?;
    let first = next(transport).await;
    let copy = first.delivery.message().clone();
    let rescheduled = transport.settle(first.receipt, Settlement::Reschedule { wait, copy }).await;
    rescheduled.map_err(|refused| refused.error)?;
    let again = next(transport).await;
    assert_eq!(again.delivery.message().body(), body);
    transport.settle(again.receipt, Settlement::Complete).await.map_err(|refused| refused.error)?;
    Ok(())
}

pub(crate) async fn next(transport: &ServiceBus) -> Received<Receipt> {
    let received = timeout(PATIENCE, transport.receive()).await.expect("a delivery in time");
    received.expect("receiving goes on").expect("there is one")
}
