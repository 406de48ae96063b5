//! Deferred, scheduled, peeked and expired messages.

use super::*;

impl Bench {
    fn schedule(&mut self, to: &str, message: Message) -> SequenceNumber {
        let to = self.id(to);
        self.broker.schedule(to, vec![message.into()], self.now).expect("a message that is taken")[0]
    }

    fn receive_deferred(
        &mut self,
        from: &str,
        numbers: &[SequenceNumber],
    ) -> Result<Vec<Delivered>, BrokerError> {
        let from = self.id(from);
        self.broker.receive_deferred(from, numbers, ReceiveMode::PeekLock, None, self.now)
    }

    fn defer_next(&mut self, from: &str) -> SequenceNumber {
        let delivered = self.take(from);
        self.settle(&delivered, &defer()).expect("locked");
        delivered.sequence_number
    }
}

#[test]
fn a_deferred_message_is_received_by_its_number_only() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    let number = bench.defer_next("q");
    assert_eq!(bench.receive("q"), None);
    let received = bench.receive_deferred("q", &[number]).expect("deferred");
    assert_eq!(id_of(&received[0]), "a");
    assert!(bench.receive_deferred("q", &[number]).is_err(), "it is locked");
    bench.complete(&received[0]).expect("locked");
    assert_eq!(bench.counts("q"), Counts::default());
}

#[test]
fn deferred_messages_are_received_all_or_none() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("a"));
    bench.send("q", message("b"));
    let number = bench.defer_next("q");
    for numbers in [vec![number, 2], vec![number, 99], vec![number, number]] {
        let refused = bench.receive_deferred("q", &numbers);
        assert!(matches!(refused, Err(BrokerError::MessageNotFound { .. })), "{refused:?}");
    }
    assert_eq!(bench.counts("q"), Counts { active: 1, deferred: 1, ..Counts::default() });
}

#[test]
fn an_abandoned_deferred_message_stays_deferred_and_is_counted_to_its_limit() {
    let mut bench = Bench::queue(Settings { max_delivery_count: 2, ..Settings::default() });
    bench.send("q", message("a"));
    let number = bench.defer_next("q");
    for count in 0..2 {
        let received = bench.receive_deferred("q", &[number]).expect("deferred");
        assert_eq!(received[0].delivery_count, count);
        bench.settle(&received[0], &abandon()).expect("locked");
    }
    assert_eq!(bench.ids("q/$deadletterqueue"), ["a"]);
}

#[test]
fn a_deferred_message_outlives_its_time() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", living("a", seconds(10)));
    let number = bench.defer_next("q");
    bench.pass(seconds(60));
    assert_eq!(bench.receive_deferred("q", &[number]).map(|received| received.len()), Ok(1));
}

#[test]
fn a_scheduled_message_comes_at_its_time_under_a_new_number() {
    let mut bench = Bench::queue(Settings::default());
    let at = bench.now + seconds(10);
    let number = bench.schedule("q", scheduled("later", at));
    bench.send("q", message("now"));
    assert_eq!(id_of(&bench.take("q")), "now");
    assert_eq!(bench.receive("q"), None);
    assert_eq!(bench.broker.next_deadline(), Some(at));
    bench.pass(seconds(10));
    let later = bench.take("q");
    assert_eq!((id_of(&later).as_str(), later.enqueued_at), ("later", at));
    assert_ne!(later.sequence_number, number);
}

#[test]
fn a_message_that_is_sent_with_a_later_enqueue_time_is_scheduled() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", scheduled("later", bench.now + seconds(10)));
    bench.send("q", scheduled("earlier", bench.now - seconds(10)));
    assert_eq!(bench.counts("q"), Counts { active: 1, scheduled: 1, ..Counts::default() });
    assert_eq!(id_of(&bench.take("q")), "earlier");
}

#[test]
fn a_cancelled_message_does_not_come_and_cannot_be_cancelled_again() {
    let mut bench = Bench::queue(Settings::default());
    let number = bench.schedule("q", scheduled("later", bench.now + seconds(10)));
    let q = bench.id("q");
    assert_eq!(bench.broker.cancel(q, &[number], bench.now), Ok(()));
    let gone = Err(BrokerError::MessageNotFound { path: "q".into(), sequence_number: number });
    assert_eq!(bench.broker.cancel(q, &[number], bench.now), gone);
    bench.pass(seconds(60));
    assert_eq!(bench.receive("q"), None);
    assert_eq!(bench.broker.tally(q).cancelled, 1);
}

#[test]
fn a_message_that_became_active_cannot_be_cancelled() {
    let mut bench = Bench::queue(Settings::default());
    let number = bench.schedule("q", scheduled("later", bench.now + seconds(10)));
    bench.pass(seconds(10));
    let q = bench.id("q");
    assert!(bench.broker.cancel(q, &[number], bench.now).is_err());
    assert_eq!(bench.ids("q"), ["later"]);
}

