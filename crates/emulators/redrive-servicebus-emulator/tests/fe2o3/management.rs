//! Requests to `$management` and `$cbs`, and sessions.

use crate::client::{Client, Requests, TEST_TIMEOUT, delivery_count, many, one, text, tokens};
use crate::{HALF_A_MINUTE, count, emulator, with_key, with_queue};
use fe2o3_amqp::link::{ReceiverAttachError, RecvError};
use fe2o3_amqp_types::definitions::ErrorCondition;
use fe2o3_amqp_types::messaging::{ApplicationProperties, Body, Message, Source};
use fe2o3_amqp_types::primitives::{Array, Binary, SimpleValue, Symbol, Value};
use redrive_servicebus_emulator::{Emulator, Settings, Topic};
use std::time::Duration;

const SESSION_FILTER: &str = "com.microsoft:session-filter";

fn completed(tokens: Value) -> Vec<(&'static str, Value)> {
    vec![("disposition-status", Value::from("completed".to_owned())), ("lock-tokens", tokens)]
}

#[tokio::test]
async fn many_locks_are_renewed_and_completed_in_one_request() {
    let emulator = with_queue("q", |queue| queue.lock_duration = HALF_A_MINUTE).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b", "c"]).await;
    let mut receiver = client.receiver("q", 3).await;
    let deliveries = many(&mut receiver, 3).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    emulator.advance(Duration::from_secs(20));
    let renewed = requests.ask("com.microsoft:renew-lock", vec![("lock-tokens", tokens(&deliveries))]).await;
    assert_eq!(renewed.status, 200, "{renewed:?}");
    let Value::Array(Array(expirations)) = renewed.value("expirations") else { panic!("{renewed:?}") };
    assert_eq!(expirations.len(), 3);
    emulator.advance(Duration::from_secs(20));
    let reply = requests.ask("com.microsoft:update-disposition", completed(tokens(&deliveries))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(count(&emulator, "q"), 0);
}

#[tokio::test]
async fn a_lost_lock_is_gone() {
    let emulator = with_queue("q", |queue| queue.lock_duration = HALF_A_MINUTE).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let mut receiver = client.receiver("q", 1).await;
    let deliveries = many(&mut receiver, 1).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    emulator.advance(Duration::from_secs(31));
    for (operation, body) in [
        ("com.microsoft:renew-lock", vec![("lock-tokens", tokens(&deliveries))]),
        ("com.microsoft:update-disposition", completed(tokens(&deliveries))),
    ] {
        let reply = requests.ask(operation, body).await;
        assert_eq!(reply.status, 410, "{operation}: {reply:?}");
        assert_eq!(reply.condition.as_deref(), Some("com.microsoft:message-lock-lost"), "{operation}");
    }
    receiver.set_credit(1).await.expect("the link is open");
    assert_eq!(delivery_count(&one(&mut receiver).await), 1);
}

#[tokio::test]
async fn one_lost_lock_among_many_settles_none() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b"]).await;
    let mut receiver = client.receiver("q", 2).await;
    let deliveries = many(&mut receiver, 2).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    let first = requests.ask("com.microsoft:update-disposition", completed(tokens(&deliveries[..1]))).await;
    assert_eq!(first.status, 200, "{first:?}");
    let both = requests.ask("com.microsoft:update-disposition", completed(tokens(&deliveries))).await;
    assert_eq!(both.status, 410, "{both:?}");
    assert_eq!(count(&emulator, "q"), 1, "`b` is still there");
}

#[tokio::test]
async fn an_unknown_operation_is_answered() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    let reply = requests.ask("com.microsoft:make-coffee", vec![]).await;
    assert!((400..=501).contains(&reply.status), "{reply:?}");
    let still = requests.ask("com.microsoft:peek-message", peek()).await;
    assert_eq!(still.status, 204, "{still:?}");
}

