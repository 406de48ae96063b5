use super::*;
use crate::faults::{Effect, Fault, Step};

/// Creates a client that holds this many messages: deliveries 1 and up, on handle 1.
fn holding(shared: &Arc<SharedState>, count: u32) -> Client {
    let mut client = Client::connect(shared);
    client.attach_sender(0, "orders");
    for _ in 0..count {
        client.send(0, &message("a"), None);
    }
    client.attach_receiver(1, "orders");
    assert_eq!(messages(&client.credit(1, 0, count, false)).len(), count as usize);
    client
}

fn left(shared: &SharedState, path: &str) -> u64 {
    let counts = shared.with(|broker, _| broker.find(path).map(|entity| broker.counts(entity))).unwrap();
    counts.active + counts.locked + counts.deferred
}

#[test]
fn a_range_is_completed_and_confirmed_as_one() {
    let shared = shared();
    let mut client = holding(&shared, 3);
    let said = client.settle(1, 3, DeliveryState::Accepted);
    let [(Performative::Disposition(answer), _)] = &said[..] else { panic!("{said:?}") };
    assert_eq!((answer.receiver, answer.first, answer.last, answer.settled), (false, 1, 3, true));
    assert_eq!(left(&shared, "orders"), 0);
}

#[test]
fn a_rejected_message_is_dead_lettered_with_its_reason_and_the_echo_has_no_error() {
    let shared = shared();
    let mut client = holding(&shared, 1);
    let info = Map::new()
        .with_symbol("DeadLetterReason", "why")
        .with_symbol("DeadLetterErrorDescription", "because")
        .with_symbol("nothing", Value::Null)
        .with_symbol("more", 7i32);
    let error = AmqpError { condition: "com.microsoft:dead-letter".into(), description: None, info };
    let said = client.settle(1, 1, DeliveryState::Rejected(Some(error)));
    assert_eq!(outcome_of(&said), DeliveryState::Rejected(None));
    client.attach_receiver(2, "orders/$DeadLetterQueue");
    let dead = messages(&client.credit(2, 0, 1, false)).remove(0);
    let text = |key| dead.application_properties.get(key).and_then(Value::as_text);
    assert_eq!(
        (text("DeadLetterReason"), text("DeadLetterErrorDescription")),
        (Some("why"), Some("because"))
    );
    assert_eq!(dead.application_properties.get("more"), Some(&Value::Int(7)));
    let said = client.settle(2, 2, DeliveryState::Rejected(None));
    assert_eq!(rejection(&outcome_of(&said)), Some("amqp:not-allowed"), "not out of a dead-letter queue");
}

#[test]
fn an_abandoned_message_counts_and_a_released_one_does_not() {
    let shared = shared();
    let mut client = holding(&shared, 1);
    assert_eq!(outcome_of(&client.settle(1, 1, DeliveryState::Released)), DeliveryState::Released);
    let again = messages(&client.credit(1, 1, 1, false));
    assert_eq!(again[0].header.delivery_count, 0);
    let properties = Map::new().with("seen", true);
    client.settle(2, 2, DeliveryState::Modified { undeliverable_here: false, annotations: properties });
    let again = messages(&client.credit(1, 2, 1, false));
    assert_eq!(again[0].header.delivery_count, 1);
    assert_eq!(again[0].application_properties.get("seen"), Some(&Value::Bool(true)));
}

#[test]
fn a_lock_that_ran_out_is_told_and_an_unknown_delivery_too() {
    let shared = shared();
    let mut client = holding(&shared, 1);
    shared.clock.advance(Duration::from_secs(61)).expect("a short step");
    let said = client.settle(1, 1, DeliveryState::Accepted);
    assert_eq!(rejection(&outcome_of(&said)), Some("com.microsoft:message-lock-lost"));
    assert_eq!(left(&shared, "orders"), 1);
    let said = client.settle(99, 99, DeliveryState::Accepted);
    assert_eq!(rejection(&outcome_of(&said)), Some("amqp:not-found"));
}