#[test]
fn a_peek_shows_everything_and_locks_nothing() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", message("deferred"));
    bench.defer_next("q");
    bench.send("q", message("locked"));
    bench.take("q");
    bench.send("q", message("active"));
    bench.schedule("q", scheduled("scheduled", bench.now + seconds(10)));
    let q = bench.id("q");
    let peeked = bench.broker.peek(q, 0, 10, None, bench.now);
    let ids: Vec<_> = peeked.iter().map(id_of).collect();
    assert_eq!(ids, ["deferred", "locked", "active", "scheduled"]);
    assert!(peeked.iter().all(|peeked| peeked.lock_token.is_none() && peeked.locked_until.is_none()));
    let states: Vec<_> = peeked
        .iter()
        .map(|peeked| peeked.to_message().message_annotations.get("x-opt-message-state").cloned())
        .collect();
    assert_eq!(states, [1, 0, 0, 2].map(|state| Some(Value::Int(state))));
    let rest = bench.broker.peek(q, peeked[2].sequence_number, 1, None, bench.now);
    assert_eq!(rest.iter().map(id_of).collect::<Vec<_>>(), ["active"]);
}

#[test]
fn a_message_that_outlives_its_time_is_dropped_or_dead_lettered() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", living("a", seconds(10)));
    bench.pass(seconds(10));
    assert_eq!((bench.receive("q"), bench.receive("q/$deadletterqueue")), (None, None));
    assert_eq!(bench.broker.tally(bench.id("q")).expired, 1);
    let mut bench = Bench::queue(Settings { dead_letter_on_expiration: true, ..Settings::default() });
    bench.send("q", living("a", seconds(10)));
    bench.pass(seconds(10));
    assert_eq!(bench.receive("q"), None);
    let dead = bench.take("q/$deadletterqueue");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("TTLExpiredException"));
    bench.settle(&dead, &Settlement::Release).expect("locked");
    bench.pass(seconds(100_000));
    assert_eq!(bench.counts("q/$deadletterqueue").active, 1, "a dead-letter queue has no time to live");
}

#[test]
fn a_locked_message_expires_once_it_is_given_back() {
    let mut bench = Bench::queue(Settings::default());
    bench.send("q", living("a", seconds(10)));
    let a = bench.take("q");
    bench.pass(seconds(20));
    assert_eq!(bench.counts("q").locked, 1);
    bench.settle(&a, &Settlement::Release).expect("locked");
    assert_eq!(bench.counts("q"), Counts::default());
}

#[test]
fn the_queue_s_time_to_live_is_the_most_that_a_message_gets() {
    let mut bench = Bench::queue(Settings { default_time_to_live: Some(seconds(10)), ..Settings::default() });
    for message in [message("none"), living("longer", seconds(60)), living("shorter", seconds(5))] {
        bench.send("q", message);
    }
    let ttl: Vec<_> =
        bench.broker.messages(bench.id("q")).map(|delivered| delivered.to_message().header.ttl).collect();
    assert_eq!(ttl, [Some(10_000), Some(10_000), Some(5_000)]);
    bench.pass(seconds(5));
    assert_eq!(bench.ids("q"), ["none", "longer"]);
    bench.pass(seconds(5));
    assert_eq!(bench.ids("q"), Vec::<String>::new());
}

#[test]
fn a_scheduled_message_lives_from_the_time_when_it_becomes_active() {
    let mut bench = Bench::queue(Settings { default_time_to_live: Some(seconds(10)), ..Settings::default() });
    bench.schedule("q", scheduled("later", bench.now + seconds(60)));
    bench.pass(seconds(69));
    assert_eq!(bench.ids("q"), ["later"]);
    bench.pass(seconds(1));
    assert_eq!(bench.ids("q"), Vec::<String>::new());
}

#[test]
fn a_clock_that_leaps_gives_what_a_clock_that_creeps_gives() {
    let settings = Settings { default_time_to_live: Some(seconds(10)), ..Settings::default() };
    let mut bench = Bench::queue(settings);
    bench.schedule("q", scheduled("later", bench.now + seconds(60)));
    bench.pass(seconds(3600));
    assert_eq!(bench.ids("q"), Vec::<String>::new(), "it became active, and expired ten seconds later");
}

#[test]
fn a_clock_that_goes_back_changes_nothing() {
    let mut bench = Bench::queue(Settings { lock_duration: seconds(30), ..Settings::default() });
    bench.send("q", message("a"));
    bench.now = bench.now - seconds(100);
    let a = bench.take("q");
    bench.now = bench.now + seconds(129);
    assert_eq!(bench.complete(&a), Ok(()));
}
