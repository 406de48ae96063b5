//! Decides which HTTP requests are let in: a browser on this machine sends what any web page asks it to. Pure.

/// The names by which HTTP clients may address the emulator, beside addresses and `localhost`. Another name may be one that an
/// attacker made to point here, so that a page of that name can read the responses.
#[derive(Debug, Clone, Default)]
pub struct Door {
    names: Vec<String>,
}

impl Door {
    /// Lets in these names; each may be followed by a port, which is ignored.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let host = |name: String| host_of(&name).to_ascii_lowercase();
        Self { names: names.into_iter().map(host).filter(|name| !name.is_empty()).collect() }
    }

    /// Checks the headers of a request.
    ///
    /// # Errors
    /// Why it is refused, and what helps.
    pub fn check<'a>(&self, headers: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<(), String> {
        let headers: Vec<_> = headers.collect();
        let values = |wanted: &'static str| {
            headers.iter().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
        };
        let mut hosts = values("host");
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err("refused: a request names its host once, in `Host`".to_owned());
        };
        let host = std::str::from_utf8(host).map_err(|_| "refused: `Host` is no text".to_owned())?;
        if !self.is_known(host) {
            return Err(
                "refused: the name in `Host` is not the emulator's. Use an address or `localhost`, or start it with `--http-name NAME`"
                    .to_owned(),
            );
        }
        let same_origin = |origin: &[u8]| is_origin_of(origin, host);
        // A browser says so, also where it leaves `Origin` out; `none`: a person typed the address.
        let own_site = |site: &[u8]| matches!(site, b"same-origin" | b"none");
        if values("origin").all(same_origin) && values("sec-fetch-site").all(own_site) {
            Ok(())
        } else {
            Err("refused: the request comes from a page of another site".to_owned())
        }
    }

    fn is_known(&self, host: &str) -> bool {
        let name = host_of(host).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        name == "localhost"
            || name.ends_with(".localhost")
            || address.parse::<std::net::IpAddr>().is_ok()
            || self.names.contains(&name)
    }
}

/// Returns the host without its port.
fn host_of(text: &str) -> &str {
    match text.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => text,
    }
}

/// Returns true if an `Origin` is a page of this host and port.
fn is_origin_of(origin: &[u8], host: &str) -> bool {
    let rest = origin.strip_prefix(b"http://").or_else(|| origin.strip_prefix(b"https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(names: &[&str], headers: &[(&str, &str)]) -> Result<(), String> {
        let door = Door::new(names.iter().map(|name| (*name).to_owned()));
        door.check(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    #[test]
    fn only_its_own_names_are_let_in() {
        for host in [
            "127.0.0.1:15672",
            "LocalHost:1",
            "localhost",
            "[::1]:15672",
            "[::1]",
            "a.localhost:1",
            "10.0.0.7",
        ] {
            assert_eq!(check(&[], &[("Host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:15672",
            "localhost.evil.example",
            "127.0.0.1.evil.example:1",
            "x",
            "",
            "rabbitmq:1",
        ] {
            assert!(check(&[], &[("host", host)]).is_err(), "{host}");
        }
        assert_eq!(check(&["rabbitmq:15672"], &[("host", "RabbitMQ:80")]), Ok(()));
        assert!(check(&["", ":5"], &[("host", "")]).is_err());
        assert!(check(&[], &[]).is_err(), "no host");
        assert!(check(&[], &[("host", "localhost"), ("host", "localhost")]).is_err(), "two");
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let from = |name, value| check(&[], &[("host", "localhost:15672"), (name, value)]);
        for origin in [
            "http://evil.example",
            "http://localhost:3000",
            "null",
            "",
            "http://localhost",
            "file://localhost:15672",
        ] {
            assert!(from("origin", origin).is_err(), "{origin}");
        }
        for site in ["cross-site", "same-site", ""] {
            assert!(from("sec-fetch-site", site).is_err(), "{site}");
        }
        for (name, value) in [
            ("origin", "http://localhost:15672"),
            ("Origin", "https://LOCALHOST:15672"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(from(name, value), Ok(()), "{name}: {value}");
        }
        let both =
            [("host", "localhost:1"), ("origin", "http://localhost:1"), ("sec-fetch-site", "cross-site")];
        assert!(check(&[], &both).is_err(), "both agree, or it is refused");
    }
}