#[test]
fn a_deferred_message_is_received_by_its_number_and_completed_by_its_token() {
    let shared = shared();
    let mut client = holding(&shared, 1);
    client.settle(1, 1, DeliveryState::Modified { undeliverable_here: true, annotations: Map::new() });
    client.attach_sender(2, "orders/$management");
    client.attach_receiver(3, "orders/$management");
    client.credit(3, 0, 100, false);
    let numbers = Value::Array(vec![Value::Long(1)]);
    let request = Map::new().with("sequence-numbers", numbers).with("receiver-settle-mode", 1u8);
    let (status, _, body) = client.ask((2, 3), "com.microsoft:receive-by-sequence-number", request.clone());
    assert_eq!(status, 200);
    let entry = body.get("messages").and_then(Value::as_items).unwrap()[0].as_map().cloned().unwrap();
    let token = entry.get("lock-token").cloned();
    let message = entry.get("message").and_then(Value::as_binary).unwrap();
    let annotations = Message::decode(message).unwrap().delivery_annotations;
    assert_eq!(annotations.get("x-opt-lock-token").cloned(), token, "where older clients look for it");
    let (status, condition, _) = client.ask((2, 3), "com.microsoft:receive-by-sequence-number", request);
    assert_eq!(
        (status, condition.as_deref()),
        (404, Some("com.microsoft:message-not-found")),
        "it is locked"
    );
    let request = Map::new()
        .with("disposition-status", "completed")
        .with("lock-tokens", Value::Array(vec![token.unwrap()]));
    assert_eq!(client.ask((2, 3), "com.microsoft:update-disposition", request.clone()).0, 200);
    assert_eq!(client.ask((2, 3), "com.microsoft:update-disposition", request).0, 410);
    assert_eq!(left(&shared, "orders"), 0);
}

#[test]
fn a_request_that_makes_no_sense_is_refused() {
    let mut client = Client::connect(&shared());
    client.attach_sender(2, "orders/$management");
    client.attach_receiver(3, "orders/$management");
    client.credit(3, 0, 100, false);
    for operation in ["nonsense", "com.microsoft:renew-lock", "com.microsoft:schedule-message"] {
        assert_eq!(client.ask((2, 3), operation, Map::new()).0, 400, "{operation}");
    }
    assert_eq!(client.ask((2, 3), "com.microsoft:peek-message", Map::new()).0, 204);
}

#[test]
fn a_lost_reply_leaves_the_message_completed_and_a_refusal_leaves_it_locked() {
    let shared = shared();
    let mut client = holding(&shared, 2);
    shared.faults.add(Fault::new(Step::Settle, Effect::LoseReply).on("orders"));
    shared.faults.add(Fault::new(Step::Settle, Effect::server_busy()).on("orders"));
    assert!(client.settle(1, 1, DeliveryState::Accepted).is_empty());
    let said = client.settle(2, 2, DeliveryState::Accepted);
    assert_eq!(rejection(&outcome_of(&said)), Some("com.microsoft:server-busy"));
    assert_eq!(left(&shared, "orders"), 1);
}

#[test]
fn a_late_reply_comes_when_its_time_has_come() {
    let shared = shared();
    let mut client = holding(&shared, 1);
    shared.faults.add(Fault::new(Step::Settle, Effect::DelayReply(Duration::from_secs(5))));
    assert!(client.settle(1, 1, DeliveryState::Accepted).is_empty());
    assert!(client.wait(Duration::from_secs(4)).is_empty());
    assert_eq!(outcome_of(&client.wait(Duration::from_secs(1))), DeliveryState::Accepted);
}

#[test]
fn a_connection_that_is_dropped_says_nothing_and_what_it_sent_is_stored() {
    let shared = shared();
    let mut client = Client::connect(&shared);
    client.attach_sender(0, "orders");
    shared.faults.add(Fault::new(Step::Send, Effect::DropConnection));
    assert!(client.transfer(0, &message("a").to_bytes(), None).is_empty());
    assert!(client.connection.is_over() && client.connection.is_dropped());
    assert_eq!(left(&shared, "orders"), 1);
}
