//! Sizes, quotas, lengths, and duplicates.

use super::*;

fn sized(id: &str, bytes: usize) -> Message {
    let mut message = Message::with_data(vec![0; bytes]);
    message.properties.message_id = id.into();
    message
}

#[test]
fn a_message_or_batch_that_is_too_large_is_refused_whole() {
    let mut bench = Bench::queue(Settings { max_message_size: 1000, ..Settings::default() });
    let refused = bench.try_send("q", sized("a", 1001));
    assert!(matches!(refused, Err(BrokerError::MessageSizeExceeded { limit: 1000, .. })), "{refused:?}");
    let q = bench.id("q");
    let batch = vec![sized("a", 600).into(), sized("b", 600).into()];
    assert!(bench.broker.send(q, batch, bench.now).is_err());
    assert_eq!(bench.counts("q"), Counts::default());
    bench.send("q", sized("a", 800));
}

#[test]
fn a_full_queue_takes_no_more_until_there_is_room() {
    let mut bench = Bench::queue(Settings { max_size: 2000, ..Settings::default() });
    bench.send("q", sized("a", 1500));
    let refused = bench.try_send("q", sized("b", 1500));
    assert!(matches!(refused, Err(BrokerError::QuotaExceeded { limit: 2000, .. })), "{refused:?}");
    let a = bench.take("q");
    bench.settle(&a, &dead_letter("bad", "")).expect("locked");
    assert!(bench.try_send("q", sized("b", 1500)).is_err(), "dead letters count too");
    let dead = bench.take("q/$deadletterqueue");
    bench.complete(&dead).expect("locked");
    assert_eq!(bench.broker.used_bytes(bench.id("q")), 0);
    bench.send("q", sized("b", 1500));
}

#[test]
fn the_copies_of_subscriptions_count_against_their_topic() {
    let topic = Topic::new("t", Settings { max_size: 4000, ..Settings::default() })
        .subscription("a", Settings::default())
        .subscription("b", Settings::default());
    let mut bench = Bench::new(&Namespace::default().topic(topic));
    bench.send("t", sized("1", 1500));
    bench.send("t", sized("2", 200));
    assert!(bench.try_send("t", sized("3", 1500)).is_err());
}

#[test]
fn ids_and_reasons_that_are_too_long_are_refused() {
    let mut bench = Bench::queue(Settings::default());
    let long = "é".repeat(129);
    for refused in [bench.try_send("q", message(&long)), bench.try_send("q", in_session("a", &long))] {
        assert!(matches!(refused, Err(BrokerError::Argument { .. })), "{refused:?}");
    }
    bench.send("q", message(&"é".repeat(128)));
    let a = bench.take("q");
    let refused = bench.settle(&a, &dead_letter(&"😀".repeat(2049), ""));
    assert!(matches!(refused, Err(BrokerError::Argument { .. })), "{refused:?}");
    assert_eq!(bench.settle(&a, &dead_letter(&"😀".repeat(2048), "x")), Ok(()));
}

#[test]
fn properties_cannot_grow_a_message_without_bound() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let settle = |bench: &mut Bench, key: &str| {
        let a = bench.take("q");
        let properties = Map::new().with(key, "x".repeat(40_000));
        let settled = bench.settle(&a, &Settlement::Abandon { properties });
        if settled.is_err() {
            bench.settle(&a, &Settlement::Release).expect("locked");
        }
        settled
    };
    assert_eq!(settle(&mut bench, "one"), Ok(()));
    let refused = settle(&mut bench, "two");
    assert!(matches!(refused, Err(BrokerError::MessageSizeExceeded { .. })), "{refused:?}");
    let mut large = message("b");
    large.application_properties.insert("x", "x".repeat(70_000));
    assert!(matches!(bench.try_send("q", large), Err(BrokerError::MessageSizeExceeded { .. })));
}

