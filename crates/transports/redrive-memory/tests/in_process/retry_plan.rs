//! What a plan says is what the consumer then does, on virtual time.

use std::sync::{Arc, Mutex};

use redrive_consumer::{Consumer, Event, Runner};
use redrive_core::plan::Case;
use redrive_core::{
    BoxError, DeadLetterBackoff, Exponential, Fixed, Jitter, MarkError as _, Message, RetryPlan, Shelf,
    Shelves as _, secs,
};
use redrive_memory::{Memory, MemoryOptions};
use tokio::time::{Duration, Instant};

/// When an attempt began, and what was decided about it, with which wait.
type Attempts = Vec<(Duration, &'static str, Option<Duration>)>;

async fn runs(runner: Runner<Memory>, memory: Memory) -> Attempts {
    let (began, seen) = (Instant::now(), Arc::new(Mutex::new(Attempts::new())));
    let noted = Arc::clone(&seen);
    let runner = runner.observer(move |event: &Event<'_>| {
        if let Event::Decided { disposition, .. } = event {
            let wait = match disposition {
                redrive_core::Disposition::Retry(wait, _) => Some(*wait),
                _ => None,
            };
            noted.lock().unwrap().push((began.elapsed(), disposition.name(), wait));
        }
    });
    let shelves = memory.shelves();
    let shelved = async {
        let count = async |shelf| shelves.count(shelf).await.expect("a count");
        while count(Shelf::DeadLetter).await + count(Shelf::Parking).await == 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    runner.run_until(shelved).await.expect("an orderly end");
    Arc::try_unwrap(seen).map_or_else(|seen| seen.lock().unwrap().clone(), |seen| seen.into_inner().unwrap())
}

fn foreseen(plan: &RetryPlan, case: Case) -> Vec<redrive_core::plan::Step> {
    let courses = plan.routes[0].courses.iter();
    courses.clone().find(|course| course.cases.contains(&case)).expect("the case").steps.clone()
}

#[tokio::test(start_paused = true)]
async fn the_consumer_does_what_its_plan_says() {
    let exponential = || Exponential::from(secs(1)).attempts(5);
    for (preset, case) in [
        (DeadLetterBackoff::new(exponential()), Case::Transient),
        (DeadLetterBackoff::new(exponential()).park_exhausted(), Case::Transient),
        (DeadLetterBackoff::new(exponential()), Case::Permanent),
        (DeadLetterBackoff::new(exponential().jitter(Jitter::Full)), Case::Transient),
        (DeadLetterBackoff::new(exponential().jitter(Jitter::Equal)), Case::Transient),
        (DeadLetterBackoff::new(Fixed::from(secs(10)).attempts(9).deadline(secs(35))), Case::Transient),
        (DeadLetterBackoff::new(exponential()).throttled([secs(7), secs(7)]), Case::Throttled),
        (DeadLetterBackoff::new(|attempt: u32| (attempt < 4).then(|| secs(attempt.into()))), Case::Panic),
    ] {
        let memory = Memory::with("orders", MemoryOptions::new());
        let fails = move || async move {
            let error: BoxError = "as the test wants it".into();
            match case {
                Case::Permanent => Err(error).permanent()?,
                Case::Throttled => Err(error).throttled(Duration::ZERO)?,
                Case::Panic => panic!("as the test wants it"),
                _ => Err(error)?,
            }
            Ok::<(), BoxError>(())
        };
        memory.publish(Message::new("").with_id("order-7")).await.expect("published");
        let runner = Consumer::new(memory.broker().transport("orders"))
            .with_dead_letter_backoff(preset)
            .handler(fails);
        let steps = foreseen(&runner.explain(), case);
        assert_eq!(runner.preflight().await.expect("an answer").routes, runner.explain().routes);
        let attempts = runs(runner, memory).await;
        assert_eq!(attempts.len(), steps.len(), "{case:?}: {attempts:?}");
        for ((began, decision, wait), step) in attempts.iter().zip(&steps) {
            assert_eq!(*decision, step.decision);
            let within =
                |time: Duration, span: redrive_core::plan::Span| span.least <= time && time <= span.most;
            assert!(within(*began, step.begins_after), "{case:?}: {began:?} is not in {step:?}");
            assert_eq!(wait.is_some(), step.wait.is_some(), "{step:?}");
            assert!(wait.is_none_or(|wait| within(wait, step.wait.unwrap())), "{wait:?} is not in {step:?}");
        }
    }
}
