//! Sessions: one holder each, in order.

use bytes::Bytes;

use super::*;

fn sessions() -> Bench {
    Bench::queue(Settings { requires_session: true, lock_duration: seconds(30), ..Settings::default() })
}

impl Bench {
    fn accept(&mut self, session: Option<&str>, receiver: ReceiverId) -> Result<Option<String>, BrokerError> {
        let q = self.id("q");
        let accepted = self.broker.accept_session(q, session, receiver, self.now)?;
        Ok(accepted.map(|accepted| accepted.session.to_string()))
    }
}

fn lost(session: &str) -> BrokerError {
    BrokerError::SessionLockLost { path: "q".into(), session: session.into() }
}

#[test]
fn the_next_session_is_the_one_with_the_oldest_message_that_nobody_holds() {
    let mut bench = sessions();
    for (id, session) in [("b1", "b"), ("a1", "a"), ("b2", "b")] {
        bench.send("q", in_session(id, session));
    }
    assert_eq!(bench.accept(None, ME), Ok(Some("b".into())));
    assert_eq!(bench.accept(None, OTHER), Ok(Some("a".into())));
    assert_eq!(bench.accept(None, ReceiverId(3)), Ok(None));
    assert_eq!(id_of(&bench.receive_as(ME, "q").expect("b1")), "b1");
    assert_eq!(id_of(&bench.receive_as(OTHER, "q").expect("a1")), "a1");
    assert_eq!(id_of(&bench.receive_as(ME, "q").expect("b2")), "b2");
    assert_eq!(bench.receive_as(OTHER, "q"), None);
}

#[test]
fn a_session_is_held_by_one_receiver_at_a_time() {
    let mut bench = sessions();
    assert_eq!(bench.accept(Some("a"), ME), Ok(Some("a".into())), "a session that is named may be empty");
    let taken = BrokerError::SessionCannotBeLocked { path: "q".into(), session: "a".into() };
    assert_eq!(bench.accept(Some("a"), OTHER), Err(taken));
    bench.broker.release_receiver(ME, bench.now);
    assert_eq!(bench.accept(Some("a"), OTHER), Ok(Some("a".into())));
}

#[test]
fn what_a_receiver_held_when_it_left_is_back_in_order_and_not_counted() {
    let mut bench = sessions();
    for id in ["1", "2", "3"] {
        bench.send("q", in_session(id, "a"));
    }
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.take("q");
    bench.broker.release_receiver(ME, bench.now);
    assert_eq!(
        bench.complete(&first),
        Err(lost("of the message")),
        "locks of sessions do not outlive the link"
    );
    bench.accept(None, OTHER).expect("a session");
    let again = bench.receive_as(OTHER, "q").expect("the first");
    assert_eq!((id_of(&again).as_str(), again.delivery_count), ("1", 0));
}

#[test]
fn a_session_whose_lock_runs_out_is_lost_and_its_deliveries_count() {
    let mut bench = sessions();
    bench.send("q", in_session("1", "a"));
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.broker.take_wakes();
    bench.pass(seconds(30));
    let wakes = bench.broker.take_wakes();
    assert!(
        wakes.contains(&Wake::SessionLost(ME)) && wakes.contains(&Wake::Entity(bench.id("q"))),
        "{wakes:?}"
    );
    assert_eq!(bench.complete(&first), Err(lost("of the message")));
    let q = bench.id("q");
    assert_eq!(
        bench.broker.receive(q, ME, ReceiveMode::PeekLock, 1, bench.now),
        Err(lost("of the receiver"))
    );
    bench.accept(None, OTHER).expect("a session");
    assert_eq!(bench.receive_as(OTHER, "q").map(|again| again.delivery_count), Some(1));
}

#[test]
fn a_renewed_session_holds_all_of_its_messages() {
    let mut bench = sessions();
    bench.send("q", in_session("1", "a"));
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.pass(seconds(20));
    let q = bench.id("q");
    assert_eq!(bench.broker.renew_session(q, "a", bench.now), Ok(bench.now + seconds(30)));
    bench.pass(seconds(29));
    assert_eq!(bench.complete(&first), Ok(()));
    bench.pass(seconds(1));
    assert_eq!(bench.broker.renew_session(q, "a", bench.now), Err(lost("a")));
}

