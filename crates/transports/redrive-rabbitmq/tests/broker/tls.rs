//! `amqps://`, and `https://` of the management API, on a real broker with certificates of our own.

use std::net::TcpListener;
use std::time::Duration;

use crate::common;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redrive_brokers::{Node, Version};
use redrive_contract::Started;
use redrive_core::transport::{Needs, Settlement, Signals};
use redrive_core::{Message, Transport, TransportErrorKind};
use redrive_rabbitmq::RabbitMq;
use tokio::time::timeout;

const SOON: Duration = common::ARRIVAL;

/// A node that speaks TLS, with a certificate for `localhost` from an authority of its own.
struct Secured {
    node: Node,
    amqps: u16,
    https: u16,
    ca: String,
}

impl Secured {
    async fn start(version: Version, plugins: &'static [&'static str]) -> Self {
        common::show_logs();
        tokio::task::spawn_blocking(move || Self::start_now(version, plugins)).await.unwrap()
    }

    /// Ports that are free may be taken before the node opens them: then it is tried with others.
    fn start_now(version: Version, plugins: &[&str]) -> Self {
        let mut tries = 1;
        loop {
            match Self::try_start(version, plugins) {
                Ok(secured) => return secured,
                Err(error) => assert!(tries < 4 && error.contains("eaddrinuse"), "{error}"),
            }
            tries += 1;
        }
    }

    fn try_start(version: Version, plugins: &[&str]) -> Result<Self, String> {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = server.signed_by(&key, &authority).unwrap();

        let ca = authority.pem();
        let (server, key) = (certificate.pem(), key.serialize_pem());
        let files = [("ca.pem", &*ca), ("server.pem", &*server), ("server.key", &*key)];
        let (amqps, https) = (free_port(), free_port());
        let mut config = vec![
            format!("listeners.ssl.1 = 127.0.0.1:{amqps}"),
            "ssl_options.cacertfile = {files}/ca.pem".to_owned(),
            "ssl_options.certfile = {files}/server.pem".to_owned(),
            "ssl_options.keyfile = {files}/server.key".to_owned(),
            "ssl_options.verify = verify_none".to_owned(),
            "ssl_options.fail_if_no_peer_cert = false".to_owned(),
        ];
        if !plugins.is_empty() {
            config.extend([
                "management.ssl.ip = 127.0.0.1".to_owned(),
                format!("management.ssl.port = {https}"),
                "management.ssl.cacertfile = {files}/ca.pem".to_owned(),
                "management.ssl.certfile = {files}/server.pem".to_owned(),
                "management.ssl.keyfile = {files}/server.key".to_owned(),
            ]);
        }
        let config: Vec<_> = config.iter().map(String::as_str).collect();
        let node =
            Node::with_files(version, &config, plugins, &files).map_err(|error| format!("{error:#}"))?;
        node.ctl(&["add_user", "app", "very-secret"]).unwrap();
        node.ctl(&["set_permissions", "app", ".*", ".*", ".*"]).unwrap();
        node.ctl(&["set_user_tags", "app", "policymaker"]).unwrap();
        Ok(Self { node, amqps, https, ca })
    }

    fn url(&self) -> String {
        format!("amqps://app:very-secret@localhost:{}/%2f", self.amqps)
    }
}

/// Below those that connections take for themselves, which come and go all the time.
fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    std::iter::repeat_with(|| fastrand::u16(20_000..32_000)).find(is_free).expect("a free port")
}

async fn messages_go_round_over_tls(version: Version) {
    let secured = Secured::start(version, &[]).await;
    let options = RabbitMq::options("tls-orders").ca_certificates(secured.ca.clone());
    let transport = options.connect(&secured.url()).await.expect("a broker whose certificate is trusted");
    let wait = Duration::from_millis(100);
    let mut needs = Needs::none();
    needs.waits.insert(wait);
    needs.prefetch = 1;
    let transport = Started::open(transport, &needs).await.unwrap();
    common::publish(&transport, Message::new("over TLS").with_id("m")).await;
    let first = timeout(SOON, transport.receive()).await.unwrap().unwrap().unwrap();
    let copy = first.delivery.message().clone();
    transport.settle(first.receipt, Settlement::Reschedule { wait, copy }).await.expect("rescheduled");
    let again = timeout(SOON, transport.receive()).await.unwrap().unwrap().unwrap();
    assert_eq!(again.delivery.message().body(), "over TLS");
    transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
    transport.close().await;

    // Nobody vouches for the certificate.
    let error = timeout(SOON, RabbitMq::connect(&secured.url(), "tls-orders")).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    let said = error.to_string();
    assert!(said.contains("certificate"), "{said}");
    assert!(!said.contains("very-secret"), "{said}");
}

/// A policy that deletes the delay queues shows only in the management API.
#[cfg(feature = "management")]
async fn queues_are_compared_over_https(version: Version) {
    let secured = Secured::start(version, &["rabbitmq_management"]).await;
    let management = format!("https://app:very-secret@localhost:{}", secured.https);
    let needs = common::needs(&[60_000], 4);
    let start = async |trusted: bool| {
        let options = RabbitMq::options("compared").new_queue_wait(Duration::ZERO).management(&*management);
        let url = if trusted { secured.url() } else { secured.node.url() };
        let options = if trusted { options.ca_certificates(secured.ca.clone()) } else { options };
        let transport = options.connect(&url).await.expect("connected");
        let started = transport.open(&needs, Signals::ignored()).await.map(drop);
        transport.close().await;
        started
    };
    start(true).await.expect("nothing is wrong yet");
    let policy =
        ["set_policy", "--apply-to", "queues", "harm", "^compared--retry", r#"{"expires":86400000}"#];
    secured.node.aside(move |node| node.ctl(&policy)).await.expect("set");
    let error = start(true).await.expect_err("the policy is seen");
    assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
    assert!(error.to_string().contains("with its messages"), "{error}");
    // Who is not trusted is not asked, and that is no reason not to start.
    start(false).await.expect("not compared");
}

mod v3_10 {
    use redrive_brokers::Version::V3_10;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_go_round_over_tls() {
        super::messages_go_round_over_tls(V3_10).await;
    }

    #[cfg(feature = "management")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn queues_are_compared_over_https() {
        super::queues_are_compared_over_https(V3_10).await;
    }
}

mod v4_3 {
    use redrive_brokers::Version::V4_3;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn messages_go_round_over_tls() {
        super::messages_go_round_over_tls(V4_3).await;
    }

    #[cfg(feature = "management")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn queues_are_compared_over_https() {
        super::queues_are_compared_over_https(V4_3).await;
    }
}
