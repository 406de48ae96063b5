//! Tests of the REST API and its client library against scripted responses.

use std::collections::VecDeque;

use async_trait::async_trait;
use azure_core_rest::headers::Headers;
use azure_core_rest::{BytesStream, HttpClient, Request, Response, StatusCode};
use parking_lot::Mutex;

use super::*;

const LOCK: Uuid = Uuid::from_u128(0x7da9_cfd5_40d5_4bb1_8d64_ec5a_52e1_c547);
const BODY: &[u8] = &[0, 159, 146, 150, 255];

/// A response of a script.
#[derive(Clone, Debug)]
struct Line {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: &'static [u8],
}

/// Answers with the scripted responses, then always with the last one, and records the requests.
#[derive(Debug)]
struct Script {
    lines: Mutex<VecDeque<Line>>,
    last: Line,
    asked: Mutex<Vec<String>>,
}

impl Script {
    fn new(lines: Vec<Line>, last: Line) -> Arc<Self> {
        Arc::new(Self { lines: Mutex::new(lines.into()), last, asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }
}

#[async_trait]
impl HttpClient for Script {
    async fn execute_request(&self, request: &Request) -> azure_core_rest::Result<Response> {
        self.asked.lock().push(format!("{} {}", request.method(), request.url()));
        let line = self.lines.lock().pop_front().unwrap_or_else(|| self.last.clone());
        let mut headers = Headers::new();
        for (name, value) in line.headers {
            headers.insert(name, value);
        }
        let status = StatusCode::try_from(line.status).expect("it is a status");
        Ok(Response::new(status, headers, Box::pin(BytesStream::new(line.body))))
    }
}

fn status(status: u16) -> Line {
    Line { status, headers: Vec::new(), body: b"" }
}

/// Returns the response for a locked message whose body is not text.
fn locked(properties: &str) -> Line {
    let location = format!("https://elsewhere.example/q/messages/7/{LOCK}");
    Line {
        status: 201,
        headers: vec![("brokerproperties", properties.to_owned()), ("location", location)],
        body: BODY,
    }
}

fn usual() -> Line {
    locked(&format!(r#"{{"SequenceNumber":7,"LockToken":"{LOCK}","DeliveryCount":1}}"#))
}

fn rest(script: &Arc<Script>) -> Rest {
    let text = "Endpoint=sb://shop.servicebus.chinacloudapi.cn/;SharedAccessKeyName=a;SharedAccessKey=b";
    let address = Address::parse(text).expect("it is well-formed");
    let http: Arc<dyn HttpClient> = Arc::<Script>::clone(script);
    Rest::new(Client::new(http, Arc::new(address)), Duration::from_secs(10), 4)
}

async fn first(rest: &Rest) -> Arrived {
    let mut receiver = rest.receiver("q").await.expect("it may be read");
    receiver.allow(1).await.expect("there is room");
    receiver.next().await.expect("a message comes")
}

#[tokio::test]
async fn a_401_is_no_message() {
    let script = Script::new(Vec::new(), Line { body: b"<Error><Detail>no</Detail></Error>", ..status(401) });
    let error = rest(&script).receiver("q").await.expect_err("nobody may");
    assert_eq!(error.refusal, Refusal::Unauthorized);
    assert!(!error.to_string().contains("Detail"), "{error}");
}

#[tokio::test]
async fn an_entity_that_is_not_there_is_missed() {
    for code in [404, 410] {
        let error = rest(&Script::new(Vec::new(), status(code))).receiver("q").await.expect_err("none");
        assert_eq!(error.refusal, Refusal::NotFound);
    }
}

#[tokio::test(start_paused = true)]
async fn empty_answers_are_not_asked_for_again_and_again() {
    // For example a proxy that does not wait.
    let script = Script::new(Vec::new(), status(204));
    let rest = rest(&script);
    let mut receiver = rest.receiver("q").await.expect("it may be read");
    receiver.allow(100).await.expect("there is room");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let asked = script.asked().len();
    assert!((5..=9).contains(&asked), "asked {asked} times in a minute");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_no_longer_than_the_consumer_asks() {
    for (longest, asked_in_a_minute, timeout) in [(5, 11..=14, "timeout=5"), (30, 5..=9, "timeout=10")] {
        let script = Script::new(Vec::new(), status(204));
        let mut receiver = rest(&script).receiver("q").await.expect("it may be read");
        receiver.set_max_wait(Duration::from_secs(longest));
        receiver.allow(1).await.expect("there is room");
        tokio::time::sleep(Duration::from_secs(60)).await;
        let asked = script.asked();
        assert!(
            asked_in_a_minute.contains(&asked.len()),
            "{longest} s: asked {} times in a minute",
            asked.len()
        );
        assert!(asked.last().is_some_and(|request| request.ends_with(timeout)), "{asked:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_text_arrives_and_its_message_can_be_settled() {
    let script = Script::new(vec![usual()], status(200));
    let rest = rest(&script);
    let arrived = first(&rest).await;
    assert_eq!(&**arrived.message.expect("it can be read").message.body(), BODY);
    rest.settle("q", &[arrived.lock], &SettleAs::complete()).await.expect("it is locked");
    let asked = script.asked();
    // The request goes to the namespace, not to the location in the response, because it contains a token.
    let complete = format!("DELETE https://shop.servicebus.chinacloudapi.cn/q/messages/7/{LOCK}");
    assert!(asked.contains(&complete), "{asked:?}");
}

#[tokio::test]
async fn numbers_beyond_32_bits_keep_no_message_back() {
    let properties = format!(
        r#"{{"SequenceNumber":9007199254740993,"EnqueuedSequenceNumber":4294967297,"LockToken":"{LOCK}"}}"#
    );
    let rest = rest(&Script::new(vec![locked(&properties)], status(204)));
    let incoming = first(&rest).await.message.expect("it can be read");
    assert_eq!(incoming.sequence_number, 9_007_199_254_740_993);
}

#[tokio::test]
async fn the_location_names_the_lock_where_the_properties_cannot_be_read() {
    let rest = rest(&Script::new(vec![locked("{")], status(204)));
    let arrived = first(&rest).await;
    assert_eq!((arrived.lock, arrived.message.expect("it can be read").sequence_number), (LOCK, 7));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_lock_spins_nothing() {
    let script = Script::new(Vec::new(), Line { headers: Vec::new(), ..usual() });
    let rest = rest(&script);
    let mut receiver = rest.receiver("q").await.expect("it may be read");
    receiver.allow(10).await.expect("there is room");
    let next = tokio::time::timeout(Duration::from_secs(60), receiver.next()).await;
    assert!(next.is_err(), "nothing can be done with it");
    assert!(script.asked().len() <= 9, "asked {} times in a minute", script.asked().len());
}

#[tokio::test]
async fn of_several_settled_at_once_those_that_were_are_not_taken_for_lost() {
    let other = Uuid::from_u128(1);
    let second = locked(&format!(r#"{{"SequenceNumber":8,"LockToken":"{other}"}}"#));
    let script = Script::new(vec![usual(), second], status(204));
    let rest = rest(&script);
    let mut receiver = rest.receiver("q").await.expect("it may be read");
    receiver.allow(2).await.expect("there is room");
    let locks = [receiver.next().await.expect("one").lock, receiver.next().await.expect("two").lock];
    drop(receiver);
    // The first of the two that is settled is lost.
    script.lines.lock().push_back(status(404));
    let error = rest.settle("q", &locks, &SettleAs::complete()).await.expect_err("one is lost");
    assert_eq!(error.refusal, Refusal::LockLost);
    let mut settled = Vec::new();
    for id in locks {
        settled.push(rest.settle("q", &[id], &SettleAs::complete()).await.is_ok());
    }
    settled.sort_unstable();
    assert_eq!(settled, [false, true]);
}

#[tokio::test]
async fn a_renewed_lock_lasts_as_long_as_at_first() {
    let mut line = locked(&format!(
        r#"{{"SequenceNumber":7,"LockToken":"{LOCK}","LockedUntilUtc":"Wed, 02 Jul 2014 01:33:27 GMT"}}"#
    ));
    // The clock of the broker is years behind, which must not matter.
    line.headers.push(("date", "Wed, 02 Jul 2014 01:32:27 GMT".to_owned()));
    let script = Script::new(vec![line], status(200));
    let rest = rest(&script);
    let arrived = first(&rest).await;
    let before = SystemTime::now();
    let until = rest.renew("q", &[arrived.lock]).await.expect("it is locked")[0];
    assert!(until >= before + Duration::from_secs(59), "a second less, for times are told in seconds");
    assert!(until <= SystemTime::now() + Duration::from_secs(60));
    script.lines.lock().push_back(status(410));
    let error = rest.renew("q", &[arrived.lock]).await.expect_err("it is lost");
    assert_eq!(error.refusal, Refusal::LockLost);
}

#[tokio::test]
async fn what_it_cannot_do_is_said() {
    let rest = rest(&Script::new(vec![usual()], status(204)));
    let arrived = first(&rest).await;
    let kind = SettleKind::DeadLetter { reason: String::new(), description: String::new() };
    let refused = rest.settle("q", &[arrived.lock], &SettleAs::new(kind)).await.expect_err("it cannot");
    assert!(refused.to_string().contains("dead-letter"), "{refused}");
    assert!(rest.peek("q", 1, 1).await.is_err());
}

#[test]
fn a_403_is_told_apart_by_its_words() {
    let refusal = |text: &'static str| {
        Answer { status: 403, headers: Vec::new(), body: text.into() }.into_error().refusal
    };
    assert_eq!(refusal("exceeds the limit (262144 bytes)"), Refusal::TooLarge);
    assert_eq!(refusal("The maximum entity size has been reached"), Refusal::QuotaExceeded);
    assert_eq!(refusal("Manage,EntityRead claims required"), Refusal::Unauthorized);
}
