//! Where the namespace is, and who asks: the connection string.

use std::fmt;

use redrive_core::{TransportError, TransportErrorKind};

/// The environment variable that [`ServiceBus::connect_from_env`](crate::ServiceBus::connect_from_env) reads.
pub(crate) const CONNECTION_STRING_VARIABLE: &str = "REDRIVE_SERVICEBUS_CONNECTION_STRING";

/// A connection string, parsed. Its `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ConnectionString {
    /// The host, without port.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) credential: Credential,
    /// The entity that the key is for, where it is for one only.
    pub(crate) entity_path: Option<String>,
    /// Without TLS, and on any port: `UseDevelopmentEmulator=true`.
    pub(crate) development_emulator: bool,
}

/// What stands for the right to use the namespace.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A shared access key: tokens are signed with it.
    Key {
        /// `SharedAccessKeyName`.
        name: String,
        /// `SharedAccessKey`.
        key: String,
    },
    /// A token that somebody else signed: `SharedAccessSignature`. It cannot be renewed here.
    Token(String),
}

impl ConnectionString {
    /// Reads a connection string as the Azure portal shows it.
    pub(crate) fn parse(text: &str) -> Result<Self, TransportError> {
        let mut parts = Parts::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| malformed("a part of it has no `=`"))?;
            parts.set(name.trim(), value.trim())?;
        }
        parts.finish()
    }

    /// The connection string in the environment.
    pub(crate) fn from_env() -> Result<Self, TransportError> {
        match std::env::var(CONNECTION_STRING_VARIABLE) {
            Ok(text) => Self::parse(&text),
            Err(_) => Err(TransportError::new(
                TransportErrorKind::Other,
                format!(
                    "the environment variable `{CONNECTION_STRING_VARIABLE}` is not set: set it to the connection string \
                     of the namespace (Azure portal, Shared access policies)"
                ),
            )),
        }
    }

    /// The host and port to connect to.
    pub(crate) fn target(&self) -> (&str, u16) {
        let usual = if self.development_emulator { 5672 } else { 5671 };
        (&self.host, self.port.unwrap_or(usual))
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionString")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("entity_path", &self.entity_path)
            .field("development_emulator", &self.development_emulator)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { name, .. } => f.debug_struct("Key").field("name", name).finish_non_exhaustive(),
            Self::Token(_) => f.write_str("Token(..)"),
        }
    }
}

/// The parts of a connection string, before they are known to be whole.
#[derive(Default)]
struct Parts {
    endpoint: Option<(String, Option<u16>)>,
    key_name: Option<String>,
    key: Option<String>,
    token: Option<String>,
    entity_path: Option<String>,
    development_emulator: bool,
}

