//! The namespace of the tests, and the queues that they create there.

use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use redrive_brokers::report;
use redrive_core::BoxError;
use redrive_servicebus_emulator::{Emulator, Settings};
use ring::hmac;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const VARIABLE: &str = "REDRIVE_TEST_AZURE_CONNECTION_STRING";
/// The environment variable with the prefix of the queue names.
const PREFIX_VARIABLE: &str = "REDRIVE_TEST_AZURE_PREFIX";

/// The duration of locks. Azure allows 5 s or more; it must be longer than a busy machine needs between two steps.
const LOCK: Duration = Duration::from_secs(10);
/// The duration of locks on the emulator, which releases the messages of a crashed process at once: no test waits until a lock
/// expires.
const LOCK_ON_EMULATOR: Duration = Duration::from_secs(60);

/// The queue of one test, on Azure or on an emulator.
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) namespace: Namespace,
    _emulator: Option<Arc<Emulator>>,
}

/// The host and the key of the namespace.
#[derive(Clone)]
pub(crate) struct Namespace {
    pub(crate) connection_string: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) on_azure: bool,
    key_name: String,
    key: String,
}

/// Returns true if the tests run on Azure. If not, the closing report says so.
pub(crate) fn on_azure() -> bool {
    let there = std::env::var_os(VARIABLE).is_some();
    static SAID: Once = Once::new();
    if !there {
        SAID.call_once(|| {
            report(&format!(
                "NOT RUN: the contract and the open questions on Azure Service Bus itself (set {VARIABLE}; \
                 docs/transports/servicebus.md says what to)"
            ));
        });
    }
    there
}

impl Place {
    /// Creates a queue on Azure if it is configured, and else on an emulator.
    pub(crate) async fn new(what: &str) -> Result<Self, BoxError> {
        Self::made(what, false).await
    }

    /// Creates a queue that requires sessions.
    pub(crate) async fn with_sessions(what: &str) -> Result<Self, BoxError> {
        Self::made(what, true).await
    }

    async fn made(what: &str, sessions: bool) -> Result<Self, BoxError> {
        if on_azure() {
            let namespace = Namespace::parse(&std::env::var(VARIABLE)?)?;
            let prefix = std::env::var(PREFIX_VARIABLE).unwrap_or_else(|_| "redrive-test".to_owned());
            let name = format!("{prefix}-{:08x}-{what}", fastrand::u32(..));
            return Self::on(namespace, name, sessions).await;
        }
        let mut settings = Settings::default();
        settings.lock_duration = LOCK_ON_EMULATOR;
        settings.requires_session = sessions;
        let emulator = Emulator::builder().queue(what, settings).start().await?;
        let namespace = Namespace::parse(&emulator.connection_string())?;
        Ok(Self { name: what.to_owned(), namespace, _emulator: Some(Arc::new(emulator)) })
    }

    /// Creates another queue beside this one, on Azure.
    pub(crate) async fn beside(&self) -> Result<Self, BoxError> {
        let name = format!("{}-beside", self.name);
        Self::on(self.namespace.clone(), name, false).await
    }

    async fn on(namespace: Namespace, name: String, sessions: bool) -> Result<Self, BoxError> {
        namespace.manage(&name, Some(description(sessions))).await?;
        Ok(Self { name, namespace, _emulator: None })
    }

    /// Deletes the queue where it was created.
    pub(crate) async fn end(&self) {
        if self.namespace.on_azure
            && let Err(error) = self.namespace.manage(&self.name, None).await
        {
            report(&format!("left on Azure, delete it by hand: queue {}: {error}", self.name));
        }
    }
}

impl Namespace {
    fn parse(connection_string: &str) -> Result<Self, BoxError> {
        let part = |name: &str| {
            let parts = connection_string.split(';').filter_map(|part| part.split_once('='));
            parts
                .clone()
                .find(|(key, _)| key.trim().eq_ignore_ascii_case(name))
                .map(|(_, value)| value.trim())
        };
        let missing =
            |name: &'static str| move || format!("the connection string in {VARIABLE} has no {name}");
        let endpoint = part("Endpoint").ok_or_else(missing("Endpoint"))?;
        let authority = endpoint.trim_start_matches("sb://").trim_end_matches('/');
        let on_azure = part("UseDevelopmentEmulator") != Some("true");
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, port.parse()?),
            None => (authority, 5671),
        };
        Ok(Self {
            connection_string: connection_string.to_owned(),
            host: host.to_owned(),
            port,
            on_azure,
            key_name: part("SharedAccessKeyName").ok_or_else(missing("SharedAccessKeyName"))?.to_owned(),
            key: part("SharedAccessKey").ok_or_else(missing("SharedAccessKey"))?.to_owned(),
        })
    }

    /// Returns a shared access signature for an entity that is valid for an hour.
    pub(crate) fn token(&self, scheme: &str, entity: &str) -> String {
        let audience = format!("{scheme}://{}/{entity}", self.host);
        let resource = utf8_percent_encode(&audience, NON_ALPHANUMERIC).to_string();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let expiry = now.as_secs() + 3600;
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.as_bytes());
        let signature = STANDARD.encode(hmac::sign(&key, format!("{resource}\n{expiry}").as_bytes()));
        let signature = utf8_percent_encode(&signature, NON_ALPHANUMERIC);
        let key_name = utf8_percent_encode(&self.key_name, NON_ALPHANUMERIC);
        format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={key_name}")
    }

    /// Creates a queue with this description, or deletes it.
    /// <https://learn.microsoft.com/rest/api/servicebus/queues>
    async fn manage(&self, queue: &str, description: Option<String>) -> Result<(), BoxError> {
        let url = format!("https://{}/{queue}?api-version=2021-05", self.host);
        let token = self.token("https", queue);
        tokio::task::spawn_blocking(move || {
            let agent = agent();
            let Some(description) = description else {
                agent.delete(&url).header("authorization", token).call()?;
                return Ok(());
            };
            let put = agent.put(&url).header("authorization", token);
            let put = put.header("content-type", "application/atom+xml;type=entry;charset=utf-8");
            put.send(description)?;
            Ok(())
        })
        .await?
    }
}

fn description(sessions: bool) -> String {
    format!(
        r#"<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><LockDuration>PT{}S</LockDuration><RequiresSession>{sessions}</RequiresSession><MaxDeliveryCount>10</MaxDeliveryCount></QueueDescription></content></entry>"#,
        LOCK.as_secs()
    )
}

fn agent() -> ureq::Agent {
    let system = rustls_native_certs::load_native_certs().certs;
    let trusted: Vec<_> = system.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let config = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(60)));
    config.tls_config(tls).build().new_agent()
}
