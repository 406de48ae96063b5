//! Transactions: all of it or nothing of it.

use crate::client::{Client, Requests, eventually, lock_token, many, message, nothing, one, text, tokens};
use crate::{HALF_A_MINUTE, count, emulator, with_queue};
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionBase as _, TransactionDischarge as _, TransactionPosting as _,
    TransactionRetirement as _,
};
use fe2o3_amqp_types::messaging::Outcome;
use fe2o3_amqp_types::primitives::Value;
use std::time::Duration;

async fn controller(client: &mut Client) -> Controller {
    let name = client.link_name("controller");
    Controller::attach(&mut client.session, name).await.expect("a coordinator")
}

#[tokio::test]
async fn a_commit_sends_and_completes_together() {
    let emulator = emulator(&["from", "to"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("from", &["a"]).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("to").await;
    let mut receiver = client.receiver("from", 5).await;
    let delivery = one(&mut receiver).await;

    let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    let outcome = transaction.post(&mut sender, message("b")).await.expect("an outcome");
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    transaction.accept(&mut receiver, &delivery).await.expect("the link is open");
    assert_eq!((count(&emulator, "from"), count(&emulator, "to")), (1, 0), "nothing before the commit");
    transaction.commit().await.expect("the commit holds");
    assert_eq!((count(&emulator, "from"), count(&emulator, "to")), (0, 1), "all of it after");
}

#[tokio::test]
async fn a_rollback_leaves_all_as_it_was() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("q").await;
    let mut receiver = client.receiver("q", 5).await;
    let delivery = one(&mut receiver).await;

    let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    transaction.post(&mut sender, message("b")).await.expect("an outcome");
    transaction.accept(&mut receiver, &delivery).await.expect("the link is open");
    transaction.rollback().await.expect("the rollback holds");
    assert_eq!(count(&emulator, "q"), 1);

    // The message is still locked by its receiver, who may settle it after all.
    let mut requests = Requests::open(&mut client, "q/$management").await;
    let completed = vec![
        ("disposition-status", Value::from("completed".to_owned())),
        ("lock-tokens", tokens(std::slice::from_ref(&delivery))),
    ];
    let reply = requests.ask("com.microsoft:update-disposition", completed).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(count(&emulator, "q"), 0);
}

#[tokio::test]
async fn a_lock_that_is_lost_before_the_commit_undoes_all() {
    let emulator = with_queue("q", |queue| queue.lock_duration = HALF_A_MINUTE).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("q").await;
    let mut receiver = client.receiver("q", 1).await;
    let delivery = one(&mut receiver).await;

    let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    transaction.post(&mut sender, message("copy")).await.expect("an outcome");
    transaction.accept(&mut receiver, &delivery).await.expect("the link is open");
    // The client does not wait for the answer to its settlement; whoever attaches a link after it does.
    client.sender("q").await;
    emulator.advance(Duration::from_secs(31));
    transaction.commit().await.expect_err("the commit is refused");
    assert_eq!(count(&emulator, "q"), 1, "the original alone");
    receiver.set_credit(5).await.expect("the link is open");
    assert_eq!(text(&one(&mut receiver).await), "a");
    nothing(&mut receiver).await;
}

#[tokio::test]
async fn a_request_may_be_part_of_a_transaction() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a", "b"]).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("q").await;
    let mut receiver = client.receiver("q", 2).await;
    let deliveries = many(&mut receiver, 2).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;

    for (delivery, commit) in deliveries.iter().zip([false, true]) {
        let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
        let copy = transaction.post(&mut sender, message("copy")).await.expect("an outcome");
        assert!(matches!(copy, Outcome::Accepted(_)), "{copy:?}");
        let completed = vec![
            ("disposition-status", Value::from("completed".to_owned())),
            ("lock-tokens", tokens(std::slice::from_ref(delivery))),
        ];
        let (request, id) = requests.request("com.microsoft:update-disposition", completed);
        transaction.post(&mut requests.sender, request).await.expect("an outcome");
        let reply = requests.reply(id).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(count(&emulator, "q"), 2, "nothing before the end");
        if commit {
            transaction.commit().await.expect("the commit holds");
        } else {
            transaction.rollback().await.expect("the rollback holds");
        }
    }
    assert_eq!(count(&emulator, "q"), 2, "`a` and the copy of `b`");
    receiver.set_credit(5).await.expect("the link is open");
    assert_eq!(text(&one(&mut receiver).await), "copy");
}

#[tokio::test]
async fn a_request_with_a_lost_lock_is_refused_within_the_transaction() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    client.send("q", &["a"]).await;
    let controller = controller(&mut client).await;
    let mut receiver = client.receiver("q", 1).await;
    let delivery = one(&mut receiver).await;
    let mut requests = Requests::open(&mut client, "q/$management").await;
    emulator.entity("q").expect("the queue").expire_locks();

    let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    let completed = vec![
        ("disposition-status", Value::from("completed".to_owned())),
        ("lock-tokens", tokens(std::slice::from_ref(&delivery))),
    ];
    let (request, id) = requests.request("com.microsoft:update-disposition", completed);
    transaction.post(&mut requests.sender, request).await.expect("an outcome");
    let reply = requests.reply(id).await;
    assert_eq!(reply.status, 410, "{reply:?}");
    assert_eq!(reply.condition.as_deref(), Some("com.microsoft:message-lock-lost"));
    transaction.rollback().await.expect("the rollback holds");
    assert_eq!(count(&emulator, "q"), 1);
}

#[tokio::test]
async fn who_goes_away_has_rolled_back() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("q").await;
    let transaction = Transaction::declare(&controller, None).await.expect("a transaction");
    transaction.post(&mut sender, message("b")).await.expect("an outcome");
    emulator.drop_connections();
    drop(transaction);
    let mut other = Client::connect(&emulator).await;
    let mut receiver = other.receiver("q", 5).await;
    nothing(&mut receiver).await;
    assert_eq!(count(&emulator, "q"), 0);
}

#[tokio::test]
async fn several_transactions_are_open_at_once() {
    let emulator = emulator(&["q"]).await;
    let mut client = Client::connect(&emulator).await;
    let controller = controller(&mut client).await;
    let mut sender = client.sender("q").await;
    let one = Transaction::declare(&controller, None).await.expect("a transaction");
    let two = Transaction::declare(&controller, None).await.expect("another");
    assert_ne!(one.txn_id(), two.txn_id());
    one.post(&mut sender, message("one")).await.expect("an outcome");
    two.post(&mut sender, message("two")).await.expect("an outcome");
    one.rollback().await.expect("the rollback holds");
    two.commit().await.expect("the commit holds");
    let mut receiver = client.receiver("q", 5).await;
    let delivery = crate::client::one(&mut receiver).await;
    assert_eq!(text(&delivery), "two");
    assert_ne!(lock_token(&delivery).into_inner(), [0; 16]);
    receiver.accept(&delivery).await.expect("the link is open");
    eventually("it is removed", || count(&emulator, "q") == 0).await;
}
