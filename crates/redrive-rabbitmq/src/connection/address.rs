//! The broker's address: parses the URL, finds the credentials, and never shows the password.

use std::fmt;

use lapin::uri::{AMQPScheme, AMQPUri};
use redrive_core::{TransportError, TransportErrorKind};

/// Name of the variable with the URL, for [`RabbitMq::connect_from_env`](crate::RabbitMq::connect_from_env).
pub(crate) const URL_VARIABLE: &str = "REDRIVE_AMQP_URL";
const USER_VARIABLE: &str = "REDRIVE_AMQP_USER";
const PASSWORD_VARIABLE: &str = "REDRIVE_AMQP_PASSWORD";

/// Address of one node and the credentials for it. `Debug` leaves the password out.
#[derive(Clone)]
pub(crate) struct Address {
    uri: AMQPUri,
}

impl Address {
    /// Parses a URL. If it names no user, user and password come from the environment. Default: `guest`.
    pub(crate) fn parse(
        url: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TransportError> {
        // Never quotes the parser's error: it contains the URL, and with it the password.
        let mut uri: AMQPUri = url.trim().parse().map_err(|_| malformed())?;
        let authority = authority(url).ok_or_else(malformed)?;
        if !authority.contains('@') {
            if let Some(user) = variable(USER_VARIABLE) {
                uri.authority.userinfo.username = user;
            }
            if let Some(password) = variable(PASSWORD_VARIABLE) {
                uri.authority.userinfo.password = password;
            }
        }
        // The parser reads an IPv6 address as an empty host, and would connect to this machine.
        let host = authority.rsplit('@').next().unwrap_or_default();
        if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            address.clone_into(&mut uri.authority.host);
        } else if host.is_empty() || host.starts_with(':') {
            return Err(malformed());
        }
        // Strictly, the empty path means the virtual host with the empty name, which nobody uses.
        if uri.vhost.is_empty() {
            uri.vhost = "/".to_owned();
        }
        Ok(Self { uri })
    }

    pub(crate) fn uri(&self) -> &AMQPUri {
        &self.uri
    }

    pub(crate) fn uri_mut(&mut self) -> &mut AMQPUri {
        &mut self.uri
    }

    pub(crate) fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    /// Returns the address without the credentials.
    pub(crate) fn shown(&self) -> String {
        let AMQPUri { scheme, authority, vhost, .. } = &self.uri;
        let host = if authority.host.contains(':') {
            format!("[{}]", authority.host)
        } else {
            authority.host.clone()
        };
        let vhost = if vhost == "/" { String::new() } else { format!("/{vhost}") };
        format!("{scheme}://{host}:{}{vhost}", authority.port)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", self.shown(), self.user())
    }
}

/// Addresses of the nodes of a cluster, tried in order.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Vec<Address>);

impl Addresses {
    /// Parses URLs. Each item may hold several, separated by commas.
    pub(crate) fn parse<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TransportError> {
        let each = urls.into_iter().flat_map(split);
        let addresses: Vec<_> = each.map(|url| Address::parse(url, &variable)).collect::<Result<_, _>>()?;
        if addresses.is_empty() { Err(malformed()) } else { Ok(Self(addresses)) }
    }

    pub(crate) fn shuffle(&mut self) {
        fastrand::shuffle(&mut self.0);
    }

    pub(crate) fn as_slice(&self) -> &[Address] {
        &self.0
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Address] {
        &mut self.0
    }
}

impl From<Address> for Addresses {
    fn from(address: Address) -> Self {
        Self(vec![address])
    }
}

/// Splits only at a comma before a scheme: a password may contain a comma too.
fn split(urls: &str) -> Vec<&str> {
    let begins_url = |&(at, _): &(usize, &str)| {
        let rest = urls[at + 1..].trim_start();
        rest.starts_with("amqp://") || rest.starts_with("amqps://")
    };
    let commas = urls.match_indices(',').filter(begins_url).map(|(at, _)| at);
    let ends: Vec<_> = commas.chain([urls.len()]).collect();
    let begins = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
    begins.zip(&ends).map(|(begin, &end)| &urls[begin..end]).collect()
}