impl Parts {
    fn set(&mut self, name: &str, value: &str) -> Result<(), TransportError> {
        let text = || Some(value.to_owned()).filter(|value| !value.is_empty());
        match name.to_ascii_lowercase().as_str() {
            "endpoint" => self.endpoint = Some(endpoint(value)?),
            "sharedaccesskeyname" => self.key_name = text(),
            "sharedaccesskey" => self.key = text(),
            "sharedaccesssignature" => self.token = text(),
            "entitypath" => self.entity_path = text(),
            "usedevelopmentemulator" => self.development_emulator = value.eq_ignore_ascii_case("true"),
            // Other clients write parts of their own.
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<ConnectionString, TransportError> {
        let (host, port) = self.endpoint.ok_or_else(|| malformed("it has no `Endpoint`"))?;
        let credential = match (self.token, self.key_name, self.key) {
            (Some(_), _, Some(_)) => {
                return Err(malformed("it has both a `SharedAccessKey` and a `SharedAccessSignature`"));
            }
            (Some(token), ..) => Credential::Token(token),
            (None, Some(name), Some(key)) => Credential::Key { name, key },
            (None, None, _) => return Err(malformed("it has no `SharedAccessKeyName`")),
            (None, Some(_), None) => return Err(malformed("it has no `SharedAccessKey`")),
        };
        Ok(ConnectionString {
            host,
            port,
            credential,
            entity_path: self.entity_path,
            development_emulator: self.development_emulator,
        })
    }
}

/// `sb://host[:port][/]`
fn endpoint(text: &str) -> Result<(String, Option<u16>), TransportError> {
    let rest = ["sb://", "amqps://", "amqp://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .ok_or_else(|| malformed("its `Endpoint` does not begin with `sb://`"))?;
    let authority = rest.split('/').next().unwrap_or_default();
    // An IPv6 address stands in brackets, and has colons of its own.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let port = port.parse().map_err(|_| malformed("the port of its `Endpoint` is no number"))?;
            (host, Some(port))
        }
        _ => (authority, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(malformed("its `Endpoint` names no host"));
    }
    Ok((host.to_owned(), port))
}

/// Never shows the text: it has a key in it.
fn malformed(what: &str) -> TransportError {
    TransportError::new(
        TransportErrorKind::Other,
        format!(
            "the Service Bus connection string cannot be read: {what}; it looks like \
             `Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PORTAL: &str =
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0+/=";

    #[test]
    fn what_the_portal_shows_is_read() {
        let parsed = ConnectionString::parse(PORTAL).expect("it is well-formed");
        assert_eq!(parsed.target(), ("shop.servicebus.windows.net", 5671));
        assert_eq!(parsed.credential, Credential::Key { name: "Root".into(), key: "c2VjcmV0+/=".into() });
        assert_eq!((parsed.entity_path, parsed.development_emulator), (None, false));
    }

    #[test]
    fn the_emulators_is_read_with_its_port() {
        let text = "Endpoint=sb://localhost:50123;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;";
        let parsed = ConnectionString::parse(text).expect("it is well-formed");
        assert_eq!(parsed.target(), ("localhost", 50123));
        assert!(parsed.development_emulator);
    }

    #[test]
    fn names_of_parts_may_be_written_in_any_case_and_order() {
        let text =
            " entitypath = orders ; SHAREDACCESSSIGNATURE=SharedAccessSignature sr=x&sig=y ;endpoint=sb://h/";
        let parsed = ConnectionString::parse(text).expect("it is well-formed");
        assert_eq!(parsed.entity_path.as_deref(), Some("orders"));
        assert_eq!(parsed.credential, Credential::Token("SharedAccessSignature sr=x&sig=y".into()));
    }

    #[test]
    fn an_ipv6_address_keeps_its_colons() {
        let at = |endpoint: &str| {
            let text = format!("Endpoint={endpoint};SharedAccessKeyName=a;SharedAccessKey=b");
            ConnectionString::parse(&text).map(|parsed| (parsed.host, parsed.port)).ok()
        };
        assert_eq!(at("sb://[::1]:5673/"), Some(("::1".into(), Some(5673))));
        assert_eq!(at("sb://[::1]"), Some(("::1".into(), None)));
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_shown() {
        for (text, named) in [
            ("", "Endpoint"),
            ("hunter2", "`=`"),
            ("Endpoint=https://h/;SharedAccessKeyName=a;SharedAccessKey=hunter2", "sb://"),
            ("Endpoint=sb:///;SharedAccessKeyName=a;SharedAccessKey=hunter2", "host"),
            ("Endpoint=sb://h:many/;SharedAccessKeyName=a;SharedAccessKey=hunter2", "port"),
            ("Endpoint=sb://h;SharedAccessKey=hunter2", "SharedAccessKeyName"),
            ("Endpoint=sb://h;SharedAccessKeyName=hunter2", "no `SharedAccessKey`"),
            ("Endpoint=sb://h;SharedAccessKey=hunter2;SharedAccessSignature=hunter2", "both"),
        ] {
            let error = ConnectionString::parse(text).expect_err("it is malformed").to_string();
            assert!(error.contains(named), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        for text in [PORTAL, "Endpoint=sb://h;SharedAccessSignature=c2VjcmV0+/="] {
            let parsed = ConnectionString::parse(text).expect("it is well-formed");
            assert!(!format!("{parsed:?} {:?}", parsed.credential).contains("c2VjcmV0"));
        }
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(text in ".{0,200}") {
            let _ = ConnectionString::parse(&text);
        }
    }
}
