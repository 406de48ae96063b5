//! The address of a namespace, read from a connection string.

use std::fmt;

use redrive_core::{TransportError, TransportErrorKind};

use crate::auth::Credential;
use crate::error::{Refusal, WireError};
use crate::options::{ConnectionOptions, TransportType};

/// The environment variable that [`ServiceBus::connect_from_env`](crate::ServiceBus::connect_from_env) reads.
pub(crate) const CONNECTION_STRING_VARIABLE: &str = "REDRIVE_SERVICEBUS_CONNECTION_STRING";

/// The host, protocol and credentials of a namespace. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The host, without the port.
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    pub(crate) credential: Credential,
    /// The entity that the key is for, if it is for one entity only.
    pub(crate) entity_path: Option<String>,
    /// True for `UseDevelopmentEmulator=true`: no TLS, on any port.
    pub(crate) development_emulator: bool,
    pub(crate) transport: TransportType,
    /// Certificates (PEM) to trust besides those of the system.
    pub(crate) ca_certificates: Option<String>,
}

impl Address {
    /// Reads a connection string as the Azure portal shows it, and as files of variables have it: in quotes.
    pub(crate) fn parse(text: &str) -> Result<Self, TransportError> {
        let text = unquoted(text.trim_start_matches('\u{feff}'))?;
        let mut parts = Parts::default();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| malformed("a part of it has no `=`"))?;
            parts.set(name.trim(), value.trim())?;
        }
        parts.finish()
    }

    /// Reads the connection string in the environment.
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

    /// Creates the address of a namespace from its host name, such as `shop.servicebus.windows.net`, and an identity. TLS is
    /// always used.
    #[cfg(feature = "entra")]
    pub(crate) fn of_identity(
        namespace: &str,
        credential: std::sync::Arc<dyn azure_core::credentials::TokenCredential>,
    ) -> Result<Self, TransportError> {
        let refused = |what: &str| {
            // It may hold a secret, and is not shown.
            let text =
                format!("this is not a namespace: {what}; it looks like `NAMESPACE.servicebus.windows.net`");
            TransportError::new(TransportErrorKind::Other, text)
        };
        // A connection string is not repeated in the error, because it contains a key.
        if namespace.contains(['=', ';']) {
            let text = "a connection string is not a namespace: pass the host name, as `NAMESPACE.servicebus.windows.net`, \
                        or pass the connection string to `Options::connect`";
            return Err(TransportError::new(TransportErrorKind::Other, text));
        }
        let host = match namespace.split_once("://") {
            Some((scheme, host)) if scheme.eq_ignore_ascii_case("sb") => host,
            Some(_) => return Err(refused("it has a scheme")),
            None => namespace,
        };
        let (host, port) = authority(host).map_err(refused)?;
        Ok(Self {
            host,
            port,
            credential: Credential::Entra(credential),
            entity_path: None,
            development_emulator: false,
            transport: TransportType::default(),
            ca_certificates: None,
        })
    }

    /// Applies the options of the connection.
    pub(crate) fn with_options(mut self, options: &ConnectionOptions) -> Self {
        self.transport = options.transport.unwrap_or(self.transport);
        self.ca_certificates.clone_from(&options.ca_certificates);
        self
    }

    /// Returns the error for a host that cannot be reached.
    pub(crate) fn unreachable(&self, why: &dyn fmt::Display) -> WireError {
        let (host, port) = self.target();
        WireError::interrupted(format!("no connection to {host}:{port}: {why}"))
    }

    /// Returns the error for a host that does not speak TLS.
    pub(crate) fn without_tls(&self, why: &dyn fmt::Display) -> WireError {
        let (host, port) = self.target();
        WireError::new(Refusal::NoTls, format!("{host}:{port} does not speak TLS: {why}"))
    }

    /// Returns the host and port to connect to.
    pub(crate) fn target(&self) -> (&str, u16) {
        let usual = match (self.transport, self.development_emulator) {
            (TransportType::AmqpTcp, false) => 5671,
            (TransportType::AmqpTcp, true) => 5672,
            #[cfg(feature = "websockets")]
            (TransportType::AmqpWebSockets, false) => 443,
            #[cfg(feature = "websockets")]
            (TransportType::AmqpWebSockets, true) => 80,
        };
        (&self.host, self.port.unwrap_or(usual))
    }
}

