use super::*;

fn close_error(said: &[Said]) -> Option<String> {
    said.iter().find_map(|(performative, _)| match performative {
        Performative::Close(error) => error.as_ref().map(|error| error.condition.clone()),
        _ => None,
    })
}

#[test]
fn a_message_beyond_the_limit_is_refused_and_not_kept() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    let part = vec![0; 60_000];
    for _ in 0..10 {
        let transfer = Transfer { delivery_id: Some(0), more: true, ..Transfer::default() };
        client.say_with(&Performative::Transfer(transfer), &part);
    }
    let said = client.say_with(&Performative::Transfer(Transfer::default()), &part);
    assert_eq!(rejection(&outcome_of(&said)), Some("amqp:link:message-size-exceeded"));
}

#[test]
fn what_is_no_message_is_refused_and_the_link_goes_on() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    for payload in [&[0xff, 1, 2][..], &[0x00, 0x53, 0x75, 0xa0, 200][..], &[0x00, 0x53, 0x99, 0x45][..]] {
        let said = client.transfer(0, payload, None);
        assert_eq!(rejection(&outcome_of(&said)), Some("amqp:decode-error"), "{payload:x?}");
    }
    assert_eq!(client.send(0, &message("a"), None), DeliveryState::Accepted);
}

#[test]
fn a_batch_is_as_many_messages_as_it_has_sections_or_none() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    let sections = |last: &[u8]| {
        let mut bytes = message("ignored").to_bytes().to_vec();
        bytes.truncate(bytes.len() - message("ignored").body.len());
        for section in [&message("a").to_bytes()[..], last] {
            bytes.extend_from_slice(&Message::with_data(section.to_vec()).body);
        }
        bytes
    };
    let mut send = |bytes: &[u8]| {
        let transfer = Transfer { delivery_id: Some(0), message_format: 0x8001_3700, ..Transfer::default() };
        outcome_of(&client.say_with(&Performative::Transfer(transfer), bytes))
    };
    assert_eq!(rejection(&send(&sections(&[0xff]))), Some("amqp:decode-error"));
    assert_eq!(send(&sections(&message("b").to_bytes())), DeliveryState::Accepted);
    client.attach_receiver(1, "orders");
    assert_eq!(messages(&client.credit(1, 0, 10, false)).len(), 2);
}

#[test]
fn nonsense_closes_the_connection_with_a_reason() {
    for nonsense in
        [&[0xff_u8; 40][..], &[0, 0, 0, 12, 2, 0, 0, 0, 0, 0x53, 0x99, 0x45], b"GET / HTTP/1.1\r\n\r\n"]
    {
        let mut client = Client::connect(&shared());
        let now = client.now;
        client.connection.receive(&mut BytesMut::from(nonsense), now);
        assert!(close_error(&client.hear()).is_some(), "{nonsense:x?}");
        assert!(client.connection.is_over());
    }
}

#[test]
fn handles_and_channels_are_bounded() {
    let mut client = Client::connect(&shared());
    assert!(close_error(&client.attach_sender(256, "orders")).is_some());
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    assert_eq!(
        close_error(&client.attach_sender(0, "orders")).as_deref(),
        Some("amqp:session:handle-in-use")
    );
}

#[test]
fn a_client_that_takes_no_answers_is_closed_before_they_are_too_many() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    for _ in 0..200 {
        client.send(0, &Message::with_data(vec![0; 60_000]), None);
    }
    client.attach_sender(1, "orders/$management");
    client.attach_receiver(2, "orders/$management");
    let mut request = Message::with_value(&Value::Map(Map::new().with("message-count", 1000i32)));
    request.application_properties.insert("operation", "com.microsoft:peek-message");
    let closed = (0..200).find_map(|_| close_error(&client.transfer(1, &request.to_bytes(), None)));
    assert_eq!(closed.as_deref(), Some("amqp:resource-limit-exceeded"));
}

#[test]
fn with_keys_nothing_is_attached_before_a_token_is_put() {
    let shared = hub_with(Keys::new(vec![("root".into(), "secret".into())]));
    let mut client = Client::connect(&shared);
    let said = client.attach_sender(0, "orders");
    assert_eq!(detach_error(&said).unwrap().condition, "amqp:unauthorized-access");
    client.attach_sender(1, "$cbs");
    client.attach_receiver(2, "$cbs");
    client.credit(2, 0, 10, false);
    let mut request = Message::with_value(&"SharedAccessSignature sr=a&sig=b&se=1&skn=root".into());
    request.application_properties.insert("operation", "put-token");
    let said = client.transfer(1, &request.to_bytes(), None);
    let answer = messages(&said).remove(0);
    assert_eq!(answer.application_properties.get("status-code"), Some(&Value::Int(401)));
}

#[test]
fn a_silent_client_is_closed_and_a_listening_one_kept_alive() {
    let mut client = Client::connect(&shared());
    assert!(client.wait(Duration::from_secs(470)).is_empty());
    assert_eq!(close_error(&client.wait(Duration::from_secs(20))).as_deref(), Some("amqp:connection:forced"));
}

#[test]
fn a_client_that_takes_nothing_is_kept_alive_once() {
    let mut client = Client::connect(&shared());
    client.connection.keep_alive = Some(Duration::from_secs(12));
    client.now += Duration::from_secs(240);
    for _ in 0..3 {
        client.connection.on_time(client.now);
    }
    assert_eq!(client.connection.unsent(), 8, "one empty frame");
    assert!(
        client.connection.next_deadline().is_some_and(|next| next > client.now),
        "and then a while nothing"
    );
}
