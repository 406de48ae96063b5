use super::*;

const COORDINATOR: u64 = 0x30;
const CONTROL: u32 = 9;

fn transactional() -> Client {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    client.send(0, &message("original"), None);
    client.attach_receiver(1, "orders");
    assert_eq!(messages(&client.credit(1, 0, 1, false)).len(), 1);
    client.attach(CONTROL, false, list(SOURCE, vec![]), list(COORDINATOR, vec![]));
    client
}

impl Client {
    fn declare(&mut self) -> Bytes {
        let declare = Message::with_value(&list(0x31, vec![Value::Null]));
        match self.send(CONTROL, &declare, None) {
            DeliveryState::Declared { transaction } => transaction,
            other => panic!("{other:?}"),
        }
    }

    fn discharge(&mut self, transaction: &Bytes, fail: bool) -> DeliveryState {
        let fields = vec![Value::Binary(transaction.clone()), Value::Bool(fail)];
        self.send(CONTROL, &Message::with_value(&list(0x32, fields)), None)
    }

    /// Sends a copy and completes the original, both within the transaction.
    fn replace(&mut self, transaction: &Bytes) {
        let within = |outcome: Option<DeliveryState>| DeliveryState::Transactional {
            transaction: transaction.clone(),
            outcome: outcome.map(Box::new),
        };
        let accepted = within(Some(DeliveryState::Accepted));
        assert_eq!(self.send(0, &message("copy"), Some(within(None))), accepted);
        assert_eq!(outcome_of(&self.settle(1, 1, accepted.clone())), accepted);
    }

    fn active(&self) -> u64 {
        let entity = self.shared.with(|broker, _| broker.find("orders")).unwrap();
        self.shared.with(|broker, _| broker.counts(entity)).active
    }

    fn locked(&self) -> u64 {
        let entity = self.shared.with(|broker, _| broker.find("orders")).unwrap();
        self.shared.with(|broker, _| broker.counts(entity)).locked
    }
}

#[test]
fn what_is_done_in_a_transaction_is_seen_at_its_end() {
    let mut client = transactional();
    let transaction = client.declare();
    client.replace(&transaction);
    assert_eq!((client.active(), client.locked()), (0, 1));
    assert_eq!(client.discharge(&transaction, false), DeliveryState::Accepted);
    assert_eq!((client.active(), client.locked()), (1, 0));
}

#[test]
fn what_is_rolled_back_was_never_done() {
    let mut client = transactional();
    let transaction = client.declare();
    client.replace(&transaction);
    assert_eq!(client.discharge(&transaction, true), DeliveryState::Accepted);
    assert_eq!((client.active(), client.locked()), (0, 1));
    assert_eq!(rejection(&client.discharge(&transaction, false)), Some("amqp:transaction:unknown-id"));
}

#[test]
fn a_lock_that_is_lost_before_the_end_undoes_everything() {
    let mut client = transactional();
    let transaction = client.declare();
    client.replace(&transaction);
    client.shared.clock.advance(Duration::from_secs(61)).expect("a short step");
    assert_eq!(rejection(&client.discharge(&transaction, false)), Some("amqp:transaction:rollback"));
    assert_eq!((client.active(), client.locked()), (1, 0), "the original, and no copy");
}

#[test]
fn the_end_of_the_control_link_rolls_back() {
    let mut client = transactional();
    let transaction = client.declare();
    client.replace(&transaction);
    let detach = crate::amqp::performative::Detach { handle: CONTROL, closed: true, error: None };
    client.say(&Performative::Detach(detach));
    client.attach(CONTROL, false, list(SOURCE, vec![]), list(COORDINATOR, vec![]));
    assert_eq!(rejection(&client.discharge(&transaction, false)), Some("amqp:transaction:unknown-id"));
    assert_eq!((client.active(), client.locked()), (0, 1));
}

#[test]
fn a_transaction_is_that_of_its_connection() {
    let mut client = transactional();
    let transaction = client.declare();
    let mut other = Client::connect(&client.shared);
    other.attach(CONTROL, false, list(SOURCE, vec![]), list(COORDINATOR, vec![]));
    assert_eq!(rejection(&other.discharge(&transaction, false)), Some("amqp:transaction:unknown-id"));
    assert_eq!(client.discharge(&transaction, false), DeliveryState::Accepted);
}

#[test]
fn the_open_transactions_of_one_client_leave_room_for_those_of_others() {
    let mut client = transactional();
    for _ in 0..1000 {
        client.declare();
    }
    let declare = Message::with_value(&list(0x31, vec![Value::Null]));
    let refused = client.send(CONTROL, &declare, None);
    assert_eq!(rejection(&refused), Some("amqp:resource-limit-exceeded"));
    let mut other = Client::connect(&client.shared);
    other.attach(CONTROL, false, list(SOURCE, vec![]), list(COORDINATOR, vec![]));
    other.declare();
    drop(client);
    other.declare();
}