/// The parts of a connection string, before it is known to be complete.
#[derive(Default)]
struct Parts {
    endpoint: Option<(String, Option<u16>)>,
    key_name: Option<String>,
    key: Option<String>,
    token: Option<String>,
    entity_path: Option<String>,
    development_emulator: bool,
    transport: TransportType,
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
            "transporttype" => self.transport = transport(value)?,
            // A line of a file of variables.
            _ if begins(value.trim_start_matches(['"', '\'']), "endpoint=") => {
                return Err(malformed(
                    "a name stands before its `Endpoint`: pass only what follows the first `=`",
                ));
            }
            // Other clients have parts that this one does not use.
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Address, TransportError> {
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
        Ok(Address {
            host,
            port,
            credential,
            entity_path: self.entity_path,
            development_emulator: self.development_emulator,
            transport: self.transport,
            ca_certificates: None,
        })
    }
}

/// Reads `sb://host[:port][/]`, in any case, also without the scheme.
fn endpoint(text: &str) -> Result<(String, Option<u16>), TransportError> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("sb", text));
    if !["sb", "amqps", "amqp"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return Err(malformed("its `Endpoint` does not begin with `sb://`"));
    }
    let (host, port) =
        authority(rest).map_err(|what| malformed(&format!("its `Endpoint` does not name a host: {what}")))?;
    if port == Some(ADMINISTRATION_PORT) {
        return Err(malformed(
            "its `Endpoint` names port 5300, where Microsoft's emulator is administered; messages go to port 5672, or to the port \
             that the emulator was given for AMQP",
        ));
    }
    Ok((host, port))
}

/// The port of the administration of Microsoft's emulator, for which its documentation has a connection string too.
const ADMINISTRATION_PORT: u16 = 5300;

/// Reads `host[:port][/]`. What is no host is not shown: it may be a part of a secret.
fn authority(text: &str) -> Result<(String, Option<u16>), &'static str> {
    let authority = text.split('/').next().unwrap_or_default();
    // An IPv6 address is written in brackets and contains colons.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let refused = if is_number { "its port is beyond 65535" } else { "its port is not a number" };
            let port = port.parse().map_err(|_| refused)?;
            (host, Some(port))
        }
        _ => (authority, None),
    };
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        address.parse::<std::net::Ipv6Addr>().map_err(|_| "it is no address")?;
        return Ok((address.to_owned(), port));
    }
    let is_of_a_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_');
    if host.is_empty() || !host.chars().all(is_of_a_name) {
        return Err("it is empty, or contains characters that no host has");
    }
    Ok((host.to_owned(), port))
}

/// Removes blanks around a text, and its quotes.
fn unquoted(text: &str) -> Result<&str, TransportError> {
    let text = text.trim();
    for quote in ['"', '\''] {
        match (text.strip_prefix(quote), text.strip_suffix(quote)) {
            (Some(rest), Some(_)) if text.len() > 1 => return Ok(rest[..rest.len() - 1].trim()),
            (None, None) => {}
            _ => return Err(malformed("it has a quote at one end only")),
        }
    }
    Ok(text)
}

fn begins(text: &str, beginning: &str) -> bool {
    text.get(..beginning.len()).is_some_and(|text| text.eq_ignore_ascii_case(beginning))
}

/// Reads the transport type, by the names of Microsoft's older and newer clients.
fn transport(text: &str) -> Result<TransportType, TransportError> {
    match text.to_ascii_lowercase().as_str() {
        "amqp" | "amqptcp" => Ok(TransportType::AmqpTcp),
        #[cfg(feature = "websockets")]
        "amqpwebsockets" => Ok(TransportType::AmqpWebSockets),
        #[cfg(not(feature = "websockets"))]
        "amqpwebsockets" => Err(malformed(
            "it has `TransportType=AmqpWebSockets`, and redrive-servicebus was built without the feature `websockets`",
        )),
        _ => Err(malformed("its `TransportType` is neither `AmqpTcp` nor `AmqpWebSockets`")),
    }
}

/// Returns the error for a malformed connection string. It never shows the string, which contains a key.
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
#[path = "address_tests.rs"]
mod tests;
