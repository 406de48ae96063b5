//! Gathers deliveries into batches, and runs the handler on them.

use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use redrive_core::{BoxError, Outcome, panic};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{Instrument, Span};

use super::outcome::Next;
use super::{Batch, BatchHandler, BatchOutcome};

/// Receives deliveries from the handlers of single deliveries.
pub(super) struct Gatherer<H: BatchHandler<Args, S>, Args, S> {
    handler: H,
    pub(super) most: usize,
    pub(super) within: Duration,
    arrivals: Mutex<mpsc::UnboundedSender<Member<H::Shared, H::Item>>>,
    args: PhantomData<fn() -> (Args, S)>,
}

/// A delivery in a batch. Its caller may stop waiting for the outcome, if the delivery was lost or given back.
pub(super) struct Member<Shared, Item> {
    /// Address of the consumer's state, which identifies the consumer.
    state: usize,
    shared: Shared,
    item: Arc<Item>,
    outcome: oneshot::Sender<Outcome>,
    span: Span,
}

impl<Shared, Item> Member<Shared, Item> {
    pub(super) fn new<S>(
        state: &S,
        (shared, item): (Shared, Item),
        outcome: oneshot::Sender<Outcome>,
    ) -> Self {
        let state = std::ptr::from_ref(state).addr();
        Self { state, shared, item: Arc::new(item), outcome, span: Span::current() }
    }
}

impl<H: BatchHandler<Args, S>, Args, S> Gatherer<H, Args, S> {
    pub(super) fn new(handler: H, most: usize, within: Duration) -> Self {
        // The task starts with the first member: only then is there certainly a runtime.
        let (arrivals, _) = mpsc::unbounded_channel();
        Self { handler, most, within, arrivals: Mutex::new(arrivals), args: PhantomData }
    }

    pub(super) fn add(&self, member: Member<H::Shared, H::Item>)
    where
        Args: 'static,
        S: 'static,
    {
        let mut arrivals = self.arrivals.lock();
        if let Err(mpsc::error::SendError(member)) = arrivals.send(member) {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(gather::<H, Args, S>(self.handler.clone(), receiver, self.most, self.within));
            // The receiver is in the task.
            let _ = sender.send(member);
            *arrivals = sender;
        }
    }
}

/// Ends when the handler is dropped. Each batch runs in its own task: one lost item must not cancel the others.
async fn gather<H: BatchHandler<Args, S>, Args: 'static, S: 'static>(
    handler: H,
    mut arrivals: mpsc::UnboundedReceiver<Member<H::Shared, H::Item>>,
    most: usize,
    within: Duration,
) {
    while let Some(first) = arrivals.recv().await {
        let mut members = vec![first];
        let gathering = async {
            while members.len() < most
                && let Some(member) = arrivals.recv().await
            {
                members.push(member);
            }
        };
        let _ = timeout(within, gathering).await;
        for members in of_each_consumer(members) {
            tokio::spawn(handle::<H, Args, S>(handler.clone(), members));
        }
    }
}

/// Groups members by consumer: clones of one handler may be in several consumers, and shared arguments are shared within one
/// consumer only.
fn of_each_consumer<Shared, Item>(members: Vec<Member<Shared, Item>>) -> Vec<Vec<Member<Shared, Item>>> {
    let mut groups: Vec<Vec<Member<Shared, Item>>> = Vec::new();
    for member in members {
        match groups.iter_mut().find(|group| group[0].state == member.state) {
            Some(group) => group.push(member),
            None => groups.push(vec![member]),
        }
    }
    groups
}

async fn handle<H: BatchHandler<Args, S>, Args, S>(handler: H, members: Vec<Member<H::Shared, H::Item>>) {
    let mut groups = vec![members];
    while let Some(mut group) = groups.pop() {
        group.retain(|member| !member.outcome.is_closed());
        let Some(first) = group.first() else { continue };
        let batch = Batch::new(group.iter().map(|member| Arc::clone(&member.item)));
        let span = tracing::info_span!("batch", messages = group.len());
        for member in &group {
            span.follows_from(&member.span);
        }
        let begun = span.in_scope(|| panic::caught(|| handler.handle_batch(first.shared.clone(), batch)));
        let outcome = tokio::select! {
            biased;
            outcome = finish(begun).instrument(span) => outcome,
            () = all_left(&mut group) => continue,
        };
        // `source()` of the error is foreign code.
        match panic::caught(|| outcome.next(group.len())).unwrap_or_else(Next::Halve) {
            Next::Answer(outcomes) => {
                for (member, outcome) in group.into_iter().zip(outcomes) {
                    // The caller may have stopped waiting; then its message is redelivered.
                    let _ = member.outcome.send(outcome);
                }
            }
            Next::Halve(error) => {
                let error = panic::caught(|| redrive_core::redact(&error.to_string()));
                let error = error.unwrap_or_else(|_| "(it panics when it is shown)".into());
                tracing::warn!(
                    messages = group.len(),
                    error,
                    "the batch failed as a whole: each half is handled separately"
                );
                let second = group.split_off(group.len() / 2);
                groups.extend([second, group]);
            }
        }
    }
}

/// Runs the rest of a call. A panic becomes an error of the whole batch.
async fn finish(begun: Result<impl Future<Output = BatchOutcome>, BoxError>) -> BatchOutcome {
    let handling = match begun {
        Ok(handling) => handling,
        Err(panicked) => return BatchOutcome::Whole(Err(panicked)),
    };
    let mut handling = pin!(handling);
    std::future::poll_fn(|cx| {
        panic::caught(|| handling.as_mut().poll(cx))
            .unwrap_or_else(|panicked| Poll::Ready(BatchOutcome::Whole(Err(panicked))))
    })
    .await
}

async fn all_left<Shared, Item>(group: &mut [Member<Shared, Item>]) {
    join_all(group.iter_mut().map(|member| member.outcome.closed())).await;
}
