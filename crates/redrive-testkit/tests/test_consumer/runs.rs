//! Runs: how far they go, what time does, and where messages end.

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
    run.assert("order-2").attempts_at([secs(0), secs(1)]).attempt_failed_with(1, "unlucky").acknowledged();
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
    assert!(matches!(run.message("order-1").end, End::Waiting(due) if due.abs_diff(secs(71)) < millis(5)));
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
        if delivery.attempt() == 1 { Err("the process might as well have died here".into()) } else { Ok(()) }
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
