//! Tests of TLS with the certificates of a test authority.

use redrive_core::{BoxError, TransportError, TransportErrorKind};

use super::secured::{KEY, QUEUE, Secured, a_message_goes_round, authority, opened};
use redrive_servicebus::ServiceBus;

#[tokio::test]
async fn messages_go_round_over_tls() -> Result<(), BoxError> {
    let secured = Secured::named("localhost").await?;
    let transport = opened(secured.options().connect(&secured.connection_string()).await?).await?;
    a_message_goes_round(&transport, "over TLS").await?;
    assert!(secured.emulator.entity(QUEUE)?.messages().is_empty());
    Ok(())
}

#[tokio::test]
async fn nobody_is_trusted_for_whom_no_authority_vouches() -> Result<(), BoxError> {
    let secured = Secured::named("localhost").await?;
    let options = ServiceBus::options(QUEUE).ca_certificates(authority("another")?.pem());
    let error = options.connect(&secured.connection_string()).await.expect_err("another authority");
    is_about_the_certificate(&error, "UnknownIssuer");
    Ok(())
}

#[tokio::test]
async fn nobody_is_trusted_under_another_name() -> Result<(), BoxError> {
    let secured = Secured::named("elsewhere.example").await?;
    let error = secured.options().connect(&secured.connection_string()).await.expect_err("another name");
    is_about_the_certificate(&error, "elsewhere.example");
    Ok(())
}

#[tokio::test]
async fn certificates_that_are_none_are_refused() -> Result<(), BoxError> {
    let secured = Secured::named("localhost").await?;
    let options = ServiceBus::options(QUEUE).ca_certificates("no certificate");
    let error = options.connect(&secured.connection_string()).await.expect_err("that is none");
    assert!(error.to_string().contains("`Options::ca_certificates` cannot be read"), "{error}");
    Ok(())
}

fn is_about_the_certificate(error: &TransportError, why: &str) {
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    let said = error.to_string();
    for part in ["the certificate of localhost", why, "ca_certificates"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains(KEY), "{said}");
}
