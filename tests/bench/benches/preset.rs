//! What redrive itself costs: the whole preset around a handler that does nothing, on the memory transport, per message:
//! time, and allocations. Each is measured without and with metrics.
//!
//!     cargo bench --package redrive-bench --bench preset [-- NAME]

#![allow(missing_docs)] // `criterion_group!` makes a public function.

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use metrics_exporter_prometheus::PrometheusBuilder;
use redrive::prelude::*;
use redrive::telemetry::Metrics;
use redrive::{Reason, Runner};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::runtime::{Builder, Runtime};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How a message ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Acknowledged,
    Retried,
    DeadLettered,
    Parked,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    end: End,
    metrics: bool,
}

const ENDS: [(&str, End); 4] = [
    ("acknowledged", End::Acknowledged),
    ("retried", End::Retried),
    ("dead-lettered", End::DeadLettered),
    ("parked", End::Parked),
];

/// How many messages lie in the queue at most: with more it would be a measure of memory.
const MAX_DEPTH: u64 = 20_000;

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(4));
    targets = preset
}
criterion_main!(benches);

fn preset(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be made");
    let cases = ENDS.iter().flat_map(|&(name, end)| {
        [
            (name.to_owned(), Case { end, metrics: false }),
            (format!("{name}+metrics"), Case { end, metrics: true }),
        ]
    });
    let cases: Vec<_> = cases.filter(|(name, _)| wanted(name)).collect();
    for (name, case) in &cases {
        let (allocations, bytes) = allocations_per_message(&runtime, *case);
        println!("preset/{name}: {allocations:.2} allocations per message, {bytes:.0} bytes in all");
    }
    let mut group = criterion.benchmark_group("preset");
    group.throughput(Throughput::Elements(1));
    for (name, case) in cases {
        group.bench_function(name, |bencher| bencher.iter_custom(|messages| time(&runtime, case, messages)));
    }
}

/// Returns true if no name is asked for, or this one.
fn wanted(name: &str) -> bool {
    let mut asked = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    asked.next().is_none_or(|asked| name == asked)
}

fn time(runtime: &Runtime, case: Case, messages: u64) -> Duration {
    let mut took = Duration::ZERO;
    let mut left = messages;
    while left > 0 {
        let now = left.min(MAX_DEPTH);
        let consumer = consumer(case, now);
        let began = Instant::now();
        run(runtime, consumer);
        took += began.elapsed();
        left -= now;
    }
    took
}

/// The difference between a run of many and a run of half as many: start and end are not in it.
fn allocations_per_message(runtime: &Runtime, case: Case) -> (f64, f64) {
    let of = |messages| {
        let consumer = consumer(case, messages);
        let region = Region::new(ALLOCATOR);
        run(runtime, consumer);
        let change = region.change();
        ((change.allocations + change.reallocations) as f64, change.bytes_allocated as f64)
    };
    // The first run makes what lives as long as the process.
    of(MAX_DEPTH / 2);
    let (half, all) = (of(MAX_DEPTH / 2), of(MAX_DEPTH));
    let each = |half: f64, all: f64| (all - half) / (MAX_DEPTH / 2) as f64;
    (each(half.0, all.0), each(half.1, all.1))
}

/// A consumer with the whole preset, and this many messages waiting for it; it stops after the last one.
fn consumer(case: Case, messages: u64) -> Runner<Memory> {
    let transport = Memory::new("orders");
    for number in 0..messages {
        let message = Message::new(vec![b'x'; 256]).with_id(format!("bench-{number:012}"));
        transport.broker().publish("orders", message).expect("there is room");
    }
    let left = Arc::new(AtomicU64::new(messages));
    let stop = Arc::new(std::sync::OnceLock::<redrive::ConsumerHandle>::new());
    let stopping = Arc::clone(&stop);
    let mut consumer = Consumer::new(transport);
    if case.metrics {
        consumer = consumer.observer(Metrics::with_recorder(PrometheusBuilder::new().build_recorder()));
    }
    let consumer = consumer.with_dead_letter_backoff([mins(60)]).handler(move |_body: Bytes| {
        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
            stopping.get().expect("it is set before the start").stop();
        }
        std::future::ready(answer(case.end))
    });
    stop.set(consumer.handle()).expect("it is set once");
    consumer
}

fn run(runtime: &Runtime, consumer: Runner<Memory>) {
    runtime.block_on(consumer.run()).expect("nothing stands in its way");
}

fn answer(end: End) -> Result<Disposition, BoxError> {
    match end {
        End::Acknowledged => Ok(Disposition::Ack),
        End::Retried => Err("the carrier does not answer".into()),
        End::DeadLettered => Ok(Err("no such item").permanent()?),
        End::Parked => Ok(Disposition::Park(Failure::new(Reason::Undecided, "people must look at this"))),
    }
}
