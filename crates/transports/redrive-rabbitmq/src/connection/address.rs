//! The broker's address: parses the URL, finds the credentials, and never shows the password.

use std::str::FromStr;
use std::{fmt, mem};

use lapin::uri::{AMQPAuthority, AMQPScheme, AMQPUri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use redrive_core::{TransportError, TransportErrorKind};

use super::url::{BrokerUrl, unquoted};

/// Name of the variable with the URL, for [`RabbitMq::connect_from_env`](crate::RabbitMq::connect_from_env).
pub(crate) const URL_VARIABLE: &str = "REDRIVE_AMQP_URL";
const USER_VARIABLE: &str = "REDRIVE_AMQP_USER";
const PASSWORD_VARIABLE: &str = "REDRIVE_AMQP_PASSWORD";

/// Address of one RabbitMQ node, and the credentials for it. [`FromStr`] reads a URL, as [`Options::connect`] does. Neither
/// `Display`, nor `Debug`, nor an error shows the password, nor any part of a text that cannot be read.
///
/// ```
/// use redrive_rabbitmq::Address;
///
/// let address: Address = "amqps://ops:hunter2@mq.example/shop".parse()?;
/// assert_eq!(address.to_string(), "amqps://mq.example:5671/shop");
/// assert!(address.has_password());
///
/// let error = "amqps://ops:hunter2/x@mq.example".parse::<Address>().unwrap_err();
/// assert!(error.to_string().contains("%2F") && !error.to_string().contains("hunter2"));
/// # Ok::<(), redrive_core::TransportError>(())
/// ```
///
/// [`Options::connect`]: crate::Options::connect
#[derive(Clone)]
pub struct Address {
    uri: AMQPUri,
    has_password: bool,
}

impl Address {
    /// Parses a URL. If it names no user, user and password come from the environment. Default: `guest`.
    pub(crate) fn parse(
        url: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, TransportError> {
        let url = BrokerUrl::split(url).map_err(malformed)?;
        // Never quotes the parser's error: it contains the URL, and with it the password.
        let uri: Result<AMQPUri, _> = url.text.parse();
        let mut uri =
            uri.map_err(|_| malformed("its scheme, its virtual host or a parameter behind `?` is wrong"))?;
        let has_password = url.password.as_ref().is_some_and(|password| !password.is_empty());
        let userinfo = &mut uri.authority.userinfo;
        match url.user {
            None => {
                userinfo.username = variable(USER_VARIABLE).unwrap_or(mem::take(&mut userinfo.username));
                userinfo.password = variable(PASSWORD_VARIABLE).unwrap_or(mem::take(&mut userinfo.password));
            }
            Some(user) => {
                if !user.is_empty() {
                    userinfo.username = user;
                }
                if let Some(password) = url.password {
                    userinfo.password = password;
                }
            }
        }
        // The other parser reads an IPv6 address as an empty host, and would connect to this machine.
        url.host.clone_into(&mut uri.authority.host);
        // Strictly, the empty path means the virtual host with the empty name, which nobody uses.
        if uri.vhost.is_empty() {
            uri.vhost = "/".to_owned();
        }
        Ok(Self { uri, has_password })
    }

    /// Reads one URL, or several with commas between them, as [`Options::connect`](crate::Options::connect) does. The environment
    /// is not asked.
    ///
    /// # Errors
    ///
    /// If one of them is no AMQP URL. The error repeats no part of the text.
    pub fn list(urls: &str) -> Result<Vec<Self>, TransportError> {
        Addresses::parse([urls], |_| None).map(|Addresses(addresses)| addresses)
    }

    pub(crate) fn uri(&self) -> &AMQPUri {
        &self.uri
    }

    pub(crate) fn uri_mut(&mut self) -> &mut AMQPUri {
        &mut self.uri
    }

    /// Returns the user, which is `guest` if the URL names none.
    pub fn user(&self) -> &str {
        &self.uri.authority.userinfo.username
    }

    /// Returns true if the URL contains a password.
    pub fn has_password(&self) -> bool {
        self.has_password
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.uri.scheme == AMQPScheme::AMQPS
    }
}

impl FromStr for Address {
    type Err = TransportError;

    /// Reads `amqp://USER:PASSWORD@HOST:PORT/VHOST`, or `amqps://…`. The environment is not asked.
    fn from_str(url: &str) -> Result<Self, TransportError> {
        Self::parse(url, |_| None)
    }
}

/// Shows scheme, host, port and virtual host.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RESERVED: &AsciiSet = &CONTROLS
            .add(b' ')
            .add(b'#')
            .add(b'%')
            .add(b'/')
            .add(b':')
            .add(b'?')
            .add(b'@')
            .add(b'[')
            .add(b']');
        let AMQPUri { scheme, authority, vhost, .. } = &self.uri;
        let AMQPAuthority { host, port, .. } = authority;
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}")?,
            false => write!(f, "{scheme}://{host}:{port}")?,
        }
        if vhost == "/" { Ok(()) } else { write!(f, "/{}", utf8_percent_encode(vhost, RESERVED)) }
    }
}

/// Shows the same, and the user.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} as {}", self.user())
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
        let mut addresses = Vec::new();
        for list in urls {
            for url in split(unquoted(list).map_err(malformed)?) {
                addresses.push(Address::parse(url, &variable)?);
            }
        }
        if addresses.is_empty() { Err(malformed("it is empty")) } else { Ok(Self(addresses)) }
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
        let scheme = urls[at + 1..].trim_start().split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| ["amqp", "amqps"].iter().any(|known| scheme.eq_ignore_ascii_case(known)))
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

fn malformed(why: &str) -> TransportError {
    let message = format!(
        "the address of RabbitMQ is no AMQP URL: {why}; it must read amqp://user:password@host:port/vhost, or amqps:// for \
         TLS, with special characters percent-encoded (the address is not shown here, because it may hold a password)"
    );
    TransportError::new(TransportErrorKind::Unsupported, message)
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