#[tokio::test]
async fn a_request_without_what_it_needs_is_answered() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    for operation in [
        "renew-lock",
        "schedule-message",
        "cancel-scheduled-message",
        "receive-by-sequence-number",
        "update-disposition",
        "renew-session-lock",
        "set-session-state",
        "get-session-state",
    ] {
        let reply = requests.ask(&format!("com.microsoft:{operation}"), vec![]).await;
        assert!((400..500).contains(&reply.status), "{operation}: {reply:?}");
    }
    let reply = requests.ask("com.microsoft:peek-message", peek()).await;
    assert_eq!(reply.status, 204, "{reply:?}");
}

#[tokio::test]
async fn a_token_is_checked_where_there_is_a_key() {
    let emulator = with_key("the key").await;
    let mut client = Client::connect(&emulator).await;
    client.try_sender("q").await.expect_err("no token was put");
    client.go_on_in_another_session().await;
    let mut requests = Requests::open(&mut client, "$cbs").await;
    let forged = "SharedAccessSignature sr=x&sig=AAAA&se=9999999999&skn=RootManageSharedAccessKey";
    let reply = requests.put_token("sb://localhost/q", forged).await;
    assert_eq!(reply.status, 401, "{reply:?}");
    client.try_sender("q").await.expect_err("the token was refused");
}

#[tokio::test]
async fn a_session_tells_its_id_and_its_lock() {
    let emulator = with_queue("s", |queue| queue.requires_session = true).await;
    let mut client = Client::connect(&emulator).await;
    let receiver = client.try_receiver(session("s", Some("a")), 0).await.expect("a session");
    let filter = receiver.source().as_ref().and_then(|source| source.filter.clone()).expect("a filter");
    assert_eq!(filter.get(&Symbol::from(SESSION_FILTER)), Some(&Value::String("a".to_owned())));
    let until = receiver.properties(|properties| {
        properties.as_ref().and_then(|all| all.get(&Symbol::from("com.microsoft:locked-until-utc")).cloned())
    });
    let Some(Value::Long(ticks)) = until else { panic!("locked until {until:?}") };
    assert!(ticks > 638_000_000_000_000_000, "{ticks} are .NET ticks of these years");
}

#[tokio::test]
async fn a_lost_session_is_detached() {
    let emulator = with_queue("s", |queue| {
        queue.requires_session = true;
        queue.lock_duration = HALF_A_MINUTE;
    })
    .await;
    let mut client = Client::connect(&emulator).await;
    let mut receiver = client.try_receiver(session("s", Some("a")), 1).await.expect("a session");
    emulator.advance(Duration::from_secs(31));
    let lost = tokio::time::timeout(TEST_TIMEOUT, receiver.recv::<Body<Value>>()).await.expect("an end");
    let Err(RecvError::LinkStateError(error)) = lost else { panic!("{lost:?}") };
    assert!(error.to_string().contains("session-lock-lost"), "{error}");
}

#[tokio::test]
async fn a_taken_session_and_one_that_is_missing_are_refused() {
    let emulator = with_queue("s", |queue| queue.requires_session = true).await;
    let (mut client, mut other) = (Client::connect(&emulator).await, Client::connect(&emulator).await);
    let _holder = client.try_receiver(session("s", Some("a")), 0).await.expect("a session");
    let refused = |error: ReceiverAttachError| match error {
        ReceiverAttachError::RemoteClosedWithError(error) => error.condition,
        other => panic!("{other:?}"),
    };
    let taken = refused(other.try_receiver(session("s", Some("a")), 0).await.expect_err("it is taken"));
    assert_eq!(taken, ErrorCondition::Custom(Symbol::from("com.microsoft:session-cannot-be-locked")));
    other.go_on_in_another_session().await;
    let plain = refused(other.try_receiver("s", 0).await.expect_err("no session was named"));
    assert_eq!(plain, ErrorCondition::from(fe2o3_amqp_types::definitions::AmqpError::NotAllowed));
}

#[tokio::test]
async fn who_asks_for_any_session_gets_the_one_with_messages() {
    let emulator = with_queue("s", |queue| queue.requires_session = true).await;
    let mut client = Client::connect(&emulator).await;
    let mut sender = client.sender("s").await;
    let properties = fe2o3_amqp_types::messaging::Properties::builder().group_id("b".to_owned()).build();
    let message = fe2o3_amqp_types::messaging::Message::builder()
        .properties(properties)
        .data(fe2o3_amqp_types::primitives::Binary::from(b"x".to_vec()))
        .build();
    sender.send(message).await.expect("an outcome");
    let mut receiver = client.try_receiver(session("s", None), 1).await.expect("a session");
    assert_eq!(text(&one(&mut receiver).await), "x");
}

