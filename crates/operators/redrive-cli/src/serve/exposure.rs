//! Where the page may be reached, and by which names. Pure.

use std::net::SocketAddr;

use anyhow::Result;

use crate::exit::usage;

/// By which names the page is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exposure {
    /// `host:port` as a browser sends it in `Host`.
    hosts: Vec<String>,
    /// The path before every path; empty or `/…` without a slash at the end.
    pub(crate) base: String,
    /// The name of its cookie, which the port of a host is no part of: two pages of one host would share it.
    pub(crate) cookie: String,
    /// True if browsers reach it by TLS.
    pub(crate) is_tls: bool,
    /// The address that is printed.
    pub(crate) url: String,
}

impl Exposure {
    /// Decides by which names the page is reached.
    ///
    /// # Errors
    ///
    /// If passwords and sessions could be read on the way: beyond this machine there must be TLS, here or in front.
    pub(crate) fn new(
        listen: SocketAddr,
        public_url: Option<&str>,
        has_certificate: bool,
        behind_proxy: bool,
    ) -> Result<Self> {
        let is_local = listen.ip().is_loopback();
        if !is_local && !has_certificate && !behind_proxy {
            return Err(usage(format!(
                "{listen} can be reached from elsewhere: pass --tls-cert and --tls-key, or --behind-proxy if a proxy in front does TLS"
            )));
        }
        let port = listen.port();
        let cookie = format!("redrive-{port}");
        let mut hosts = Vec::new();
        if is_local {
            hosts.extend([format!("127.0.0.1:{port}"), format!("localhost:{port}"), format!("[::1]:{port}")]);
        }
        let Some(public) = public_url else {
            if !is_local {
                return Err(usage(
                    "pass --public-url https://HOST[:PORT][/PATH]: the name by which browsers reach the page",
                ));
            }
            let scheme = if has_certificate { "https" } else { "http" };
            let url = format!("{scheme}://{listen}");
            return Ok(Self { hosts, base: String::new(), cookie, is_tls: has_certificate, url });
        };
        let Some(rest) = public.strip_prefix("https://") else {
            return Err(usage("--public-url must begin with https://"));
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || host.contains(['@', '?', '#']) || path.contains(['?', '#', '{', '}', '*']) {
            // It may hold a password, and is not shown.
            return Err(usage("--public-url: https://HOST[:PORT][/PATH] is expected, without a user"));
        }
        hosts.push(host.to_ascii_lowercase());
        let path = path.trim_matches('/');
        let base = if path.is_empty() { String::new() } else { format!("/{path}") };
        let url = format!("https://{host}{base}");
        Ok(Self { hosts, base, cookie, is_tls: true, url })
    }

    /// Returns true if a request to this `Host` is for this page: another name may be one that an attacker points here.
    pub(crate) fn is_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.hosts.contains(&host)
    }

    /// Returns true if a request with this `Origin` comes from the page itself.
    pub(crate) fn is_origin(&self, origin: &str) -> bool {
        let host = origin.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https"));
        host.is_some_and(|(scheme, host)| (scheme == "https" || !self.is_tls) && self.is_host(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exposure(listen: &str, public: Option<&str>, tls: bool, proxy: bool) -> Result<Exposure> {
        Exposure::new(listen.parse().unwrap(), public, tls, proxy)
    }

    #[test]
    fn beyond_this_machine_there_is_tls() {
        assert!(exposure("0.0.0.0:80", None, false, false).is_err());
        assert!(exposure("0.0.0.0:80", Some("https://ops.example"), false, false).is_err());
        assert!(exposure("0.0.0.0:443", None, true, false).is_err(), "nobody knows its name");
        assert!(exposure("10.0.0.1:80", Some("http://ops.example"), false, true).is_err());
        assert!(exposure("0.0.0.0:443", Some("https://ops.example"), true, false).is_ok());
        assert!(exposure("127.0.0.1:7420", None, false, false).is_ok());
    }

    #[test]
    fn only_its_own_names_are_it() {
        let local = exposure("127.0.0.1:7420", None, false, false).unwrap();
        for host in ["127.0.0.1:7420", "LOCALHOST:7420", "[::1]:7420"] {
            assert!(local.is_host(host) && local.is_origin(&format!("http://{host}")), "{host}");
        }
        for host in ["127.0.0.1", "127.0.0.1:80", "evil.example:7420", "127.0.0.1:7420.evil.example", ""] {
            assert!(!local.is_host(host) && !local.is_origin(&format!("http://{host}")), "{host}");
        }
        assert!(!local.is_origin("null") && !local.is_origin("file://localhost:7420"));
    }

    #[test]
    fn two_on_one_host_have_two_cookies() {
        let cookie = |listen| exposure(listen, None, false, false).unwrap().cookie;
        assert_ne!(cookie("127.0.0.1:7420"), cookie("127.0.0.1:7421"));
    }

    #[test]
    fn behind_a_proxy_it_has_the_name_and_the_path_of_the_proxy() {
        let proxied =
            exposure("10.0.0.1:7420", Some("https://ops.example:8443/dead/letters/"), false, true).unwrap();
        assert_eq!((&*proxied.base, proxied.is_tls), ("/dead/letters", true));
        assert!(proxied.is_host("ops.example:8443") && !proxied.is_host("10.0.0.1:7420"));
        assert!(proxied.is_origin("https://ops.example:8443"));
        assert!(!proxied.is_origin("http://ops.example:8443"), "not by TLS");
    }
}