/// Reads the URL from the environment.
pub(crate) fn url_from_env() -> Result<String, TransportError> {
    std::env::var(URL_VARIABLE).map_err(|_| {
        let message =
            format!("{URL_VARIABLE} is not set: it says where RabbitMQ is, as amqp://host:5672/vhost");
        TransportError::new(TransportErrorKind::Unsupported, message)
    })
}

fn authority(url: &str) -> Option<&str> {
    let rest = url.trim().split_once("://")?.1;
    Some(rest.split(['/', '?', '#']).next().unwrap_or(rest))
}

fn malformed() -> TransportError {
    let message = "the address of RabbitMQ is no AMQP URL: it must read amqp://user:password@host:port/vhost, or \
                   amqps:// for TLS, with special characters percent-encoded (the address is not shown here, because \
                   it may hold a password)";
    TransportError::new(TransportErrorKind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, TransportError> {
        Address::parse(url, |_| None)
    }

    #[test]
    fn the_password_is_in_nothing_that_is_shown() {
        let address = parse("amqps://alice:s3cr%40t@broker.example:5671/prod?heartbeat=5").unwrap();
        assert_eq!(address.uri().authority.userinfo.password, "s3cr@t");
        assert_eq!(address.shown(), "amqps://broker.example:5671/prod");
        assert_eq!(format!("{address:?}"), "amqps://broker.example:5671/prod as alice");
        assert!(address.is_encrypted());
    }

    #[test]
    fn an_address_that_is_none_is_not_repeated() {
        for url in [
            "alice:s3cret@host",
            "http://alice:s3cret@host/",
            "amqp://alice:s3cret@host:99999/",
            "amqp:s3cret",
            "amqp://alice:s3cret@",
            "amqp://alice:s3cret@host/?heartbeat=s3cret",
            "",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{url}: {error:?}");
        }
    }

    #[test]
    fn several_addresses_have_commas_between_them() {
        let shown = |urls: &[&str]| {
            let addresses = Addresses::parse(urls.iter().copied(), |_| None).unwrap();
            addresses.as_slice().iter().map(Address::shown).collect::<Vec<_>>()
        };
        assert_eq!(shown(&["amqp://a"]), ["amqp://a:5672"]);
        assert_eq!(
            shown(&["amqp://u:p,amqp@a/v, amqps://b,amqp://c:1", "amqp://d"]),
            ["amqp://a:5672/v", "amqps://b:5671", "amqp://c:1", "amqp://d:5672"]
        );
        assert!(Addresses::parse([], |_| None).is_err());
        assert!(Addresses::parse(["amqp://a,", "b"], |_| None).is_err());
    }

    #[test]
    fn credentials_come_from_the_url_and_then_from_the_environment() {
        let environment = |name: &str| match name {
            USER_VARIABLE => Some("bob".to_owned()),
            PASSWORD_VARIABLE => Some("hidden".to_owned()),
            _ => None,
        };
        let userinfo = |url| Address::parse(url, environment).unwrap().uri().authority.userinfo.clone();
        assert_eq!(userinfo("amqp://host/").username, "bob");
        assert_eq!(userinfo("amqp://host/").password, "hidden");
        assert_eq!(userinfo("amqp://alice:mine@host/").username, "alice");
        assert_eq!(parse("amqp://host").unwrap().user(), "guest");
    }

    #[test]
    fn hosts_and_virtual_hosts() {
        assert_eq!(parse("amqp://[::1]:5673/").unwrap().uri().authority.host, "::1");
        assert_eq!(parse("amqp://[::1]:5673/").unwrap().shown(), "amqp://[::1]:5673");
        assert_eq!(parse("amqp://127.0.0.1/").unwrap().uri().authority.host, "127.0.0.1");
        for (url, vhost) in
            [("amqp://h", "/"), ("amqp://h/", "/"), ("amqp://h/%2f", "/"), ("amqp://h/a", "a")]
        {
            assert_eq!(parse(url).unwrap().uri().vhost, vhost, "{url}");
        }
    }
}