#[tokio::test]
async fn a_sessions_state_belongs_to_who_holds_it() {
    let emulator = with_queue("s", |queue| queue.requires_session = true).await;
    let (mut holder, mut other) = (Client::connect(&emulator).await, Client::connect(&emulator).await);
    let _link = holder.try_receiver(session("s", Some("a")), 0).await.expect("a session");
    let mut of_holder = Requests::open(&mut holder, "s/$management").await;
    let mut of_other = Requests::open(&mut other, "s/$management").await;
    let id = || ("session-id", Value::from("a".to_owned()));
    let state = Value::Binary(Binary::from(b"mine".to_vec()));
    let set =
        of_holder.ask("com.microsoft:set-session-state", vec![id(), ("session-state", state.clone())]).await;
    assert_eq!(set.status, 200, "{set:?}");
    for operation in ["get-session-state", "set-session-state", "renew-session-lock"] {
        let reply = of_other.ask(&format!("com.microsoft:{operation}"), vec![id()]).await;
        assert_eq!(reply.status, 410, "{operation}: {reply:?}");
        assert_eq!(reply.condition.as_deref(), Some("com.microsoft:session-lock-lost"), "{operation}");
    }
    let got = of_holder.ask("com.microsoft:get-session-state", vec![id()]).await;
    assert_eq!(got.value("session-state"), &state);
}

#[tokio::test]
async fn a_rule_with_an_action_changes_its_copy() {
    let topic = Topic::new("t", Settings::default()).subscription("one", Settings::default());
    let emulator = Emulator::builder().topic(topic).start().await.expect("the emulator starts");
    let mut client = Client::connect(&emulator).await;
    let mut requests = Requests::open(&mut client, "t/Subscriptions/one/$management").await;
    let name = |name: &str| ("rule-name", Value::from(name.to_owned()));
    let removed = requests.ask("com.microsoft:remove-rule", vec![name("$Default")]).await;
    assert_eq!(removed.status, 200, "{removed:?}");
    let sql = |text: &str| map([("expression", Value::from(text.to_owned()))]);
    let description =
        map([("sql-filter", sql("n > 1")), ("sql-rule-action", sql("SET twice = n * 2; REMOVE secret"))]);
    let added =
        requests.ask("com.microsoft:add-rule", vec![name("big"), ("rule-description", description)]).await;
    assert_eq!(added.status, 200, "{added:?}");
    let mut sender = client.sender("t").await;
    for n in [1i64, 2] {
        let properties = ApplicationProperties::builder().insert("n", n).insert("secret", "s").build();
        let message = Message::builder().application_properties(properties);
        sender.send(message.data(Binary::from(b"x".to_vec())).build()).await.expect("an outcome");
    }
    let mut receiver = client.receiver("t/Subscriptions/one", 5).await;
    let copy = one(&mut receiver).await;
    let properties = &copy.message().application_properties.as_ref().expect("application properties").0;
    assert_eq!(properties.get("n"), Some(&SimpleValue::Long(2)));
    assert_eq!(properties.get("twice"), Some(&SimpleValue::Long(4)));
    assert_eq!(properties.get("RuleName"), Some(&SimpleValue::String("big".to_owned())));
    assert_eq!(properties.get("secret"), None);
}

fn map<const N: usize>(pairs: [(&str, Value); N]) -> Value {
    Value::Map(pairs.into_iter().map(|(key, value)| (Value::from(key.to_owned()), value)).collect())
}

fn session(entity: &str, id: Option<&str>) -> Source {
    let id = id.map_or(Value::Null, |id| Value::String(id.to_owned()));
    let mut source = Source::from(entity);
    source.filter = Some([(Symbol::from(SESSION_FILTER), id)].into_iter().collect());
    source
}

fn peek() -> Vec<(&'static str, Value)> {
    vec![("from-sequence-number", Value::Long(1)), ("message-count", Value::Int(5))]
}
