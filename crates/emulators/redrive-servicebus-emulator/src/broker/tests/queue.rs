//! A plain queue: locks, settling, delivery counts.

use super::*;

#[test]
fn messages_come_in_the_order_in_which_they_were_sent_and_each_once() {
    let mut bench = Bench::queue(Settings::default());
    for id in ["a", "b", "c"] {
        bench.send("q", message(id));
    }
    let ids: Vec<_> = (0..3).map(|_| id_of(&bench.take("Q"))).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(bench.receive("q"), None);
}

#[test]
fn a_completed_message_is_gone_and_its_lock_too() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let a = bench.take("q");
    assert_eq!(bench.complete(&a), Ok(()));
    assert_eq!(bench.complete(&a), Err(BrokerError::MessageLockLost { path: "q".into() }));
    assert_eq!(bench.counts("q"), Counts::default());
}

#[test]
fn a_lock_holds_for_its_duration_and_then_the_delivery_counts_as_failed() {
    let mut bench = Bench::queue(Settings { lock_duration: seconds(30), ..Settings::default() });
    bench.send("q", message("a"));
    let a = bench.take("q");
    assert_eq!(a.locked_until, Some(bench.now + seconds(30)));
    bench.pass(seconds(29));
    assert_eq!(bench.receive("q"), None);
    bench.pass(seconds(1));
    assert_eq!(bench.complete(&a), Err(BrokerError::MessageLockLost { path: "q".into() }));
    assert_eq!(bench.take("q").delivery_count, 1);
}

#[test]
fn a_renewed_lock_holds_for_its_full_duration_again_and_counts_nothing() {
    let mut bench = Bench::queue(Settings { lock_duration: seconds(30), ..Settings::default() });
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.pass(seconds(20));
    let (at, token) = (a.entity, a.lock_token.expect("locked"));
    assert_eq!(bench.broker.renew(at, &[token], bench.now), Ok(vec![bench.now + seconds(30)]));
    bench.pass(seconds(29));
    assert_eq!(bench.settle(&a, &Settlement::Release), Ok(()));
    assert_eq!(bench.take("q").delivery_count, 0);
}

#[test]
fn an_abandoned_message_goes_back_to_its_place_and_is_counted() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    bench.send("q", message("b"));
    let a = bench.take("q");
    let properties = Map::new().with("why", "not now");
    assert_eq!(bench.settle(&a, &Settlement::Abandon { properties }), Ok(()));
    let again = bench.take("q");
    assert_eq!(
        (id_of(&again).as_str(), again.delivery_count, text(&again, "why")),
        ("a", 1, Some("not now"))
    );
    assert_eq!(again.sequence_number, a.sequence_number);
}

#[test]
fn a_released_message_is_not_counted() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let a = bench.take("q");
    assert_eq!(bench.settle(&a, &Settlement::Release), Ok(()));
    assert_eq!(bench.take("q").delivery_count, 0);
}

#[test]
fn at_the_limit_of_deliveries_the_broker_dead_letters() {
    let mut bench = Bench::queue(Settings { max_delivery_count: 2, ..Settings::default() });
    bench.send("q", message("a"));
    for _ in 0..2 {
        let a = bench.take("q");
        bench.settle(&a, &abandon()).expect("locked");
    }
    assert_eq!(bench.receive("q"), None);
    let dead = bench.take("q/$deadletterqueue");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("MaxDeliveryCountExceeded"));
    assert_eq!(dead.delivery_count, 2);
}

#[test]
fn a_dead_letter_keeps_number_time_body_and_properties_and_gets_its_reason() {
    let mut bench = Bench::queue(Settings::default());
    let mut sent = message("a");
    sent.application_properties.insert("mine", 7i32);
    bench.send("q", message("first"));
    bench.send("q", sent.clone());
    let first = bench.take("q");
    bench.complete(&first).expect("locked");
    let a = bench.take("q");
    bench.pass(seconds(5));
    bench.settle(&a, &dead_letter("bad", "very bad")).expect("locked");
    let dead = bench.take("q/$DeadLetterQueue");
    assert_eq!((dead.sequence_number, dead.enqueued_at), (a.sequence_number, a.enqueued_at));
    assert_eq!(dead.message.body, sent.body);
    assert_eq!(dead.message.application_properties.get("mine"), Some(&Value::Int(7)));
    assert_eq!(text(&dead, "DeadLetterReason"), Some("bad"));
    assert_eq!(text(&dead, "DeadLetterErrorDescription"), Some("very bad"));
}

#[test]
fn a_dead_letter_cannot_be_dead_lettered_nor_sent_and_is_not_counted() {
    let mut bench = Bench::queue(Settings { max_delivery_count: 1, ..Settings::default() });
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.settle(&a, &abandon()).expect("locked");
    for _ in 0..3 {
        let dead = bench.take("q/$deadletterqueue");
        assert_eq!(dead.delivery_count, 1);
        let refused = bench.settle(&dead, &dead_letter("again", ""));
        assert!(matches!(refused, Err(BrokerError::NotAllowed { .. })), "{refused:?}");
        bench.settle(&dead, &abandon()).expect("locked");
    }
    let refused = bench.try_send("q/$deadletterqueue", message("b"));
    assert!(matches!(refused, Err(BrokerError::NotAllowed { .. })), "{refused:?}");
}

#[test]
fn what_is_received_and_deleted_is_gone_at_once() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let q = bench.id("q");
    let received =
        bench.broker.receive(q, ME, ReceiveMode::ReceiveAndDelete, 10, bench.now).expect("a queue");
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].lock_token, received[0].locked_until), (None, None));
    assert_eq!(bench.counts("q"), Counts::default());
    assert_eq!(bench.broker.tally(q).completed, 1);
}

#[test]
fn a_lock_outlives_its_receiver() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.broker.release_receiver(ME, bench.now);
    assert_eq!(bench.receive_as(OTHER, "q"), None);
    assert_eq!(bench.complete(&a), Ok(()));
}

#[test]
fn several_locks_are_settled_or_renewed_all_or_none() {
    let mut bench = Bench::queue(Settings::default());
    for id in ["a", "b"] {
        bench.send("q", message(id));
    }
    let (a, b) = (bench.take("q"), bench.take("q"));
    let tokens = [a.lock_token.expect("locked"), b.lock_token.expect("locked"), Uuid::nil()];
    let lost = BrokerError::MessageLockLost { path: "q".into() };
    assert_eq!(bench.broker.settle(a.entity, &tokens, &Settlement::Complete, bench.now), Err(lost.clone()));
    assert_eq!(bench.broker.renew(a.entity, &tokens, bench.now), Err(lost));
    assert_eq!(bench.counts("q").locked, 2);
    assert_eq!(bench.broker.settle(a.entity, &tokens[..2], &Settlement::Complete, bench.now), Ok(()));
}

#[test]
fn a_receiver_is_woken_by_a_message_that_comes_or_comes_back() {
    let mut bench = Bench::queue(Settings { lock_duration: seconds(30), ..Settings::default() });
    let q = bench.id("q");
    bench.send("q", message("a"));
    assert_eq!(bench.broker.take_wakes(), [Wake::Entity(q)]);
    bench.take("q");
    assert_eq!(bench.broker.take_wakes(), []);
    assert_eq!(bench.broker.next_deadline(), Some(bench.now + seconds(30)));
    bench.pass(seconds(30));
    assert_eq!(bench.broker.take_wakes(), [Wake::Entity(q)]);
    assert_eq!(bench.broker.next_deadline(), None);
}