#[test]
fn an_abandoned_message_of_a_session_comes_again_before_the_next() {
    let mut bench = sessions();
    for id in ["1", "2"] {
        bench.send("q", in_session(id, "a"));
    }
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.settle(&first, &abandon()).expect("held");
    let again = bench.take("q");
    assert_eq!((id_of(&again).as_str(), again.delivery_count), ("1", 1));
}

#[test]
fn a_deferred_message_of_a_session_needs_the_session() {
    let mut bench = sessions();
    bench.send("q", in_session("1", "a"));
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.settle(&first, &defer()).expect("held");
    let (q, numbers) = (first.entity, [first.sequence_number]);
    let mut receive =
        |session, now| bench.broker.receive_deferred(q, &numbers, ReceiveMode::PeekLock, session, now);
    assert_eq!(receive(Some("b"), bench.now), Err(lost("b")));
    assert_eq!(receive(None, bench.now), Err(lost("")));
    assert_eq!(receive(Some("a"), bench.now).map(|received| received.len()), Ok(1));
}

#[test]
fn a_message_that_comes_wakes_the_holder_of_its_session_only() {
    let mut bench = sessions();
    bench.accept(Some("a"), ME).expect("a session");
    bench.send("q", in_session("1", "a"));
    assert_eq!(bench.broker.take_wakes(), [Wake::Receiver(ME)]);
    bench.send("q", in_session("2", "b"));
    assert_eq!(bench.broker.take_wakes(), [Wake::Entity(bench.id("q"))]);
}

#[test]
fn the_state_of_a_session_outlives_its_messages_and_holders() {
    let mut bench = sessions();
    let q = bench.id("q");
    let state = Some(Bytes::from_static(b"state"));
    assert_eq!(bench.broker.set_session_state(q, "a", state.clone(), bench.now), Err(lost("a")));
    bench.accept(Some("a"), ME).expect("a session");
    assert_eq!(bench.broker.session_state(q, "a", bench.now), Ok(None));
    assert_eq!(bench.broker.set_session_state(q, "a", state.clone(), bench.now), Ok(()));
    bench.broker.release_receiver(ME, bench.now);
    bench.accept(Some("a"), OTHER).expect("a session");
    assert_eq!(bench.broker.session_state(q, "a", bench.now), Ok(state));
    assert_eq!(bench.broker.session_ids(q, Some(Timestamp::EPOCH), 0, 10, bench.now), ["a".into()]);
    assert!(bench.broker.session_ids(q, None, 0, 10, bench.now).is_empty());
    let large = Some(Bytes::from(vec![0; 256 * 1024 + 1]));
    assert!(bench.broker.set_session_state(q, "a", large, bench.now).is_err());
}

#[test]
fn sessions_are_asked_for_where_they_are_required_and_only_there() {
    let bench = sessions();
    assert!(bench.broker.check_receiver(bench.id("q"), false).is_err());
    assert!(bench.broker.check_receiver(bench.id("q"), true).is_ok());
    assert!(bench.broker.check_receiver(bench.id("q/$deadletterqueue"), false).is_ok());
    let plain = Bench::queue(Settings::default());
    assert!(plain.broker.check_receiver(plain.id("q"), true).is_err());
}

#[test]
fn a_message_without_a_session_is_refused_where_sessions_are_required() {
    let mut bench = sessions();
    let refused = bench.try_send("q", message("a"));
    assert!(matches!(refused, Err(BrokerError::NotAllowed { .. })), "{refused:?}");
}

#[test]
fn the_dead_letters_of_sessions_are_received_without_one() {
    let mut bench = sessions();
    bench.send("q", in_session("1", "a"));
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    bench.settle(&first, &dead_letter("bad", "")).expect("held");
    assert_eq!(id_of(&bench.take("q/$deadletterqueue")), "1");
}

#[test]
fn a_message_lock_of_a_session_cannot_be_renewed() {
    let mut bench = sessions();
    bench.send("q", in_session("1", "a"));
    bench.accept(None, ME).expect("a session");
    let first = bench.take("q");
    let token = first.lock_token.expect("locked");
    assert!(matches!(
        bench.broker.renew(first.entity, &[token], bench.now),
        Err(BrokerError::NotAllowed { .. })
    ));
}
