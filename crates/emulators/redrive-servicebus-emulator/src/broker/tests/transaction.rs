//! Transactions: all or nothing.

use super::*;

fn bench() -> Bench {
    Bench::new(
        &Namespace::default()
            .queue("q", Settings { lock_duration: seconds(30), ..Settings::default() })
            .queue("other", Settings { max_size: 1000, ..Settings::default() }),
    )
}

impl Bench {
    fn declare(&mut self) -> TransactionId {
        self.broker.declare(ConnectionId(1), self.now).expect("room for a transaction")
    }

    fn enlist_send(&mut self, id: TransactionId, to: &str, message: Message) -> Result<(), BrokerError> {
        let to = self.id(to);
        let operation = Operation::Send { to, messages: vec![message.into()] };
        self.broker.enlist(id, operation, self.now).map(drop)
    }

    fn enlist_complete(&mut self, id: TransactionId, delivered: &Delivered) -> Result<(), BrokerError> {
        let operation = Operation::Settle {
            at: delivered.entity,
            tokens: vec![delivered.lock_token.expect("locked")],
            settlement: Settlement::Complete,
        };
        self.broker.enlist(id, operation, self.now).map(drop)
    }

    fn commit(&mut self, id: TransactionId) -> Result<(), BrokerError> {
        self.broker.commit(id, self.now)
    }
}

/// A transaction that sends `b` to `other` and completes `a`, which was taken from `q`.
fn enlisted() -> (Bench, Delivered, TransactionId) {
    let mut bench = bench();
    bench.send("q", message("a"));
    let a = bench.take("q");
    let id = bench.declare();
    bench.enlist_send(id, "other", message("b")).expect("enlisted");
    bench.enlist_complete(id, &a).expect("enlisted");
    (bench, a, id)
}

#[test]
fn what_is_enlisted_is_invisible_until_it_is_committed() {
    let (mut bench, _, id) = enlisted();
    assert_eq!((bench.counts("q").locked, bench.counts("other").active), (1, 0));
    assert_eq!(bench.commit(id), Ok(()));
    assert_eq!((bench.counts("q").locked, bench.counts("other").active), (0, 1));
    assert_eq!(bench.commit(id), Err(BrokerError::UnknownTransaction));
}

#[test]
fn a_transaction_that_is_rolled_back_did_nothing() {
    let (mut bench, a, id) = enlisted();
    assert_eq!(bench.broker.roll_back(id, bench.now), Ok(()));
    assert_eq!((bench.counts("q").locked, bench.counts("other").active), (1, 0));
    assert_eq!(bench.complete(&a), Ok(()));
}

#[test]
fn a_lock_that_runs_out_before_the_commit_rolls_everything_back() {
    let (mut bench, _, id) = enlisted();
    bench.pass(seconds(30));
    let refused = bench.commit(id);
    assert!(matches!(refused, Err(BrokerError::TransactionRolledBack { .. })), "{refused:?}");
    assert_eq!((bench.counts("q").active, bench.counts("other").active), (1, 0));
}

#[test]
fn an_operation_that_cannot_be_done_is_refused_at_once_and_the_rest_goes_on() {
    let mut bench = bench();
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.complete(&a).expect("locked");
    let id = bench.declare();
    assert_eq!(bench.enlist_complete(id, &a), Err(BrokerError::MessageLockLost { path: "q".into() }));
    bench.enlist_send(id, "q", message("b")).expect("enlisted");
    assert_eq!(bench.commit(id), Ok(()));
    assert_eq!(bench.ids("q"), ["b"]);
}

#[test]
fn a_message_is_settled_once_in_a_transaction() {
    let mut bench = bench();
    bench.send("q", message("a"));
    let a = bench.take("q");
    let id = bench.declare();
    bench.enlist_complete(id, &a).expect("enlisted");
    assert!(bench.enlist_complete(id, &a).is_err());
    assert_eq!(bench.commit(id), Ok(()));
}

#[test]
fn the_parts_of_a_transaction_share_the_room() {
    let mut bench = bench();
    let id = bench.declare();
    let large = || Message::with_data(vec![0; 600]);
    bench.enlist_send(id, "other", large()).expect("enlisted");
    let refused = bench.enlist_send(id, "other", large());
    assert!(matches!(refused, Err(BrokerError::QuotaExceeded { .. })), "{refused:?}");
    assert_eq!(bench.commit(id), Ok(()));
    assert_eq!(bench.counts("other").active, 1);
}

#[test]
fn what_is_scheduled_in_a_transaction_has_the_number_that_was_told() {
    let mut bench = bench();
    let (q, id) = (bench.id("q"), bench.declare());
    let messages = vec![scheduled("a", bench.now + seconds(10)).into()];
    let numbers =
        bench.broker.enlist(id, Operation::Schedule { to: q, messages }, bench.now).expect("enlisted");
    assert_eq!(bench.counts("q").scheduled, 0);
    assert_eq!(bench.commit(id), Ok(()));
    assert_eq!(bench.broker.cancel(q, &numbers, bench.now), Ok(()));
}

#[test]
fn a_transaction_lasts_two_minutes() {
    let mut bench = bench();
    let id = bench.declare();
    bench.enlist_send(id, "q", message("a")).expect("enlisted");
    bench.pass(seconds(119));
    bench.enlist_send(id, "q", message("b")).expect("enlisted");
    bench.pass(seconds(1));
    assert_eq!(bench.commit(id), Err(BrokerError::UnknownTransaction));
    assert_eq!(bench.counts("q"), Counts::default());
}

#[test]
fn transactions_are_bounded() {
    let mut bench = bench();
    let id = bench.declare();
    for _ in 0..100 {
        bench.enlist_send(id, "q", Message::default()).expect("enlisted");
    }
    let refused = bench.enlist_send(id, "q", Message::default());
    assert!(matches!(refused, Err(BrokerError::TooMany { .. })), "{refused:?}");
    for _ in 0..999 {
        bench.declare();
    }
    let refused = bench.broker.declare(ConnectionId(1), bench.now);
    assert!(matches!(refused, Err(BrokerError::TooMany { .. })), "{refused:?}");
    assert!(bench.broker.declare(ConnectionId(2), bench.now).is_ok(), "another has its own");
    assert_eq!(bench.commit(id), Ok(()));
    bench.declare();
}

#[test]
fn operations_that_do_nothing_are_bounded_too() {
    let mut bench = bench();
    let (q, id) = (bench.id("q"), bench.declare());
    let mut enlist = || {
        let nothing = Operation::Settle { at: q, tokens: Vec::new(), settlement: Settlement::Complete };
        bench.broker.enlist(id, nothing, bench.now)
    };
    for _ in 0..100 {
        enlist().expect("enlisted");
    }
    assert!(matches!(enlist(), Err(BrokerError::TooMany { .. })));
}
