//! Tests on a transport that only remembers.

use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::*;

const NOW: SystemTime = SystemTime::UNIX_EPOCH;

/// Remembers messages. Refuses those whose body says so, and leaves out the results of `silent` of them.
#[derive(Clone, Default)]
struct Remembering {
    destination: String,
    taken: Arc<Mutex<Vec<(String, Outgoing)>>>,
    batches: Arc<Mutex<Vec<usize>>>,
    silent: usize,
}

impl Remembering {
    fn taken(&self) -> Vec<(String, Outgoing)> {
        self.taken.lock().unwrap().clone()
    }
}

#[async_trait]
impl Publish for Remembering {
    fn destination(&self) -> &str {
        &self.destination
    }

    fn to(&self, destination: &str) -> Arc<dyn Publish> {
        Arc::new(Self { destination: destination.to_owned(), ..self.clone() })
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        self.batches.lock().unwrap().push(messages.len());
        let answered = messages.len().saturating_sub(self.silent);
        let mut take = |outgoing: Outgoing| {
            if outgoing.message.body() == "refused" {
                return Err(TransportError::new(TransportErrorKind::TooLarge, "as the test wants it"));
            }
            self.taken.lock().unwrap().push((self.destination.clone(), outgoing));
            Ok(())
        };
        messages.into_iter().take(answered).map(&mut take).collect()
    }

    fn now(&self) -> SystemTime {
        NOW
    }
}

/// Returns the output of a future that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    let Poll::Ready(output) = pin!(future).poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits")
    };
    output
}

#[test]
fn a_message_without_an_id_gets_one_and_another_keeps_its_own() {
    at_once(async {
        let broker = Remembering::default();
        let publisher = Publisher::new(broker.clone());
        publisher.publish(Message::new("a")).await.unwrap();
        publisher.publish(Message::new("b")).await.unwrap();
        publisher.publish(Message::new("c").with_id("mine")).await.unwrap();
        let ids: Vec<_> = broker
            .taken()
            .into_iter()
            .map(|(_, outgoing)| outgoing.message.id().unwrap().to_owned())
            .collect();
        assert!(ids[0].len() == 32 && ids[1].len() == 32 && ids[0] != ids[1], "{ids:?}");
        assert_eq!(ids[2], "mine");
    });
}

#[test]
fn each_message_has_its_result_in_its_place() {
    at_once(async {
        let broker = Remembering::default();
        let publisher = Publisher::new(broker.clone());
        let results = publisher.publish_all(["a", "refused", "b"].map(Message::new)).await;
        assert!(results[0].is_ok() && results[2].is_ok());
        assert_eq!(results[1].as_ref().unwrap_err().kind(), TransportErrorKind::TooLarge);
        assert_eq!(broker.taken().len(), 2);
    });
}

#[test]
fn many_messages_go_in_bounded_batches() {
    at_once(async {
        let broker = Remembering::default();
        let publisher = Publisher::new(broker.clone());
        let body = |n: usize| if n == BATCH + 7 { "refused".to_owned() } else { n.to_string() };
        let results = publisher.publish_all((0..2 * BATCH + 1).map(|n| Message::new(body(n)))).await;
        assert_eq!(*broker.batches.lock().unwrap(), [BATCH, BATCH, 1]);
        assert_eq!(results.len(), 2 * BATCH + 1);
        assert!(results.iter().enumerate().all(|(n, result)| result.is_err() == (n == BATCH + 7)));
        assert_eq!(broker.taken().len(), 2 * BATCH);
        assert!(publisher.publish_all([]).await.is_empty());
    });
}

#[test]
fn what_the_transport_does_not_answer_for_is_no_success() {
    at_once(async {
        let publisher = Publisher::new(Remembering { silent: 1, ..Remembering::default() });
        let error = publisher.publish(Message::new("a")).await.unwrap_err();
        assert!(error.to_string().contains("not known"), "{error}");
        let results = publisher.publish_all(["a", "b"].map(Message::new)).await;
        assert!(results[0].is_ok() && results[1].is_err());
    });
}

#[test]
fn a_time_is_a_wait_by_the_clock_of_the_transport() {
    at_once(async {
        let broker = Remembering::default();
        let publisher = Publisher::new(broker.clone());
        let hour = Duration::from_secs(3600);
        publisher.publish_at(Message::new("later"), NOW + hour).await.unwrap();
        publisher.publish_at(Message::new("now"), NOW).await.unwrap();
        publisher.publish_after(Message::new("after"), hour).await.unwrap();
        let waits: Vec<_> = broker.taken().into_iter().map(|(_, outgoing)| outgoing.wait).collect();
        assert_eq!(waits, [hour, Duration::ZERO, hour]);
        let past = Publisher::new(Past(broker.clone()));
        past.publish_at(Message::new("over"), NOW).await.unwrap();
        assert_eq!(broker.taken()[3].1.wait, Duration::ZERO);
    });
}

/// A publisher whose clock is an hour later.
struct Past(Remembering);

#[async_trait]
impl Publish for Past {
    fn destination(&self) -> &str {
        self.0.destination()
    }

    fn to(&self, destination: &str) -> Arc<dyn Publish> {
        self.0.to(destination)
    }

    async fn publish(&self, messages: Vec<Outgoing>) -> Vec<Result<(), TransportError>> {
        self.0.publish(messages).await
    }

    fn now(&self) -> SystemTime {
        NOW + Duration::from_secs(3600)
    }
}

#[test]
fn another_destination_is_another_publisher() {
    at_once(async {
        let broker = Remembering { destination: "orders".to_owned(), ..Remembering::default() };
        let publisher = Publisher::new(broker.clone());
        let other = publisher.to("invoices");
        assert_eq!((publisher.destination(), other.destination()), ("orders", "invoices"));
        other.publish(Message::new("a")).await.unwrap();
        assert_eq!(broker.taken()[0].0, "invoices");
        assert_eq!(format!("{other:?}"), r#"Publisher { destination: "invoices", .. }"#);
    });
}

#[cfg(feature = "json")]
#[test]
fn a_value_goes_as_json() {
    at_once(async {
        let broker = Remembering::default();
        let publisher = Publisher::new(broker.clone());
        publisher.publish_json(&["a", "b"]).await.unwrap();
        let (_, Outgoing { message, .. }) = broker.taken().remove(0);
        assert_eq!(message.body(), r#"["a","b"]"#);
        assert_eq!(message.properties().content_type.as_deref(), Some("application/json"));
        let by_pair = std::collections::BTreeMap::from([((1, 2), "a key that is no text")]);
        let error = publisher.publish_json(&by_pair).await.unwrap_err();
        assert!(error.to_string().contains("BTreeMap"), "{error}");
    });
}
