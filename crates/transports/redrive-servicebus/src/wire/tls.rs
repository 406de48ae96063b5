//! TLS and the trusted certificates.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::Address;
use crate::error::{Refusal, WireError};

/// Starts TLS on an open connection.
pub(super) async fn connect(address: &Address, tcp: TcpStream) -> Result<TlsStream<TcpStream>, WireError> {
    let (host, port) = address.target();
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        WireError::new(Refusal::Other, format!("`{host}` is not a valid host name for a certificate"))
    })?;
    let connector = TlsConnector::from(config(address.ca_certificates.as_deref())?);
    connector.connect(name, tcp).await.map_err(|error| {
        match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(why)) => {
                let text = format!("the certificate of {host}:{port} is not valid: {why}");
                WireError::new(Refusal::NotTrusted, text)
            }
            _ if is_no_tls(&error) => address.without_tls(&error),
            _ => address.unreachable(&error),
        }
    })
}

/// Returns true if the other side answered with something that is not TLS.
pub(super) fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let wrapped = wrapped.map(|wrapped| wrapped as &(dyn Error + 'static));
    matches!(error.downcast_ref(), Some(rustls::Error::InvalidMessage(_)))
        || wrapped.into_iter().chain(error.source()).any(is_no_tls)
}

pub(super) fn config(more_certificates: Option<&str>) -> Result<Arc<ClientConfig>, WireError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| WireError::new(Refusal::Other, format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots(more_certificates)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Returns the certificates of the system, and additional ones.
fn roots(more: Option<&str>) -> Result<RootCertStore, WireError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(pem) = more {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| unreadable(&error))?;
            roots.add(certificate).map_err(|error| unreadable(&error))?;
        }
        if roots.len() == before {
            return Err(unreadable(&"it contains none"));
        }
    }
    if roots.is_empty() {
        let text = "this machine has no root certificates: install `ca-certificates`";
        return Err(WireError::new(Refusal::Other, text));
    }
    Ok(roots)
}

fn unreadable(why: &dyn std::fmt::Display) -> WireError {
    let text = format!("the certificates given by `Options::ca_certificates` cannot be read: {why}");
    WireError::new(Refusal::Other, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_cannot_be_read_are_refused() {
        let no_base64 = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "no certificate", no_base64, no_certificate] {
            let error = roots(Some(pem)).expect_err("it is none").to_string();
            assert!(error.contains("ca_certificates"), "{error}");
        }
    }
}
