//! The test kit for consumers: what it does, and the text of its failures.

mod complaints;
mod runs;
mod scripts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redrive_consumer::{Attempt, Batch, BatchHandler, Consumer, Handler, Router, Runner, State, UnknownKey};
use redrive_core::{
    BoxError, DeadLetterBackoff, Delivery, Disposition, ErrorClass, Failure, MarkError, Message, NoRetry,
    Publisher, Reason, Transport, millis, mins, secs,
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
