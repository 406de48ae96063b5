//! Several consumers under one shutdown.

use std::future::Future;
use std::pin::{Pin, pin};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redrive_core::Transport;

use super::{ConsumerError, ConsumerHandle, Health, Report, Runner};

/// Runs several consumers together: one shutdown ends all of them, and so does the error of one. Their transports may differ.
/// Each consumer has its own grace period; all grace periods begin at the same moment.
///
/// ```no_run
/// # async fn example<T: redrive_core::Transport>(orders: T, payments: T, shutdown: impl Future<Output = ()>)
/// # -> Result<(), redrive_consumer::ConsumersError> {
/// use redrive_consumer::{Consumer, Consumers};
/// use redrive_core::secs;
/// # async fn ship() {}
/// # async fn pay() {}
///
/// let orders = Consumer::new(orders).with_dead_letter_backoff([secs(1), secs(10)]).handler(ship);
/// let payments = Consumer::new(payments).grace(secs(60)).with_dead_letter_backoff([secs(30)]).handler(pay);
///
/// let reports = Consumers::new().with(orders).with(payments).run_until(shutdown).await?;
/// for (queue, report) in &reports {
///     println!("{queue}: {} handled", report.acknowledged);
/// }
/// # Ok(()) }
/// ```
#[derive(Default)]
#[must_use = "consumers do nothing until they are run"]
pub struct Consumers {
    members: Vec<Member>,
}

struct Member {
    queue: String,
    handle: ConsumerHandle,
    running: Pin<Box<dyn Future<Output = Result<Report, ConsumerError>> + Send>>,
}

impl Consumers {
    /// Creates an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a consumer.
    pub fn with<T: Transport>(mut self, consumer: Runner<T>) -> Self {
        let (queue, handle) = (consumer.queue().to_owned(), consumer.handle());
        self.members.push(Member { queue, handle, running: Box::pin(consumer.run()) });
        self
    }

    /// Returns handles that watch, stop, pause and resume all of them from elsewhere.
    #[must_use]
    pub fn handle(&self) -> ConsumersHandle {
        let handles = self.members.iter().map(|member| (member.queue.clone(), member.handle.clone()));
        ConsumersHandle { handles: handles.collect() }
    }

    /// Runs all of them until `shutdown` resolves, until the handles have stopped them, or until one ends with an error; the
    /// others then end as with a shutdown. Returns the queues and their reports, in the order in which the consumers were added.
    /// Cancel safety is that of [`Runner::run_until`].
    ///
    /// # Errors
    ///
    /// The first error of a consumer, with the reports of those that ended in order. A consumer that refuses to start is such an
    /// error too: the others then end as well.
    pub async fn run_until(
        self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Vec<(String, Report)>, ConsumersError> {
        let handle = self.handle();
        let mut reports: Vec<_> = self.members.iter().map(|member| (member.queue.clone(), None)).collect();
        let run = |(index, member): (usize, Member)| async move { (index, member.running.await) };
        let mut running: FuturesUnordered<_> = self.members.into_iter().enumerate().map(run).collect();
        let mut shutdown = pin!(shutdown);
        let (mut asked, mut first_error) = (false, None);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown, if !asked => {
                    asked = true;
                    handle.stop();
                }
                ended = running.next() => match ended {
                    None => break,
                    Some((index, Ok(report))) => reports[index].1 = Some(report),
                    Some((_, Err(error))) => {
                        handle.stop();
                        if first_error.is_none() {
                            first_error = Some(error);
                        } else {
                            tracing::error!(%error, "another consumer of the group ended with an error");
                        }
                    }
                }
            }
        }
        let reports = reports.into_iter().filter_map(|(queue, report)| Some((queue, report?))).collect();
        match first_error {
            None => Ok(reports),
            Some(error) => Err(ConsumersError { error, reports }),
        }
    }
}

impl std::fmt::Debug for Consumers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| &member.queue)).finish()
    }
}

/// One of several consumers ended with an error, and the others were stopped.
#[derive(thiserror::Error)]
#[error("{error}; the consumers beside it were stopped")]
#[non_exhaustive]
pub struct ConsumersError {
    /// The first error.
    #[source]
    pub error: ConsumerError,
    /// The queues and reports of the consumers that ended in order.
    pub reports: Vec<(String, Report)>,
}

/// As `main` shows it: the message, and its causes.
impl std::fmt::Debug for ConsumersError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&redrive_core::text::with_causes(self))
    }
}

/// Watches several consumers, and stops, pauses and resumes them.
#[derive(Clone, Debug)]
pub struct ConsumersHandle {
    handles: Vec<(String, ConsumerHandle)>,
}

impl ConsumersHandle {
    /// Returns the queues and the handles of their consumers, in the order in which the consumers were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ConsumerHandle)> {
        self.handles.iter().map(|(queue, handle)| (queue.as_str(), handle))
    }

    /// Returns the queues and the health of their consumers.
    #[must_use]
    pub fn health(&self) -> Vec<(&str, Health)> {
        self.iter().map(|(queue, handle)| (queue, handle.health())).collect()
    }

    /// Returns true if [each is live](Health::is_live): the answer to a liveness probe.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.iter().all(|(_, handle)| handle.health().is_live())
    }

    /// Returns true if [each is ready](Health::is_ready): the answer to a readiness probe.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.iter().all(|(_, handle)| handle.health().is_ready())
    }

    /// Ends all of them as a shutdown does.
    pub fn stop(&self) {
        self.iter().for_each(|(_, handle)| handle.stop());
    }

    /// [Pauses](ConsumerHandle::pause) all of them.
    pub fn pause(&self) {
        self.iter().for_each(|(_, handle)| handle.pause());
    }

    /// [Resumes](ConsumerHandle::resume) all of them.
    pub fn resume(&self) {
        self.iter().for_each(|(_, handle)| handle.resume());
    }
}
