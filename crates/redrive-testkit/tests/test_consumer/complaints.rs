//! The text of what fails.

use super::*;

/// Compares the whole text once, as a person sees it.
#[tokio::test(start_paused = true)]
async fn a_failed_assertion_shows_the_whole_run() {
    let only = Script::new().only("order-1").fail(2, || "the carrier does not answer");
    let mut test = scripted(only);
    let run = test.send_all(["order-1", "order-2"].map(order)).run().await;
    let text = said(|| run.assert("order-1").attempts_at([secs(0), secs(1), secs(5)]));
    assert_eq!(
        text,
        "\
order-1: expected attempts at 0s, 1s, 5s; found 0s, 1s, 11s

message  attempt  at   ended with                                          next at
order-1  1        0s   retry: RetryableError: the carrier does not answer  1s
         2        1s   retry: RetryableError: the carrier does not answer  11s
         3        11s  ack
         end           acknowledged
order-2  1        0s   ack
         end           acknowledged
"
    );
}

#[tokio::test(start_paused = true)]
async fn every_assertion_says_what_it_expected_and_what_it_found() {
    let run = one_that_fails_for_good().await;
    let order = run.assert("order-1");
    type Assertion = fn(AssertMessage<'_>) -> AssertMessage<'_>;
    let cases: [(Assertion, &str); 13] = [
        (|it| it.attempts(5), "5 attempts; found 4"),
        (|it| it.attempts_at([secs(0)]), "attempts at 0s; found 0s, 1s, 11s, 1m 11s"),
        (
            |it| it.attempt_failed_with(2, "a panic"),
            "attempt 2 to fail with \"a panic\"; found the carrier does not answer",
        ),
        (|it| it.attempt_failed_with(5, "x"), "attempt 5 to fail with \"x\"; found none"),
        (|it| it.failed_with("x"), "a failure with \"x\"; found \"the carrier does not answer\""),
        (
            |it| it.acknowledged(),
            "to end acknowledged; found on the dead-letter shelf (MaxDeliveryCountExceeded)",
        ),
        (|it| it.discarded(), "to end discarded; found on the dead-letter shelf (MaxDeliveryCountExceeded)"),
        (
            |it| it.dead_lettered(Reason::Expired),
            "to end on the dead-letter shelf (Expired); found on the dead-letter shelf \
                 (MaxDeliveryCountExceeded)",
        ),
        (
            |it| it.parked(Reason::MaxDeliveryCountExceeded),
            "to end on the parking shelf (MaxDeliveryCountExceeded); found on the dead-letter shelf \
                 (MaxDeliveryCountExceeded)",
        ),
        (
            |it| it.waiting(),
            "to be waiting for the next attempt; found on the dead-letter shelf (MaxDeliveryCountExceeded)",
        ),
        (|it| it.header("redrive-attempt", 3), "header `redrive-attempt` to be I32(3); found I64(4)"),
        (|it| it.header("tenant", "blue"), "header `tenant` to be String(\"blue\"); found none"),
        (|it| it.no_header("redrive-attempt"), "no header `redrive-attempt`; found I64(4)"),
    ];
    for (assertion, expected) in cases {
        assert_eq!(complaint(|| assertion(order)), format!("order-1: expected {expected}"));
    }
    assert_eq!(
        complaint(|| run.assert_published("invoices", ["invoice-1"])),
        "queue `invoices`: expected the published messages invoice-1; found none"
    );
    assert_eq!(complaint(|| run.assert("order-7")), "order-7: no message of this id was sent or delivered");
}

/// Returns the panic message of the task.
async fn why_it_panics(run: impl Future<Output = ()> + Send + 'static) -> String {
    let ended = tokio::spawn(run).await;
    *ended.expect_err("it must panic").into_panic().downcast::<String>().expect("a text")
}

#[tokio::test]
async fn a_run_that_does_not_end_says_so() {
    let why = why_it_panics(async {
        scripted(Script::new().hang(1)).limit(mins(60)).send(order("a")).run().await;
    })
    .await;
    assert!(why.starts_with("the run has not ended within 1h of virtual time"), "{why}");
    assert!(why.contains("a        1        0s  (not ended)\n         end          in flight"), "{why}");
}

#[tokio::test]
async fn so_does_one_for_which_no_time_passes() {
    let why = why_it_panics(async {
        let script = Script::new().answer(100, Disposition::Release);
        scripted(script).max_deliveries(50).send(order("a")).run().await;
    })
    .await;
    assert!(why.starts_with("the run has not ended after 50 deliveries"), "{why}");
    assert!(why.contains("(39 more)"), "{why}");
}

#[tokio::test]
async fn a_consumer_that_is_refused_says_why() {
    let why = why_it_panics(async {
        let missing = std::env::temp_dir().join("no-such-folder-of-redrive/ledger");
        let refused = |orders| Consumer::new(orders).ledger(missing).handler(async || ());
        TestConsumer::new(refused).run().await;
    })
    .await;
    assert!(why.starts_with("the consumer of queue `test` did not start"), "{why}");
    let why = why_it_panics(async {
        let foreign = |_| Consumer::new(Memory::new("orders")).handler(async || ());
        TestConsumer::new(foreign).send(order("a")).run().await;
    })
    .await;
    assert!(why.contains("does not consume the transport that it was given"), "{why}");
}

#[tokio::test]
async fn so_does_one_that_is_stopped() {
    let why = why_it_panics(async {
        let mut test = TestConsumer::new(|orders| {
            let runner = retried(orders, ship);
            runner.handle().stop();
            runner
        });
        test.send(order("a")).run().await;
    })
    .await;
    assert!(why.starts_with("the consumer was stopped, with messages left"), "{why}");
    assert!(why.contains("ready in the queue"), "{why}");
}

#[tokio::test]
async fn a_redrive_of_what_is_on_no_shelf_says_so() {
    let why = why_it_panics(async {
        let mut test = scripted(Script::new());
        test.send(order("a")).run().await;
        test.redrive("a").await;
    })
    .await;
    assert!(why.starts_with("a: on no shelf, so it cannot be redriven"), "{why}");
}

#[tokio::test]
async fn long_runs_are_shown_in_short() {
    let mut test = scripted(Script::new().only("order-29").answer(30, Disposition::snooze(secs(1))));
    let ids: Vec<_> = (1..=30).map(|number| format!("order-{number}")).collect();
    let run = test.send_all(ids.iter().map(|id| order(id))).run().await;
    let shown = run.to_string();
    assert!(shown.contains("… and 10 more messages") && !shown.contains("order-29"), "{shown}");
    let shown = said(|| run.assert("order-29").attempts(1));
    assert!(shown.contains("order-29  1") && shown.contains("(19 more)"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn the_table_has_what_was_published_and_what_is_not_settled() {
    async fn bill(publisher: Publisher) -> Result<(), BoxError> {
        publisher.to("invoices").publish(Message::new("89.00").with_id("invoice-1")).await?;
        Err(format!("{}\nat line 7", "ä".repeat(150)).into())
    }
    let full = Memory::with("orders", MemoryOptions::new().shelf_capacity(0));
    let mut test = TestConsumer::with(full, |orders| {
        Consumer::new(orders).with_dead_letter_backoff(NoRetry).handler(bill)
    });
    let shown = test.send(order("a")).run_for(secs(1)).await.to_string();
    let text = format!("dead-letter: MaxDeliveryCountExceeded: {}… (not settled: the", "ä".repeat(100));
    assert!(shown.contains(&text), "{shown}");
    assert!(shown.ends_with("published to `invoices`: invoice-1\n"), "{shown}");
}

#[test]
fn before_the_first_run_nothing_happened() {
    assert_eq!(TestRun::default().to_string(), "no message was sent\n");
}
