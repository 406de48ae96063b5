//! Client of the management API, which shows what a passive declaration cannot.

mod audit;
mod compare;
mod exchange;
mod found;
mod permissions;
mod policies;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use redrive_core::{TransportError, TransportErrorKind};
use serde_json::Value;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::connection::BrokerUrl;

pub(crate) use audit::Finding;
pub(crate) use compare::{Comparison, Preflight, compare};
use exchange::FoundExchange;
use found::Found;
use permissions::Permissions;
use policies::Policies;

/// Time limit of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Size limit of one answer, in bytes. The description of one queue takes a few kilobytes.
const LONGEST_ANSWER: u64 = 4 << 20;

/// Address and user of the management API. `Debug` leaves the password out.
#[derive(Clone)]
pub(crate) struct Management {
    agent: ureq::Agent,
    /// Scheme, host, port and path, without credentials.
    base: String,
    /// User and password from the URL; `None`: those of the AMQP connection.
    login: Option<Login>,
}

#[derive(Clone)]
pub(crate) struct Login {
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Management {
    /// Parses `http://user:password@host:15672`. Trusts the same certificates as the AMQP connection.
    pub(crate) fn at(url: &str, more_certificates: Option<&str>) -> Result<Self, TransportError> {
        let malformed = |why: &str| {
            let message = format!(
                "the URL of the management API cannot be read: {why}; it must be http://user:password@host:15672 or https://… \
                 (it is not shown here, because it may hold a password)"
            );
            TransportError::new(TransportErrorKind::Unsupported, message)
        };
        let url = BrokerUrl::split(url).map_err(malformed)?;
        if !matches!(&*url.scheme, "http" | "https") {
            return Err(malformed("its scheme is neither http nor https"));
        }
        let login = url
            .user
            .as_ref()
            .map(|user| Login { user: user.clone(), password: url.password.clone().unwrap_or_default() });
        let port = url.port.map(|port| format!(":{port}")).unwrap_or_default();
        let base = format!("{}://{}{port}{}", url.scheme, url.host_in_url(), url.path.trim_end_matches('/'));
        Ok(Self { agent: agent(url.scheme == "https", more_certificates)?, base, login })
    }

    /// Describes a queue; `None` when it does not exist. The policies in the answer may be out of date.
    pub(crate) async fn queue(&self, vhost: &str, queue: &str, or: &Login) -> Result<Option<Found>, String> {
        let path = format!("queues/{}/{}", encoded(vhost), encoded(queue));
        Ok(self.answer(&path, or).await?.map(|answer| Found::read(&answer)))
    }

    /// Describes an exchange and its bindings; `None` when it does not exist.
    pub(crate) async fn exchange(
        &self,
        vhost: &str,
        exchange: &str,
        or: &Login,
    ) -> Result<Option<FoundExchange>, String> {
        let path = format!("exchanges/{}/{}", encoded(vhost), encoded(exchange));
        let Some(found) = self.answer(&path, or).await? else { return Ok(None) };
        let bindings = self.answer(&format!("{path}/bindings/source"), or).await?;
        Ok(Some(FoundExchange::read(&found, &bindings.unwrap_or_default())))
    }

    /// Reads the policies of a virtual host. RabbitMQ shows them to users with the tag `policymaker` or `administrator`.
    pub(crate) async fn policies(&self, vhost: &str, or: &Login) -> Result<Policies, String> {
        let users = self.answer(&format!("policies/{}", encoded(vhost)), or).await?;
        let operators = self.answer(&format!("operator-policies/{}", encoded(vhost)), or).await?;
        Ok(Policies::read(&users.unwrap_or_default(), &operators.unwrap_or_default()))
    }

    /// Reads the permissions of a user. RabbitMQ shows them to users with the tag `administrator`.
    async fn permissions(&self, vhost: &str, user: &str, or: &Login) -> Result<Permissions, String> {
        let answer = self.answer(&format!("permissions/{}/{}", encoded(vhost), encoded(user)), or).await?;
        Ok(Permissions::read(&answer.unwrap_or_default()))
    }

    /// Sends one request. Not fully cancel safe: after a cancel, a request that has begun goes on in the background until its
    /// timeout.
    async fn answer(&self, path: &str, or: &Login) -> Result<Option<Value>, String> {
        let url = format!("{}/api/{path}", self.base);
        let Login { user, password } = self.login.as_ref().unwrap_or(or);
        let login = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let agent = self.agent.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&agent, &url, &login)).await;
        let answer = asked.map_err(|error| error.to_string())?;
        answer.map_err(|error| format!("the management API at {} (as `{user}`, {path}): {error}", self.base))
    }
}

/// Encodes a part of a path. What need not be encoded is not: the path is in error texts.
fn encoded(text: &str) -> PercentEncode<'_> {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED)
}

fn ask(agent: &ureq::Agent, url: &str, login: &str) -> Result<Option<Value>, String> {
    let asked = agent.get(url).header("authorization", format!("Basic {login}")).call();
    let mut answer = match asked {
        Ok(answer) => answer,
        Err(ureq::Error::StatusCode(404)) => return Ok(None),
        Err(ureq::Error::StatusCode(401)) => {
            return Err(
                "it refuses the user: check the password and the user's tag (`management` shows queues, `policymaker` also policies, \
                 `administrator` also permissions)"
                    .to_owned()
            );
        }
        Err(error) => return Err(error.to_string()),
    };
    let bytes = answer
        .body_mut()
        .with_config()
        .limit(LONGEST_ANSWER)
        .read_to_vec()
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("its answer is not JSON: {error}"))
}

fn agent(encrypted: bool, more_certificates: Option<&str>) -> Result<ureq::Agent, TransportError> {
    let mut config = ureq::Agent::config_builder().timeout_global(Some(ANSWER_TIMEOUT)).max_redirects(0);
    if encrypted {
        // Unreadable certificates of the system are skipped, and therefore not trusted.
        let system = rustls_native_certs::load_native_certs().certs;
        let mut trusted: Vec<_> = system.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        for item in ureq::tls::parse_pem(more_certificates.unwrap_or_default().as_bytes()) {
            match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => trusted.push(certificate),
                Ok(_) => {}
                Err(error) => {
                    let message = format!("the certificates of `ca_certificates` cannot be read: {error}");
                    return Err(TransportError::new(TransportErrorKind::Unsupported, message));
                }
            }
        }
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(trusted)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    Ok(config.build().new_agent())
}

impl fmt::Debug for Management {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_is_taken_out_of_the_url() {
        let management = Management::at("http://alice:s3cr%40t@[::1]:15672/prefix/", None).unwrap();
        assert_eq!(management.base, "http://[::1]:15672/prefix");
        let login = management.login.as_ref().unwrap();
        assert_eq!((&*login.user, &*login.password), ("alice", "s3cr@t"));
        assert!(!format!("{management:?}").contains("s3cr"));
        assert!(Management::at("https://host", None).unwrap().login.is_none());
    }

    #[test]
    fn a_name_in_a_path_stays_readable() {
        let shown = ["/", "orders--retry-500ms", "a.b_c", "ä b"].map(|name| encoded(name).to_string());
        assert_eq!(shown, ["%2F", "orders--retry-500ms", "a.b_c", "%C3%A4%20b"]);
    }

    #[test]
    fn an_address_that_is_none_is_not_repeated() {
        for url in [
            "amqp://alice:s3cret@host",
            "alice:s3cret@host",
            "http://alice:s3cret/x@host",
            "http://alice:12/s3cret@host",
            "http://alice:s3cret@",
            "http://",
            "",
        ] {
            let error = Management::at(url, None).unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
