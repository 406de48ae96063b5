//! Splits the URL of a broker or of its management API, strictly: a text of which one cannot tell what is the password is
//! refused, so that no part of it is taken for a host, and shown.

use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;

/// The parts of a URL, decoded where they may be encoded.
#[cfg_attr(
    not(feature = "management"),
    allow(dead_code, reason = "the URL of a broker has another parser behind this one")
)]
pub(crate) struct BrokerUrl<'a> {
    /// The whole URL, without blanks and quotes around it.
    pub(crate) text: &'a str,
    /// In lower case.
    pub(crate) scheme: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    /// A name or an address; that of IPv6 without its brackets.
    pub(crate) host: &'a str,
    pub(crate) port: Option<u16>,
    /// The path, still encoded; empty, or with its first slash.
    pub(crate) path: &'a str,
}

impl<'a> BrokerUrl<'a> {
    /// Splits a URL. The error says what is wrong, and repeats no part of the text.
    pub(crate) fn split(text: &'a str) -> Result<Self, &'static str> {
        let text = unquoted(text)?;
        if text.contains(char::is_control) {
            return Err("it contains a line break or another control character");
        }
        let (scheme, rest) = text.split_once("://").ok_or("it has no scheme")?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if rest.contains('@') {
            return Err(
                "an `@` follows a `/`, `?` or `#`: within a password write them as %2F, %3F, %23, and an `@` as %40; \
                        in the name of a virtual host write it as %40",
            );
        }
        if rest.contains('#') {
            return Err("it contains a `#`: write it as %23");
        }
        let (userinfo, host) = match authority.rsplit_once('@') {
            Some((userinfo, host)) => (Some(userinfo), host),
            None => (None, authority),
        };
        let (host, port) = host_and_port(host)?;
        let (user, password) = match userinfo.map(|userinfo| userinfo.split_once(':').ok_or(userinfo)) {
            None => (None, None),
            Some(Ok((user, password))) => (Some(decoded(user)?), Some(decoded(password)?)),
            Some(Err(user)) => (Some(decoded(user)?), None),
        };
        // Users are shown. With a colon in it, this may be a user and a password that were encoded as one.
        if user
            .as_ref()
            .is_some_and(|user| user.contains(|letter: char| letter == ':' || letter.is_control()))
        {
            return Err("the name of its user contains a colon or a control character");
        }
        let path = rest.split('?').next().unwrap_or_default();
        Ok(Self { text, scheme: scheme.to_ascii_lowercase(), user, password, host, port, path })
    }

    /// Returns the host as URLs have it.
    #[cfg(feature = "management")]
    pub(crate) fn host_in_url(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.to_owned() }
    }
}

/// Removes blanks around a text, and the quotes that it has in a file of variables.
pub(crate) fn unquoted(text: &str) -> Result<&str, &'static str> {
    let text = text.trim_start_matches('\u{feff}').trim();
    for quote in ['"', '\''] {
        match (text.strip_prefix(quote), text.strip_suffix(quote)) {
            (Some(rest), Some(_)) if text.len() > 1 => return Ok(rest[..rest.len() - 1].trim()),
            (None, None) => {}
            _ => return Err("it has a quote at one end only"),
        }
    }
    Ok(text)
}

fn host_and_port(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(NO_HOST)?;
            host.parse::<Ipv6Addr>().map_err(|_| NO_HOST)?;
            (host, if port.is_empty() { port } else { port.strip_prefix(':').ok_or(NO_PORT)? })
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            let is_of_a_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_');
            if host.is_empty() || !host.chars().all(is_of_a_name) {
                return Err(NO_HOST);
            }
            (host, port)
        }
    };
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    match port {
        "" => Ok((host, None)),
        port if digits => port.parse().map(|port| (host, Some(port))).map_err(|_| NO_PORT),
        _ => Err(NO_PORT),
    }
}

const NO_HOST: &str = "it has no host, or one that is neither a name nor an address";
const NO_PORT: &str =
    "its port is no number up to 65535; in a password write a `/` as %2F, a `?` as %3F, a `#` as %23";

fn decoded(text: &str) -> Result<String, &'static str> {
    let text = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| "its user or password is no UTF-8 when decoded")?;
    Ok(text.into_owned())
}
