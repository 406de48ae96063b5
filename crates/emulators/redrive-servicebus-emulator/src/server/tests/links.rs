use super::*;
use crate::server::mailbox::Detaching;

#[test]
fn a_sender_is_given_credit_and_its_message_is_stored() {
    let mut client = Client::connect(&shared());
    let said = client.attach_sender(0, "orders");
    assert!(
        matches!(&said[0].0, Performative::Attach(attach) if attach.receiver && attach.max_message_size.is_some())
    );
    assert!(matches!(&said[1].0, Performative::Flow(flow) if flow.link_credit == Some(1000)));
    assert_eq!(client.send(0, &message("a"), None), DeliveryState::Accepted);
    client.attach_receiver(1, "amqps://localhost:1/ORDERS");
    let said = client.credit(1, 0, 1, false);
    assert_eq!(messages(&said)[0].body, message("a").body);
    assert_eq!(transfers(&said)[0].delivery_tag.as_ref().map(Bytes::len), Some(16));
}

#[test]
fn an_unknown_entity_is_attached_to_nothing_and_then_detached() {
    let mut client = Client::connect(&shared());
    let said = client.attach_receiver(0, "nowhere");
    assert!(matches!(&said[0].0, Performative::Attach(attach) if attach.source.is_null()));
    assert_eq!(detach_error(&said).unwrap().condition, "amqp:not-found");
    let said = client.attach_sender(1, "nowhere");
    assert!(matches!(&said[0].0, Performative::Attach(attach) if attach.target.is_null()));
}

/// Clients ignore the detach of a link that is not attached yet.
#[test]
fn a_link_that_waits_for_a_session_is_refused_and_not_only_detached() {
    let mut client = Client::connect(&shared());
    assert!(client.attach_session(0, "sessions", Value::Null).is_empty(), "there is no session");
    client.mailbox.post(|mail| mail.detach.push(Detaching::forced("sessions")));
    let said = client.hear();
    assert!(matches!(&said[0].0, Performative::Attach(attach) if attach.source.is_null()), "{said:?}");
    assert_eq!(detach_error(&said).unwrap().condition, "amqp:link:detach-forced");
}

#[test]
fn a_link_that_waits_gets_a_message_once_there_is_one() {
    let shared = shared();
    let mut receiver = Client::connect(&shared);
    receiver.attach_receiver(0, "orders");
    assert!(receiver.credit(0, 0, 5, false).is_empty());
    let mut sender = Client::connect(&shared);
    sender.attach_sender(0, "orders");
    sender.send(0, &message("a"), None);
    assert_eq!(messages(&receiver.hear()).len(), 1);
}

#[test]
fn credit_bounds_what_is_handed_out_and_draining_gives_the_rest_back() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    for _ in 0..3 {
        client.send(0, &message("a"), None);
    }
    client.attach_receiver(1, "orders");
    assert_eq!(messages(&client.credit(1, 0, 2, false)).len(), 2);
    let said = client.credit(1, 2, 10, true);
    assert_eq!(messages(&said).len(), 1, "what is there comes first");
    let Some((Performative::Flow(flow), _)) = said.last() else { panic!("no flow in {said:?}") };
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(12), Some(0), true));
    client.send(0, &message("b"), None);
    assert!(client.hear().is_empty(), "no credit is left");
}

#[test]
fn a_drain_that_crosses_the_last_delivery_is_answered_too() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    client.attach_receiver(1, "orders");
    client.credit(1, 0, 1, false);
    client.send(0, &message("a"), None);
    let said = client.credit(1, 0, 1, true);
    assert!(
        matches!(&said[..], [(Performative::Flow(flow), _)] if flow.drain && flow.link_credit == Some(0))
    );
}

#[test]
fn an_echo_is_answered_with_where_the_link_stands() {
    let mut client = Client::connect(&shared());
    client.attach_receiver(0, "orders");
    let flow = Flow {
        handle: Some(0),
        link_credit: Some(3),
        delivery_count: Some(0),
        echo: true,
        ..Flow::default()
    };
    let said = client.say(&Performative::Flow(flow));
    assert!(
        matches!(&said[..], [(Performative::Flow(flow), _)] if flow.link_credit == Some(3) && flow.handle == Some(0))
    );
}

