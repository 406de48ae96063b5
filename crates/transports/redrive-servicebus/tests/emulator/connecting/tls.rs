//! Tests of TLS with the certificates of a test authority.

use redrive_core::{BoxError, TransportError, TransportErrorKind};

use super::secured::{KEY, QUEUE, Secured, a_message_goes_round, authority, opened};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::{Emulator, Settings};

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

/// The commonest omission in the connection string of an emulator.
#[tokio::test]
async fn a_server_without_tls_is_said_to_be_one() -> Result<(), BoxError> {
    let emulator = Emulator::builder().queue(QUEUE, Settings::default()).start().await?;
    let address = emulator.connection_string().replace(";UseDevelopmentEmulator=true", "");
    let error = ServiceBus::connect(&address, QUEUE).await.expect_err("it has no TLS");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable);
    let said = error.to_string();
    assert!(said.contains("does not speak TLS") && said.contains("UseDevelopmentEmulator=true"), "{said}");
    Ok(())
}

#[cfg(feature = "rest")]
#[tokio::test]
async fn a_server_without_tls_is_said_to_be_one_by_rest() -> Result<(), BoxError> {
    let builder = Emulator::builder().queue(QUEUE, Settings::default()).listen_http("127.0.0.1:0");
    let emulator = builder.start().await?;
    let address = emulator.http_connection_string().ok_or("no HTTP")?;
    let options = ServiceBus::options(QUEUE).backend(redrive_servicebus::Backend::Rest);
    let options = options.dead_letter_queue("dead");
    let transport = options.connect(&address.replace(";UseDevelopmentEmulator=true", "")).await?;
    let sent = transport.publish(redrive_core::Message::new("")).await;
    let said = sent.expect_err("it has no TLS").to_string();
    assert!(said.contains("does not speak TLS") && said.contains("UseDevelopmentEmulator=true"), "{said}");
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
