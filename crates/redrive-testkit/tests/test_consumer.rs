//! The test kit for consumers: what it does, and the text of its failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_core::{
    Attempt, Batch, BatchHandler, BoxError, Consumer, DeadLetterBackoff, Delivery, Disposition, ErrorClass,
    Failure, Handler, MarkError, Message, NoRetry, Publisher, Reason, Router, Runner, State, Transport,
    UnknownKey, millis, mins, secs,
};
use redrive_memory::{Memory, MemoryOptions};
use redrive_testkit::{AssertMessage, End, Script, TestConsumer, TestRun};

async fn ship(_order: String) -> Result<(), BoxError> {
    Ok(())
}

fn order(id: &str) -> Message {
    Message::new("a lamp").with_id(id)
}

fn retried<A: 'static>(orders: Memory, handler: impl Handler<A, ()>) -> Runner<Memory> {
    Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10), mins(1)]).handler(handler)
}

/// Creates a consumer with this script before its handler.
fn scripted(script: Script) -> TestConsumer {
    TestConsumer::new(|orders| retried(orders, script.then(ship)))
}

fn carrier_down(times: usize) -> Script {
    Script::new().fail(times, || "the carrier does not answer")
}

/// Returns the text of a failing assertion.
fn said<T>(assertion: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(assertion()))).expect_err("it must fail");
    *panic.downcast::<String>().expect("a text")
}

/// Returns its first line.
fn complaint<T>(assertion: impl FnOnce() -> T) -> String {
    said(assertion).lines().next().expect("a line").to_owned()
}

async fn one_that_fails_for_good() -> TestRun {
    scripted(carrier_down(4)).send(order("order-1")).run().await
}

mod runs {
    use super::*;

    #[tokio::test]
    async fn a_script_may_fail_for_ever() {
        let script = carrier_down(1).fail(usize::MAX, || "the carrier does not answer");
        scripted(script).send(order("order-1")).run().await.assert("order-1").attempts(4);
    }