#[test]
fn a_large_message_is_split_by_the_clients_frames_and_waits_for_its_window() {
    let shared = shared();
    let mut client = Client::connect_with_frames_of(&shared, 512);
    client.attach_sender(0, "orders");
    let body: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
    client.send(0, &Message::with_data(body.clone()), None);
    client.attach_receiver(1, "orders");
    let narrow = Flow {
        next_incoming_id: Some(1),
        incoming_window: 2,
        handle: Some(1),
        delivery_count: Some(0),
        link_credit: Some(1),
        ..Flow::default()
    };
    let mut said = client.say(&Performative::Flow(narrow));
    assert_eq!(transfers(&said).len(), 2);
    let wide = Flow { next_incoming_id: Some(3), incoming_window: 100, ..Flow::default() };
    said.extend(client.say(&Performative::Flow(wide)));
    let more: Vec<_> = transfers(&said).iter().map(|transfer| transfer.more).collect();
    assert!(more.len() > 4 && !more[more.len() - 1] && more[..more.len() - 1].iter().all(|more| *more));
    let whole: Vec<u8> = said.iter().flat_map(|(_, payload)| payload.to_vec()).collect();
    assert_eq!(Message::decode(&whole).unwrap().data(), Ok(vec![Bytes::from(body)]));
}

#[test]
fn what_a_client_sends_in_parts_is_put_together() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    let bytes = message("a long history").to_bytes();
    let (front, back) = bytes.split_at(7);
    let first = Transfer { delivery_id: Some(0), more: true, ..Transfer::default() };
    assert!(client.say_with(&Performative::Transfer(first), front).is_empty());
    let said = client.say_with(&Performative::Transfer(Transfer::default()), back);
    assert_eq!(outcome_of(&said), DeliveryState::Accepted);
    let aborted = Transfer { delivery_id: Some(1), more: true, ..Transfer::default() };
    client.say_with(&Performative::Transfer(aborted), front);
    client.say(&Performative::Transfer(Transfer { aborted: true, ..Transfer::default() }));
    let entity = client.shared.with(|broker, _| broker.find("orders")).unwrap();
    assert_eq!(client.shared.with(|broker, _| broker.counts(entity)).active, 1);
}

#[test]
fn a_session_is_named_in_the_answer_and_held_by_one() {
    let shared = shared();
    let mut one = Client::connect(&shared);
    let said = one.attach_session(0, "sessions", "a".into());
    let Some((Performative::Attach(attach), _)) = said.first() else { panic!("no attach in {said:?}") };
    assert!(attach.properties.get("com.microsoft:locked-until-utc").is_some());
    let mut other = Client::connect(&shared);
    let said = other.attach_session(0, "sessions", "a".into());
    assert_eq!(detach_error(&said).unwrap().condition, "com.microsoft:session-cannot-be-locked");
    one.say(&Performative::Detach(crate::amqp::performative::Detach {
        handle: 0,
        closed: true,
        error: None,
    }));
    assert_eq!(detach_error(&other.attach_session(1, "sessions", "a".into())), None);
}

#[test]
fn who_asks_for_the_next_session_waits_for_it_or_is_told_that_there_is_none() {
    let shared = shared();
    let mut client = Client::connect(&shared);
    assert!(client.attach_session(0, "sessions", Value::Null).is_empty());
    let mut sender = Client::connect(&shared);
    sender.attach_sender(0, "sessions");
    let mut message = message("a");
    message.properties.group_id = Some("s".into());
    sender.send(0, &message, None);
    let said = client.hear();
    assert!(matches!(&said[..], [(Performative::Attach(_), _)]), "{said:?}");
    assert_eq!(messages(&client.credit(0, 0, 1, false)).len(), 1);
    assert!(client.attach_session(1, "sessions", Value::Null).is_empty());
    let said = client.wait(Duration::from_secs(61));
    assert_eq!(detach_error(&said).unwrap().condition, "com.microsoft:timeout");
}

#[test]
fn a_session_lock_that_runs_out_detaches_its_link() {
    let shared = shared();
    let mut client = Client::connect(&shared);
    client.attach_session(0, "sessions", "a".into());
    shared.clock.advance(Duration::from_secs(61)).expect("a short step");
    shared.with(Broker::advance);
    assert_eq!(detach_error(&client.hear()).unwrap().condition, "com.microsoft:session-lock-lost");
}

#[test]
fn a_detach_that_crosses_ours_is_not_answered() {
    let mut client = Client::connect(&shared());
    client.attach_receiver(0, "orders");
    client.mailbox.post(|mail| mail.detach.push(Detaching::forced("Orders")));
    assert_eq!(detach_error(&client.hear()).unwrap().condition, "amqp:link:detach-forced");
    let detach = crate::amqp::performative::Detach { handle: 0, closed: true, error: None };
    assert!(client.say(&Performative::Detach(detach)).is_empty());
    assert!(detach_error(&client.attach_receiver(0, "orders")).is_none(), "the handle is free again");
}
