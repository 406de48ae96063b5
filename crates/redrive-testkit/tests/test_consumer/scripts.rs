//! Scripts before a handler.

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
        Consumer::new(orders).with_dead_letter_backoff([secs(1)]).layer(timeout).handler(script.then(ship))
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
