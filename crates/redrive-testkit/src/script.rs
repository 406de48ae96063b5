//! Deliberate failures before the handler.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redrive_consumer::Handler;
use redrive_core::engine::Stages;
use redrive_core::transport::Needs;
use redrive_core::{BoxError, Delivery, Disposition, Outcome, into_box_error};
use tokio::time::sleep;

/// What happens to the first deliveries of a message before the handler is called. Each message has its own position in the
/// script; after the last step the handler is called.
///
/// ```
/// use redrive_consumer::Consumer;
/// use redrive_core::{BoxError, Message, secs};
/// use redrive_testkit::{Script, TestConsumer};
///
/// async fn ship(order: String) -> Result<(), BoxError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let script = Script::new().fail(2, || "the carrier does not answer").panic(1, "out of range");
/// let run = TestConsumer::new(|orders| {
///     Consumer::new(orders).with_dead_letter_backoff([secs(1); 5]).handler(script.then(ship))
/// })
/// .send(Message::new("a lamp").with_id("order-1"))
/// .run()
/// .await;
/// run.assert("order-1").attempts(4).acknowledged();
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a script does nothing until it stands before a handler: `script.then(handler)`"]
pub struct Script {
    /// Steps, each with a number of repetitions.
    steps: Vec<(usize, Step)>,
    only: Option<String>,
}

#[derive(Clone)]
enum Step {
    Pass,
    Fail(Arc<dyn Fn() -> BoxError + Send + Sync>),
    Panic(String),
    Hang,
    Delay(Duration),
    Answer(Disposition),
}

impl Script {
    /// Creates a script without steps: every delivery goes to the handler.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `times` deliveries fail with this error, as if the handler had returned it. Layers and classifiers see its type.
    pub fn fail<E: Into<BoxError> + 'static>(
        self,
        times: usize,
        error: impl Fn() -> E + Send + Sync + 'static,
    ) -> Self {
        self.add(times, Step::Fail(Arc::new(move || into_box_error(error()))))
    }

    /// Makes the next `times` deliveries panic with this message.
    pub fn panic(self, times: usize, message: impl Into<String>) -> Self {
        self.add(times, Step::Panic(message.into()))
    }

    /// Makes the next `times` deliveries never end: for layers with a timeout, and for shutdowns.
    pub fn hang(self, times: usize) -> Self {
        self.add(times, Step::Hang)
    }

    /// Passes the next `times` deliveries to the handler after this time.
    pub fn delay(self, times: usize, time: Duration) -> Self {
        self.add(times, Step::Delay(time))
    }

    /// Ends the next `times` deliveries with this disposition, as if the handler had returned it.
    pub fn answer(self, times: usize, disposition: Disposition) -> Self {
        self.add(times, Step::Answer(disposition))
    }

    /// Passes the next `times` deliveries to the handler.
    pub fn pass(self, times: usize) -> Self {
        self.add(times, Step::Pass)
    }

    /// Restricts the script to the message with this id; the others go to the handler.
    pub fn only(mut self, id: impl Into<String>) -> Self {
        self.only = Some(id.into());
        self
    }

    /// Puts the script before this handler. The result is a [`Handler`] with the same arguments, state and needs, and can be put
    /// behind another script.
    pub fn then<H>(self, handler: H) -> Scripted<H> {
        Scripted { script: Arc::new(self), delivered: Arc::default(), handler }
    }

    fn add(mut self, times: usize, step: Step) -> Self {
        self.steps.push((times, step));
        self
    }

    /// Returns the step for a message that was delivered `before` times before.
    fn step(&self, mut before: usize) -> Step {
        for (times, step) in &self.steps {
            match before.checked_sub(*times) {
                Some(left) => before = left,
                None => return step.clone(),
            }
        }
        Step::Pass
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("Pass"),
            Self::Fail(error) => f.debug_tuple("Fail").field(&error().to_string()).finish(),
            Self::Panic(message) => f.debug_tuple("Panic").field(message).finish(),
            Self::Hang => f.write_str("Hang"),
            Self::Delay(time) => f.debug_tuple("Delay").field(time).finish(),
            Self::Answer(disposition) => f.debug_tuple("Answer").field(disposition).finish(),
        }
    }
}

/// A handler behind a [`Script`]; made by [`Script::then`].
#[derive(Clone, Debug)]
pub struct Scripted<H> {
    script: Arc<Script>,
    /// Number of deliveries of each message, by its id.
    delivered: Arc<Mutex<HashMap<String, usize>>>,
    handler: H,
}

/// Tells the compiler that this handler has a script, and which function is inside.
#[derive(Debug)]
pub struct ScriptedArgs<Args>(PhantomData<fn() -> Args>);

impl<H> Scripted<H> {
    fn next_step(&self, delivery: &Delivery) -> Step {
        if self.script.only.as_deref().is_some_and(|only| only != delivery.id()) {
            return Step::Pass;
        }
        let mut delivered = self.delivered.lock();
        let before = delivered.entry(delivery.id().to_owned()).or_default();
        let step = self.script.step(*before);
        *before += 1;
        step
    }
}

impl<H, Args, S> Handler<ScriptedArgs<Args>, S> for Scripted<H>
where
    H: Handler<Args, S>,
    Args: 'static,
    S: 'static,
{
    type Future = Pin<Box<dyn Future<Output = Outcome> + Send>>;

    fn handle(&self, delivery: Delivery, state: &S) -> Self::Future {
        match self.next_step(&delivery) {
            Step::Pass => Box::pin(self.handler.handle(delivery, state)),
            Step::Fail(error) => Box::pin(async move { Err(error()) }),
            // Not `panic!`: the hook would print a backtrace of the test kit.
            Step::Panic(message) => Box::pin(async move { resume_unwind(Box::new(message)) }),
            Step::Hang => Box::pin(std::future::pending()),
            Step::Delay(time) => {
                // The future cannot borrow the state, so the arguments are extracted now.
                let handling = self.handler.handle(delivery, state);
                Box::pin(async move {
                    sleep(time).await;
                    handling.await
                })
            }
            Step::Answer(disposition) => Box::pin(async move { Ok(disposition) }),
        }
    }

    fn needs(&self) -> Needs {
        self.handler.needs()
    }

    fn stages(&self) -> Stages {
        self.handler.stages()
    }
}
