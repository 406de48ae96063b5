//! The deciding parts alone: what a failure costs before anything is sent.
//!
//!     cargo bench --package redrive-bench --bench pure

#![allow(missing_docs)] // `criterion_group!` makes a public function.

use std::hint::black_box;
use std::time::{Duration, SystemTime};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use redrive::prelude::*;
use redrive::transport::{Facts, Planning, Settlement};
use redrive::{FailureHistory, Reason};

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50).measurement_time(Duration::from_secs(3));
    targets = decode, plan, errors
}
criterion_main!(benches);

/// Reading what earlier failures wrote.
fn decode(criterion: &mut Criterion) {
    for (name, failures) in [("0 failures", 0), ("1 failure", 1), ("8 failures", 8)] {
        let message = failed(failures);
        criterion.bench_function(&format!("headers/decode/{name}"), |bencher| {
            bencher.iter(|| black_box(FailureHistory::read(black_box(&message))));
        });
    }
}

/// From the decision to the settlement; for failures that writes the headers of the copy.
fn plan(criterion: &mut Criterion) {
    type Decide = fn() -> Disposition;
    let retry: Decide = || Disposition::Retry(secs(1), failure());
    let decisions: [(&str, usize, Decide); 5] = [
        ("acknowledge", 0, || Disposition::Ack),
        ("retry after 0 failures", 0, retry),
        ("retry after 8 failures", 8, retry),
        ("dead-letter", 1, || Disposition::DeadLetter(failure())),
        ("park", 1, || Disposition::Park(failure())),
    ];
    for (name, failures, decide) in decisions {
        let delivery = delivery(failed(failures));
        let facts = Facts::new("memory");
        let planning = planning(&facts);
        criterion.bench_function(&format!("plan/{name}"), |bencher| {
            bencher.iter_batched(
                decide,
                |disposition| Settlement::plan(black_box(&delivery), disposition, &planning),
                BatchSize::SmallInput,
            );
        });
    }
}

/// Making, bounding and redacting the text of a failure.
fn errors(criterion: &mut Criterion) {
    criterion.bench_function("failure/redact a short text", |bencher| bencher.iter(failure));
    let long = "cannot reach amqp://user:password@host/vhost, ".repeat(40);
    criterion.bench_function("failure/redact 1.8 kB with passwords", |bencher| {
        bencher.iter(|| Failure::new(Reason::RetryableError, black_box(&long)));
    });
}

fn failure() -> Failure {
    Failure::new(Reason::RetryableError, black_box("the carrier does not answer"))
}

/// A message that has failed so often.
fn failed(failures: usize) -> Message {
    let facts = Facts::new("memory");
    let first = Message::new(vec![b'x'; 256]).with_id("bench-000000000001");
    (0..failures).fold(first, |message, _| {
        let retry = Disposition::Retry(secs(1), failure());
        match Settlement::plan(&delivery(message), retry, &planning(&facts)) {
            Settlement::Reschedule { copy, .. } => copy,
            other => panic!("a retry is {}", other.name()),
        }
    })
}

fn delivery(message: Message) -> Delivery {
    Delivery::new(message, "orders", SystemTime::UNIX_EPOCH)
}

fn planning(facts: &Facts) -> Planning<'_> {
    Planning::new(SystemTime::UNIX_EPOCH, facts)
}