#[test]
fn a_message_whose_id_was_seen_within_the_window_is_dropped_silently() {
    let mut bench = Bench::queue(Settings { duplicate_detection: Some(seconds(60)), ..Settings::default() });
    bench.send("q", message("a"));
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.complete(&a).expect("locked");
    bench.pass(seconds(59));
    bench.send("q", message("a"));
    assert_eq!(bench.counts("q"), Counts::default());
    bench.pass(seconds(1));
    bench.send("q", message("a"));
    assert_eq!(bench.counts("q").active, 1);
    assert_eq!(bench.broker.tally(bench.id("q")).duplicates, 2);
}

#[test]
fn a_scheduled_message_is_a_duplicate_too() {
    let mut bench = Bench::queue(Settings { duplicate_detection: Some(seconds(60)), ..Settings::default() });
    bench.send("q", message("a"));
    bench.send("q", scheduled("a", bench.now + seconds(10)));
    assert_eq!(bench.ids("q"), ["a"]);
    bench.send("q", scheduled("b", bench.now + seconds(10)));
    bench.send("q", message("b"));
    bench.pass(seconds(10));
    assert_eq!(bench.ids("q"), ["a", "b"], "becoming active is no second coming");
}

#[test]
fn messages_without_an_id_get_one_each() {
    let mut bench = Bench::queue(Settings { duplicate_detection: Some(seconds(60)), ..Settings::default() });
    bench.send("q", Message::with_data("a"));
    bench.send("q", Message::with_data("b"));
    let ids = bench.ids("q");
    assert!(ids.len() == 2 && ids[0] != ids[1] && !ids[0].is_empty(), "{ids:?}");
}

#[test]
fn a_delivery_carries_what_clients_read() {
    let mut bench = Bench::queue(Settings::default());
    let mut sent = message("a");
    sent.message_annotations.insert_symbol("x-opt-partition-key", "p");
    bench.send("q", sent.clone());
    let a = bench.take("q");
    let delivered = a.to_message();
    let annotation = |key: &str| delivered.message_annotations.get(key).cloned();
    assert_eq!(annotation("x-opt-sequence-number"), Some(Value::Long(1)));
    assert_eq!(annotation("x-opt-enqueued-time"), Some(Value::Timestamp(bench.now.millis())));
    let until = (bench.now + seconds(60)).millis();
    assert_eq!(annotation("x-opt-locked-until"), Some(Value::Timestamp(until)));
    assert_eq!(annotation("x-opt-message-state"), Some(Value::Int(0)));
    assert_eq!(annotation("x-opt-partition-key"), Some(Value::from("p")));
    assert_eq!((delivered.body, delivered.properties), (sent.body, sent.properties));
}

#[test]
fn an_entity_that_does_not_exist_is_named() {
    let bench = Bench::queue(Settings::default());
    for path in ["nothing", "", "/", "q/q", "q/subscriptions/s"] {
        assert_eq!(bench.broker.find(path), Err(BrokerError::EntityNotFound { path: path.into() }));
    }
    assert!(bench.broker.find("/Q/").is_ok());
}

#[test]
fn settings_that_azure_refuses_are_refused_with_the_limit() {
    let days = |days: u64| seconds(days * 24 * 3600);
    let with = |change: &dyn Fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings
    };
    for (settings, limit) in [
        (with(&|settings| settings.max_delivery_count = 2001), "2000"),
        (with(&|settings| settings.max_delivery_count = 0), "1"),
        (with(&|settings| settings.duplicate_detection = Some(days(8))), "7 days"),
        (with(&|settings| settings.duplicate_detection = Some(seconds(19))), "20 seconds"),
        (with(&|settings| settings.lock_duration = seconds(301)), "5 minutes"),
        (with(&|settings| settings.lock_duration = seconds(0)), "longer than nothing"),
        (with(&|settings| settings.default_time_to_live = Some(seconds(0))), "longer than nothing"),
        (with(&|settings| settings.max_message_size = (100 << 20) + 1), "102400"),
        (with(&|settings| settings.max_size = 0), "at least 1"),
    ] {
        let queue = Namespace::default().queue("q", settings.clone());
        let topic = Topic::new("t", settings.clone());
        for namespace in [queue, Namespace::default().topic(topic)] {
            let error = Broker::new(&namespace, 1).expect_err(limit);
            assert!(error.reason.contains(limit), "{error}");
        }
    }
}