    #[tokio::test]
    async fn a_ladder_is_climbed_in_no_time_and_at_the_right_times() {
        let real = std::time::Instant::now();
        let run = one_that_fails_for_good().await;
        run.assert("order-1")
            .attempts(4)
            .attempts_at([secs(0), secs(1), secs(11), secs(71)])
            .attempt_failed_with(1, "the carrier")
            .failed_with("the carrier does not answer")
            .dead_lettered(Reason::MaxDeliveryCountExceeded)
            .header("redrive-attempt", 4)
            .no_header("tenant");
        assert_eq!(run.message("order-1").history().past.len(), 4);
        assert!(real.elapsed() < secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_paused_already_will_do() {
        let run = one_that_fails_for_good().await;
        let times: Vec<_> = run.message("order-1").attempts.iter().map(|attempt| attempt.at).collect();
        assert_eq!(times, [secs(0), secs(1), secs(11), secs(71)], "to the nanosecond");
    }

    #[tokio::test]
    async fn the_consumer_of_a_service_is_tested_as_it_is() {
        fn service<T: Transport>(orders: T) -> Runner<T> {
            let handler = async |_: State<u8>, _: Attempt, _: Delivery, _: String| Disposition::Ack;
            Consumer::new(orders).concurrency(1).handler_with(7_u8, handler)
        }
        let mut test = TestConsumer::with(Memory::new("orders"), service);
        let run = test.send_all([order("order-1"), order("order-2")]).send(Message::new("x")).run().await;
        let ids: Vec<_> = run.messages().iter().map(|message| message.id.as_str()).collect();
        assert_eq!(ids, ["order-1", "order-2", "message-3"]);
        run.messages().iter().for_each(|message| assert_eq!(message.end, End::Acknowledged));
    }

    #[tokio::test]
    async fn what_is_sent_later_is_delivered_later() {
        let mut test = scripted(Script::new());
        let run = test.send_after(mins(5), order("late")).send(order("soon")).run().await;
        run.assert("soon").attempts_at([secs(0)]);
        run.assert("late").attempts_at([mins(5)]);
    }

    #[tokio::test]
    async fn each_message_has_a_record_of_its_own() {
        let mut test = TestConsumer::new(|orders| {
            let script = Script::new().only("order-2").fail(1, || "unlucky");
            retried(orders, script.then(ship))
        });
        let run = test.send_all(["order-1", "order-2", "order-3"].map(order)).run().await;
        run.assert("order-1").attempts(1).acknowledged();
        run.assert("order-2")
            .attempts_at([secs(0), secs(1)])
            .attempt_failed_with(1, "unlucky")
            .acknowledged();
        run.assert("order-3").attempts(1).acknowledged();
    }

    #[tokio::test]
    async fn messages_end_in_every_place() {
        let answer = |disposition| Script::new().answer(1, disposition);
        let failure = || Failure::custom("OutOfStock", "no lamp is left");
        let of_stock = || Reason::Custom("OutOfStock".into());
        let run = scripted(answer(Disposition::Discard(failure()))).send(order("a")).run().await;
        run.assert("a").attempts(1).attempt_failed_with(1, "no lamp").discarded();
        let run = scripted(answer(Disposition::Park(failure()))).send(order("a")).run().await;
        run.assert("a").failed_with("no lamp").parked(of_stock());
        let run = scripted(answer(Disposition::DeadLetter(failure()))).send(order("a")).run().await;
        run.assert("a").failed_with("no lamp").dead_lettered(of_stock());
        let run = scripted(answer(Disposition::snooze(mins(3)))).send(order("a")).run().await;
        run.assert("a").attempts_at([secs(0), mins(3)]).acknowledged();
        assert_eq!(run.message("a").attempts[1].number, 1, "a snooze costs no attempt");
        assert_eq!(run.message("a").attempts[0].next_at(), Some(mins(3)));
        let run = scripted(answer(Disposition::Release)).send(order("a")).run().await;
        run.assert("a").attempts_at([secs(0), secs(0)]).acknowledged();
        let came_to = |attempt: usize| run.message("a").attempts[attempt].disposition.clone();
        assert_eq!([came_to(0), came_to(1)], [Some(Disposition::Release), Some(Disposition::Ack)]);
    }

    #[tokio::test]
    async fn a_run_can_stop_early_and_go_on() {
        let mut test = scripted(carrier_down(4));
        let run = test.send(order("order-1")).run_for(secs(30)).await;
        run.assert("order-1").attempts_at([secs(0), secs(1), secs(11)]).waiting();
        assert!(
            matches!(run.message("order-1").end, End::Waiting(due) if due.abs_diff(secs(71)) < millis(5))
        );
        assert!(run.published("test").is_empty(), "its own queue is another matter");
        test.run().await.assert("order-1").attempts(4).dead_lettered(Reason::MaxDeliveryCountExceeded);
    }

    #[tokio::test]
    async fn what_is_redriven_is_handled_by_the_same_consumer() {
        let mended = Arc::new(AtomicBool::new(false));
        let carrier = Arc::clone(&mended);
        let mut test = TestConsumer::new(|orders| {
            let ship = async |State(mended): State<Arc<AtomicBool>>| {
                let mended = mended.load(Ordering::Relaxed);
                if mended { Ok(()) } else { Err("no such carrier").permanent() }
            };
            Consumer::new(orders).with_dead_letter_backoff([secs(1)]).handler_with(carrier, ship)
        });
        let run = test.send(order("order-1")).run().await;
        run.assert("order-1").attempts(1).dead_lettered(Reason::NonRetryableError);
        mended.store(true, Ordering::Relaxed);
        let run = test.redrive("order-1").await.run().await;
        run.assert("order-1").attempts(2).acknowledged().header("redrive-redrives", 1);
    }

    #[tokio::test]
    async fn what_a_handler_publishes_is_shown() {
        async fn bill(delivery: Delivery, publisher: Publisher) -> Result<(), BoxError> {
            let invoice = Message::new("89.00").with_id(format!("invoice-{}", delivery.id()));
            publisher.to("invoices").publish(invoice.clone()).await?;
            publisher.to("reminders").publish_after(invoice, mins(60)).await?;
            if delivery.attempt() == 1 {
                Err("the process might as well have died here".into())
            } else {
                Ok(())
            }
        }
        let run = TestConsumer::new(|orders| retried(orders, bill)).send(order("a")).run().await;
        run.assert("a").attempts(2).acknowledged();
        run.assert_published("invoices", ["invoice-a"; 2]).assert_published("payments", []);
        let due: Vec<_> = run.published("reminders").iter().filter_map(|reminder| reminder.due).collect();
        assert_eq!(due.len(), 2);
        assert!(due[0].abs_diff(mins(60)) < millis(5) && due[1].abs_diff(mins(60) + secs(1)) < millis(5));
    }

    #[tokio::test]
    async fn each_message_of_a_batch_has_its_own_record() {
        async fn insert(orders: Batch<String>) -> Result<(), BoxError> {
            if orders.iter().any(|order| order == "a piano") { Err("too large".into()) } else { Ok(()) }
        }
        let handler = carrier_down(1).only("b").then(insert.in_batches(10, millis(200)));
        let mut test = TestConsumer::new(|orders| retried(orders, handler));
        let run = test.send_all(["a", "b"].map(order)).send(Message::new("a piano").with_id("c")).run().await;
        run.assert("a").attempts(1).acknowledged();
        run.assert("b").attempts(2).attempt_failed_with(1, "the carrier").acknowledged();
        run.assert("c").attempts(4).failed_with("too large").dead_lettered(Reason::MaxDeliveryCountExceeded);
    }

    #[tokio::test]
    async fn a_limit_of_the_broker_holds() {
        let small = Memory::with("orders", MemoryOptions::new().shelf_capacity(1));
        let mut test = TestConsumer::with(small, |orders| retried(orders, carrier_down(4).then(ship)));
        let run = test.send_all(["a", "b"].map(order)).run_for(mins(5)).await;
        run.assert("a").dead_lettered(Reason::MaxDeliveryCountExceeded);
        let stuck = run.message("b");
        assert_eq!(stuck.end, End::InFlight);
        let error = stuck.attempts[3].not_settled.as_deref().unwrap();
        assert!(error.contains("dead-letter shelf of queue `orders` is full"), "{error}");
        let run = test.redrive("a").await.run().await;
        run.assert("b").dead_lettered(Reason::MaxDeliveryCountExceeded);
        assert_eq!(run.message("b").attempts[3].not_settled, None);
    }

    #[tokio::test]
    async fn only_what_is_asked_for_is_redriven_from_either_shelf() {
        let park = Disposition::Park(Failure::custom("OutOfStock", "no lamp is left"));
        let mut test = scripted(Script::new().answer(1, park));
        let run = test.send_all(["a", "b"].map(order)).run().await;
        run.assert("a").parked(Reason::Custom("OutOfStock".into()));
        let run = test.redrive("a").await.run().await;
        run.assert("a").attempts(2).acknowledged();
        run.assert("b").attempts(1).parked(Reason::Custom("OutOfStock".into()));
    }

    #[tokio::test]
    async fn the_consumer_ends_with_its_test() {
        let mut test = scripted(Script::new());
        test.run().await;
        let broker = test.broker().clone();
        drop(test);
        broker.publish("test", order("late")).unwrap();
        tokio::time::sleep(mins(1)).await;
        assert_eq!(broker.depth("test"), 1);
    }
}

mod scripts {
    use super::*;

    #[tokio::test]
    async fn steps_come_one_after_the_other() {
        let script = carrier_down(1).pass(1).panic(1, "out of range").delay(1, secs(5));
        let handler = script.then(
            async |Attempt(attempt): Attempt| {
                if attempt == 2 { Err("from the handler itself") } else { Ok(()) }
            },
        );
        let run = TestConsumer::new(|orders| retried(orders, handler)).send(order("a")).run().await;
        run.assert("a")
            .attempts(4)
            .attempt_failed_with(1, "the carrier does not answer")
            .attempt_failed_with(2, "from the handler itself")
            .attempt_failed_with(3, "the handler panicked: out of range")
            .acknowledged();
        assert!(run.message("a").attempts[3].took >= secs(5));
    }

    #[tokio::test]
    async fn a_classifier_sees_the_type_of_the_error() {
        #[derive(Debug)]
        struct NoSuchItem;
        impl std::fmt::Display for NoSuchItem {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("no such item")
            }
        }
        impl std::error::Error for NoSuchItem {}
        let run = TestConsumer::new(|orders| {
            let permanent = |error: &(dyn std::error::Error + 'static)| match error.is::<NoSuchItem>() {
                true => ErrorClass::Permanent,
                false => ErrorClass::Transient,
            };
            let preset = DeadLetterBackoff::new([secs(1); 3]).classifier(permanent);
            let script = carrier_down(1).fail(1, || NoSuchItem);
            Consumer::new(orders).with_dead_letter_backoff(preset).handler(script.then(ship))
        })
        .send(order("a"))
        .run()
        .await;
        run.assert("a").attempts(2).dead_lettered(Reason::NonRetryableError);
    }

    #[tokio::test]
    #[should_panic(expected = "refuses to start")]
    async fn the_needs_of_the_handler_are_those_of_the_scripted_one() {
        // A retry policy around another one is refused.
        let staged = Script::new().then(ship.with_dead_letter_backoff([secs(1)]));
        TestConsumer::new(|orders| retried(orders, staged)).run().await;
    }

    #[tokio::test]
    async fn a_handler_that_hangs_is_for_a_timeout() {
        let timeout = tower::timeout::TimeoutLayer::new(secs(30));
        let run = TestConsumer::new(move |orders| {
            let script = Script::new().hang(1);
            Consumer::new(orders)
                .with_dead_letter_backoff([secs(1)])
                .layer(timeout)
                .handler(script.then(ship))
        })
        .send(order("a"))
        .run()
        .await;
        run.assert("a").attempts_at([secs(0), secs(31)]).acknowledged();
    }

    #[tokio::test]
    async fn a_scripted_handler_goes_wherever_a_handler_goes() {
        let run = TestConsumer::new(|orders| {
            let staged = carrier_down(1).then(ship).with_dead_letter_backoff([secs(3)]);
            let twice = carrier_down(1).then(Script::new().panic(1, "boom").then(ship));
            let router = Router::by_kind()
                .route("staged", staged)
                .route("twice", twice.with_dead_letter_backoff([secs(1); 2]))
                .unknown(UnknownKey::DeadLetter)
                .unwrap();
            Consumer::new(orders).handler(router)
        })
        .send(order("a").with_kind("staged"))
        .send(order("b").with_kind("twice"))
        .run()
        .await;
        run.assert("a").attempts_at([secs(0), secs(3)]).acknowledged();
        run.assert("b").attempts(3).attempt_failed_with(2, "boom").acknowledged();
    }
}

mod complaints {
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
            (
                |it| it.discarded(),
                "to end discarded; found on the dead-letter shelf (MaxDeliveryCountExceeded)",
            ),
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
        assert_eq!(
            complaint(|| run.assert("order-7")),
            "order-7: no message of this id was sent or delivered"
        );
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
}
