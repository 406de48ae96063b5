//! Tests of wrong configuration and malformed messages: each gives a clear line or a bounded value, shows no secret, and loses
//! nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use redrive_consumer::{Consumer, Report};
use redrive_contract::eventually;
use redrive_core::transport::{Needs, OpenError, Signals};
use redrive_core::{
    BoxError, Delivery, Disposition, Failure, Message, Transport, TransportError, TransportErrorKind,
};
use redrive_servicebus::ServiceBus;
use redrive_servicebus_emulator::amqp::Value;
use redrive_servicebus_emulator::{Delivered, Emulator, Settings};
use tokio::time::timeout;

const QUEUE: &str = "orders";
const DEAD_LETTERS: &str = "orders/$DeadLetterQueue";
const SECRET: &str = "aHVudGVyMg+/aHVudGVyMg==";
const TIMEOUT: Duration = Duration::from_secs(120);

async fn emulator(settings: Settings) -> Result<Emulator, BoxError> {
    Ok(Emulator::builder().queue(QUEUE, settings).key("Root", SECRET).start().await?)
}

/// Connects with this connection string, starts and sends, and returns the error.
async fn told(connection_string: &str, entity: &str) -> TransportError {
    let transport = match ServiceBus::connect(connection_string, entity).await {
        Ok(transport) => transport,
        Err(error) => return error,
    };
    assert!(!format!("{transport:?}").contains("hunter2"));
    let refused = transport.open(&Needs::none(), Signals::ignored()).await;
    let OpenError::Failed(error) = refused.expect_err("there is something wrong") else {
        panic!("nothing was asked for that could be refused")
    };
    let sent = transport
        .publish(Message::new("").with_id("a"))
        .await
        .expect_err(&format!("sending to `{entity}`, too"));
    assert_eq!(sent.kind(), error.kind(), "{sent}");
    error
}

