//! `amqps://` on a real broker with certificates of our own.

mod v3_10 {
    use std::io::Write;
    use std::net::TcpListener;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use redrive_brokers::{Node, Version, own_node_with};
    use redrive_core::{Message, Needs, Settlement, Transport, TransportErrorKind};
    use redrive_rabbitmq::RabbitMq;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(20);

    #[tokio::test(flavor = "multi_thread")]
    async fn messages_go_round_over_tls() {
        let secured = Secured::start();
        let options = RabbitMq::options("tls-orders").ca_certificates(secured.ca.clone());
        let transport = options.connect(&secured.url()).await.expect("a broker whose certificate is trusted");
        let wait = Duration::from_millis(100);
        let mut needs = Needs::none();
        needs.waits.insert(wait);
        needs.prefetch = 1;
        transport.start(&needs).await.unwrap();
        transport.publish(Message::new("over TLS").with_id("m")).await.unwrap();
        let first = timeout(SOON, transport.receive()).await.unwrap().unwrap().unwrap();
        let copy = first.delivery.message().clone();
        transport.settle(first.receipt, Settlement::Reschedule { wait, copy }).await.expect("rescheduled");
        let again = timeout(SOON, transport.receive()).await.unwrap().unwrap().unwrap();
        assert_eq!(again.delivery.message().body(), "over TLS");
        transport.settle(again.receipt, Settlement::Complete).await.expect("completed");
        transport.close().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_broker_whose_certificate_nobody_vouches_for_is_refused() {
        let secured = Secured::start();
        let error =
            timeout(SOON, RabbitMq::connect(&secured.url(), "tls-orders")).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), TransportErrorKind::Unreachable);
        let said = error.to_string();
        assert!(said.contains("certificate"), "{said}");
        assert!(!said.contains("very-secret"), "{said}");
    }

    /// A node that speaks TLS, with a certificate for `localhost` from an authority of its own.
    struct Secured {
        node: Node,
        port: u16,
        ca: String,
        files: PathBuf,
    }

    impl Secured {
        fn start() -> Self {
            let mut authority = CertificateParams::new(Vec::new()).unwrap();
            authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
            let key = KeyPair::generate().unwrap();
            let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            let certificate = server.signed_by(&key, &authority).unwrap();

            let files = std::env::temp_dir().join(format!("redrive-tls-{:016x}", fastrand::u64(..)));
            std::fs::create_dir(&files).unwrap();
            let file = |name: &str, pem: &str| write(&files.join(name), pem);
            let ca = file("ca.pem", &authority.pem());
            let certificate = file("server.pem", &certificate.pem());
            let key = file("server.key", &key.serialize_pem());
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let config = [
                format!("listeners.ssl.1 = 127.0.0.1:{port}"),
                format!("ssl_options.cacertfile = {ca}"),
                format!("ssl_options.certfile = {certificate}"),
                format!("ssl_options.keyfile = {key}"),
                "ssl_options.verify = verify_none".to_owned(),
                "ssl_options.fail_if_no_peer_cert = false".to_owned(),
            ];
            let node = own_node_with(Version::V3_10, &config.each_ref().map(String::as_str));
            node.ctl(&["add_user", "app", "very-secret"]).unwrap();
            node.ctl(&["set_permissions", "app", ".*", ".*", ".*"]).unwrap();
            Self { node, port, ca: authority.pem(), files }
        }

        fn url(&self) -> String {
            format!("amqps://app:very-secret@localhost:{}/%2f", self.port)
        }
    }

    impl Drop for Secured {
        fn drop(&mut self) {
            let _ = self.node.kill();
            let _ = std::fs::remove_dir_all(&self.files);
        }
    }

    fn write(path: &Path, pem: &str) -> String {
        std::fs::File::create(path).unwrap().write_all(pem.as_bytes()).unwrap();
        path.display().to_string()
    }
}
