//! Runs one clause: creates the bench, examines the transport, and cleans up whatever happens.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures::FutureExt;

use crate::case::Case;
use crate::harness::{Bench, Harness};

/// Clock on which a clause runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Real time, on several threads.
    Real,
    /// tokio's paused clock, on one thread: only for transports that do no I/O.
    Paused,
}

/// Result of a clause that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The transport fulfils it.
    Kept,
    /// It does not apply, for this reason.
    DoesNotApply(String),
}

/// Examines one clause on a runtime of its own. [`conformance!`](crate::conformance) makes a test of it.
///
/// # Panics
///
/// If the transport violates the clause.
pub fn run<H: Harness>(
    clause: &'static str,
    harness: H,
    clock: Clock,
    examine: impl AsyncFnOnce(&Case<H>) + Send + 'static,
) -> Verdict {
    let verdict = watched(clause, move || runtime(clock).block_on(examined(clause, harness, examine)));
    if let Verdict::DoesNotApply(reason) = &verdict {
        // Not `eprintln!`: the test runner hides its output when a test passes, and this must be visible.
        // Written in one call, because other tests write at the same time.
        let line = format!("conformance: `{clause}` does not apply: {reason}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    verdict
}

/// One clause, ready to be examined.
pub(crate) type Job = Box<dyn FnOnce() -> Verdict + Send>;

/// Enforces a limit in real time: a transport that spins, or blocks its thread, stops every clock of the runtime.
fn watched(clause: &'static str, examination: impl FnOnce() -> Verdict + Send + 'static) -> Verdict {
    const LIMIT: Duration = Duration::from_secs(1500);
    let (ended, end) = mpsc::channel();
    let thread = thread::Builder::new().name(clause.to_owned()).spawn(move || {
        let verdict = catch_unwind(AssertUnwindSafe(examination));
        let _ = ended.send(verdict);
    });
    drop(thread.expect("a thread can be made"));
    match end.recv_timeout(LIMIT) {
        Ok(verdict) => verdict.unwrap_or_else(|panic| resume_unwind(panic)),
        Err(_) => {
            panic!("`{clause}` has not ended within {LIMIT:?}: the transport spins, or blocks its thread")
        }
    }
}

async fn examined<H: Harness>(
    clause: &'static str,
    harness: H,
    examine: impl AsyncFnOnce(&Case<H>),
) -> Verdict {
    if let Some(reason) = harness.does_not_apply(clause) {
        return Verdict::DoesNotApply(reason);
    }
    let bench = harness.bench(clause).await;
    let bench = bench.unwrap_or_else(|error| panic!("the harness makes no bench for `{clause}`: {error}"));
    let case = Case::new(harness, bench);
    let outcome = AssertUnwindSafe(within_limit(clause, examine(&case))).catch_unwind().await;
    case.close_all().await;
    case.bench.tidy_up().await;
    if let Err(panic) = outcome {
        eprintln!("What happened in `{clause}`:\n{}", case.transcript);
        resume_unwind(panic);
    }
    case.reason_not_to_apply().map_or(Verdict::Kept, Verdict::DoesNotApply)
}

async fn within_limit(clause: &str, examination: impl Future<Output = ()>) {
    // Each step has its own, shorter limit; this one covers everything else.
    const LIMIT: Duration = Duration::from_secs(900);
    let ended = tokio::time::timeout(LIMIT, examination).await;
    assert!(ended.is_ok(), "`{clause}` has not ended within {LIMIT:?}");
}

fn runtime(clock: Clock) -> tokio::runtime::Runtime {
    let mut builder = match clock {
        Clock::Real => tokio::runtime::Builder::new_multi_thread(),
        Clock::Paused => tokio::runtime::Builder::new_current_thread(),
    };
    builder.worker_threads(2).enable_all().start_paused(clock == Clock::Paused);
    builder.build().expect("a runtime can be made")
}