/// Checks that an error is one line that names the problem, and shows no secret.
fn check(case: &str, error: &TransportError, kind: TransportErrorKind, names: &str) {
    let said = format!("{error}");
    assert_eq!(error.kind(), kind, "{case}: {said}");
    assert!(said.contains(names), "{case}: `{names}` is not named: {said}");
    assert_eq!(said.lines().count(), 1, "{case}: {said}");
    let everything = format!("{error:?} {said}");
    for secret in ["aHVudGVyMg", "aHVudGVyMh"] {
        assert!(!everything.contains(secret), "{case}: {everything}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_key_token_or_entity_is_said_in_one_line() -> Result<(), BoxError> {
    use TransportErrorKind::{Topology, Unauthorized};
    let emulator = emulator(Settings::default()).await?;
    let right = emulator.connection_string();
    let with_token = |token: &str| {
        let endpoint = right.split(';').next().unwrap_or_default();
        format!("{endpoint};SharedAccessSignature={token};UseDevelopmentEmulator=true")
    };
    let host = right.split(';').next().unwrap_or_default().trim_start_matches("Endpoint=");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    for (case, connection_string, entity, kind, names) in [
        ("a wrong key", right.replace("aHVudGVyMg+", "aHVudGVyMh+"), QUEUE, Unauthorized, "InvalidSignature"),
        (
            "an unknown name of a key",
            right.replace("=Root;", "=Toor;"),
            QUEUE,
            Unauthorized,
            "InvalidSignature",
        ),
        ("an expired token", with_token(&signed(host, now - 60)), QUEUE, Unauthorized, "ExpiredToken"),
        ("no token at all", with_token("aHVudGVyMg"), QUEUE, Unauthorized, "InvalidSignature"),
        ("an unknown queue", right.clone(), "nobody", Topology, "`nobody`"),
        ("an unknown subscription", right.clone(), "no/Subscriptions/one", Topology, "no/Subscriptions/one"),
    ] {
        check(case, &told(&connection_string, entity).await, kind, names);
    }
    let good = with_token(&signed(host, now + 3600));
    ServiceBus::connect(&good, QUEUE).await?.open(&Needs::none(), Signals::ignored()).await?;
    Ok(())
}

#[tokio::test]
async fn a_connection_string_that_cannot_be_read_is_refused_before_anything_is_connected() {
    use TransportErrorKind::{Other, Unreachable, Unsupported};
    let rest = format!("SharedAccessKeyName=Root;SharedAccessKey={SECRET}");
    for (case, connection_string, kind, names) in [
        ("empty", String::new(), Other, "`Endpoint`"),
        ("only a key", SECRET.trim_end_matches('=').to_owned(), Other, "`=`"),
        ("no endpoint", rest.clone(), Other, "`Endpoint`"),
        ("another scheme", format!("Endpoint=https://h/;{rest}"), Other, "`sb://`"),
        ("no host", format!("Endpoint=sb://;{rest}"), Other, "host"),
        ("no port", format!("Endpoint=sb://h:x/;{rest}"), Other, "port"),
        ("no key", "Endpoint=sb://h/;SharedAccessKeyName=Root".to_owned(), Other, "`SharedAccessKey`"),
        ("no name", format!("Endpoint=sb://h/;SharedAccessKey={SECRET}"), Other, "`SharedAccessKeyName`"),
        ("key and token", format!("Endpoint=sb://h/;{rest};SharedAccessSignature={SECRET}"), Other, "both"),
        ("another entity", format!("Endpoint=sb://h/;{rest};EntityPath=payments"), Unsupported, "`payments`"),
        (
            "nobody there",
            // The discard port of a machine that has no such service.
            format!("Endpoint=sb://127.0.0.1:9/;{rest};UseDevelopmentEmulator=true"),
            Unreachable,
            "127.0.0.1",
        ),
    ] {
        let error = ServiceBus::connect(&connection_string, QUEUE).await.expect_err(case);
        check(case, &error, kind, names);
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_read_is_dead_lettered_and_its_neighbours_are_handled()
-> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    // A data section becomes a text that is not UTF-8.
    let (sent, arrives) = (b"\x53\x75\xa0\x08MARKERXX", b"\x53\x77\xa1\x08\xff\xfe\xff\xfe\xff\xfe\xff\xfe");
    let port = crate::proxy::that_replaces(emulator.address(), sent, arrives).await?;
    let through =
        emulator.connection_string().replace(&format!(":{}", emulator.address().port()), &format!(":{port}"));
    let publisher = ServiceBus::connect(&through, QUEUE).await?;
    for (id, body) in [("before", "fine"), ("broken", "MARKERXX"), ("after", "fine")] {
        publisher.publish(Message::new(body).with_id(id)).await?;
    }
    let handled = |delivery: Delivery| async move {
        assert_eq!(delivery.message().body(), "fine");
        Ok::<_, BoxError>(Disposition::Ack)
    };
    let report = consume(&emulator, handled).await?;
    assert_eq!(report.acknowledged, 2, "{report:?}");
    let dead = dead(&emulator)?;
    assert_eq!(dead.len(), 1);
    assert_eq!(text(&dead[0], "DeadLetterReason"), "UndecodableMessage");
    assert!(!text(&dead[0], "DeadLetterErrorDescription").is_empty());
    assert!(dead[0].message.body.ends_with(&[0xff, 0xfe]), "as it came");
    Ok(())
}

#[tokio::test]
async fn a_message_that_is_too_large_is_refused_and_the_next_one_is_sent() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let large = Message::new(vec![b'x'; 256 * 1024]).with_id("large");
    let error = transport.publish(large).await.expect_err("256 KiB and a header are too much");
    check("too large", &error, TransportErrorKind::TooLarge, "`orders`");
    transport.publish(Message::new("").with_id("small")).await?;
    assert_eq!(emulator.entity(QUEUE)?.messages().len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_copy_that_is_too_large_ends_as_a_dead_letter_with_its_body() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    // The message fits, but leaves no room for its failure history.
    let body = vec![b'x'; 256 * 1024 - 150];
    transport.publish(Message::new(body.clone()).with_id("large")).await?;
    transport.publish(Message::new("").with_id("neighbour")).await?;
    let handler = |delivery: Delivery| async move {
        if delivery.id() == "large" { Err(BoxError::from("it does not work")) } else { Ok(Disposition::Ack) }
    };
    let report = consume(&emulator, handler).await?;
    assert_eq!(report.acknowledged, 1, "{report:?}");
    let dead = dead(&emulator)?;
    assert_eq!(dead.len(), 1);
    assert_eq!(text(&dead[0], "DeadLetterReason"), "Rejected", "without its history");
    assert_eq!(dead[0].message.data()?.concat(), body);
    Ok(())
}

#[tokio::test]
async fn long_texts_with_emoji_are_cut_to_what_fits_and_secrets_are_taken_out() -> Result<(), BoxError> {
    let emulator = emulator(Settings::default()).await?;
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    for id in ["error", "by-hand", "secret"] {
        transport.publish(Message::new("").with_id(id)).await?;
    }
    let handler = |delivery: Delivery| async move {
        let text = "🛒 is empty 👩‍👩‍👧‍👦 ".repeat(5000);
        match delivery.id() {
            "by-hand" => Ok(Disposition::DeadLetter(Failure::custom("🛑".repeat(5000), text))),
            "secret" => {
                let text = format!("cannot connect with SharedAccessKey={SECRET}");
                Err(redrive_core::Permanent::new(text).into())
            }
            _ => Err(redrive_core::Permanent::new(text).into()),
        }
    };
    let report = consume(&emulator, handler).await?;
    assert_eq!(report.dead_lettered, 3, "{report:?}");
    for dead in dead(&emulator)? {
        for name in ["DeadLetterReason", "DeadLetterErrorDescription"] {
            let text = text(&dead, name);
            assert!((1..=4096).contains(&text.encode_utf16().count()), "{name}: {}", text.len());
            assert!(!text.contains(SECRET), "{text}");
        }
    }
    Ok(())
}

/// Handles all messages of the queue, with one immediate retry.
async fn consume<H, F>(emulator: &Emulator, handler: H) -> Result<Report, BoxError>
where
    H: Fn(Delivery) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Result<Disposition, BoxError>> + Send + 'static,
{
    let transport = ServiceBus::connect(&emulator.connection_string(), QUEUE).await?;
    let queue = emulator.entity(QUEUE)?;
    let emptied = async move { eventually("the queue is empty", async || queue.messages().is_empty()).await };
    let runner = Consumer::new(transport).with_dead_letter_backoff([Duration::ZERO]).handler(handler);
    Ok(timeout(TIMEOUT, runner.run_until(emptied)).await??)
}

fn dead(emulator: &Emulator) -> Result<Vec<Delivered>, BoxError> {
    Ok(emulator.entity(DEAD_LETTERS)?.messages())
}

fn text(dead: &Delivered, name: &str) -> String {
    match dead.message.application_properties.get(name) {
        Some(Value::String(text)) => text.to_string(),
        other => panic!("`{name}` is {other:?}"),
    }
}

/// Returns a shared access signature for the whole namespace that expires at this second since 1970.
fn signed(host: &str, until: u64) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let resource = encoded(host);
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = STANDARD.encode(ring::hmac::sign(&key, format!("{resource}\n{until}").as_bytes()));
    format!("SharedAccessSignature sr={resource}&sig={}&se={until}&skn=Root", encoded(&signature))
}
