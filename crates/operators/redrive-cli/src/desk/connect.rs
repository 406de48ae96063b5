//! The shelves of a queue, from a context.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use redrive::TransportErrorKind;
use redrive::prelude::*;
use redrive::rabbitmq::Credentials;

use crate::exit::usage;
use crate::interrupt::note_shelves;
use crate::secret::{Secret, SecretSource};
use crate::settings::{Context, Global};

/// The shelves of one queue.
#[derive(Clone)]
pub(crate) struct Desk {
    /// The broker, as contexts and plans call it.
    pub(crate) broker: String,
    /// The work queue, as the user named it.
    pub(crate) queue: String,
    pub(crate) shelves: Arc<dyn Shelves>,
    pub(super) is_service_bus: bool,
}

impl Desk {
    /// Returns false if nobody can put a message onto this shelf: the dead-letter queue of Service Bus.
    pub(crate) fn can_restore(&self, shelf: Shelf) -> bool {
        !(self.is_service_bus && shelf == Shelf::DeadLetter)
    }
}

/// Connects to the broker for these queues, or for those of the context.
///
/// # Errors
///
/// If there are no queues, the secret cannot be read, or the broker cannot be reached.
pub(crate) async fn connect_all(global: &Global, context: &Context, queues: &[String]) -> Result<Vec<Desk>> {
    let mut desks = Vec::new();
    for queue in named_queues(global, context, queues).await? {
        desks.push(connect(global, context, &queue).await?);
    }
    Ok(desks)
}

/// Returns these queues, or those of the context, or all that a service serves on its socket.
///
/// # Errors
///
/// If there are none.
pub(crate) async fn named_queues(
    global: &Global,
    context: &Context,
    queues: &[String],
) -> Result<Vec<String>> {
    let mut queues = if queues.is_empty() { &context.queues } else { queues }.to_vec();
    if let Some(path) = context.socket().filter(|_| queues.is_empty()) {
        let served = within(global.timeout, socket::queues(path)).await;
        queues = served.with_context(|| format!("cannot connect to {}", context.label()))?;
    }
    if queues.is_empty() {
        return Err(usage("no queue: name one, or list `queues` in the context"));
    }
    Ok(queues)
}

/// Connects to the broker for one queue. Nothing is declared and nothing is consumed.
///
/// # Errors
///
/// The same as [`connect_all`].
pub(crate) async fn connect(global: &Global, context: &Context, queue: &str) -> Result<Desk> {
    let connecting = async {
        if let Some(path) = context.socket() {
            return socket::connect(path, queue).await;
        }
        let (secret, ca) = secrets(context)?;
        if context.is_service_bus() {
            service_bus(context, queue, secret, ca).await
        } else {
            rabbitmq(context, queue, secret, ca).await
        }
    };
    let shelves = within(global.timeout, connecting)
        .await
        .with_context(|| format!("cannot connect to {} for `{queue}`", context.label()))?;
    note_shelves(&shelves);
    let (broker, queue) = (context.label().to_owned(), context.queue_name(queue));
    Ok(Desk { broker, queue, shelves, is_service_bus: context.is_service_bus() })
}

/// Reads the secret of a context, and the certificates.
///
/// # Errors
///
/// If one of them cannot be read.
pub(crate) fn secrets(context: &Context) -> Result<(Option<Secret>, Option<String>)> {
    let secret = context.secret.as_ref().map(SecretSource::read).transpose()?;
    let ca =
        context.ca_file.as_ref().map(std::fs::read_to_string).transpose().context("cannot read `ca-file`")?;
    Ok((secret, ca))
}

/// Ends after the time of `--timeout`.
///
/// # Errors
///
/// That of the work, or that it took too long.
pub(crate) async fn within<T>(timeout: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(timeout, work).await {
        Ok(done) => done,
        Err(_) => anyhow::bail!(
            "it took longer than {}: raise --timeout, or see whether the broker answers",
            humantime::format_duration(timeout)
        ),
    }
}

/// Services on this machine, by their sockets.
#[cfg(unix)]
mod socket {
    use redrive::ops::SocketShelves;

    use super::*;

    pub(super) async fn connect(path: &Path, queue: &str) -> Result<Arc<dyn Shelves>> {
        Ok(Arc::new(SocketShelves::connect(path, queue).await?))
    }

    pub(super) async fn queues(path: &Path) -> Result<Vec<String>> {
        Ok(SocketShelves::queues(path).await?)
    }
}

/// A context with a socket is refused on other systems.
#[cfg(not(unix))]
mod socket {
    use super::*;

    pub(super) async fn connect(_: &Path, _: &str) -> Result<Arc<dyn Shelves>> {
        Err(usage("there are no Unix domain sockets here"))
    }

    pub(super) async fn queues(_: &Path) -> Result<Vec<String>> {
        Err(usage("there are no Unix domain sockets here"))
    }
}

async fn rabbitmq(
    context: &Context,
    queue: &str,
    secret: Option<Secret>,
    ca: Option<String>,
) -> Result<Arc<dyn Shelves>> {
    let options = rabbitmq_options(context, queue, secret, ca);
    Ok(Arc::new(log_in(context, options).await?.shelves()))
}

/// Connects to RabbitMQ.
///
/// # Errors
///
/// If it cannot be reached, or refuses the user: in the words of the command line, for the library advises programmers.
pub(crate) async fn log_in(context: &Context, options: redrive::rabbitmq::Options) -> Result<RabbitMq> {
    options.connect(context.broker.url()).await.map_err(|error| {
        match refused_user(context, &error.to_string()) {
            Some(said) if error.kind() == TransportErrorKind::Unauthorized => anyhow!(said),
            _ => error.into(),
        }
    })
}

/// Returns what the broker refuses, with which secret, and its own sentence once; nothing if it refuses something else.
fn refused_user(context: &Context, text: &str) -> Option<String> {
    let (refused, sentence) = text.rsplit_once("): check ")?.0.split_once(" (")?;
    if !refused.contains(" refuses the user ") {
        return None;
    }
    let sentence = sentence.trim_end_matches('.');
    let place = match (&context.name, &context.secret) {
        (Some(name), _) => format!("`secret` of the context `{name}`"),
        (None, Some(SecretSource::File(_))) => "--secret-file or REDRIVE_SECRET_FILE".to_owned(),
        (None, Some(_)) => "--secret-env".to_owned(),
        (None, None) => "--secret-file, --secret-env, or `secret` of a context".to_owned(),
    };
    Some(match &context.secret {
        Some(secret) => format!("{refused} with the password of the {secret} ({place}): {sentence}"),
        None => format!("{refused}: {sentence}. No password was given: {place}"),
    })
}

/// Returns the options of a queue on RabbitMQ.
pub(crate) fn rabbitmq_options(
    context: &Context,
    queue: &str,
    secret: Option<Secret>,
    ca: Option<String>,
) -> redrive::rabbitmq::Options {
    let mut options = RabbitMq::options(queue)
        .connection_name("redrive command line")
        .accept_low_delivery_limit(context.accept_low_delivery_limit);
    if let Some(name) = context.named(&context.dead_letter_queues, queue) {
        options = options.dead_letter_queue(name);
    }
    if let Some(name) = context.named(&context.parking_queues, queue) {
        options = options.parking_queue(name);
    }
    if let Some(queues) = context.named(&context.shelves_shared_with, queue) {
        options = options.shelves_shared_with(queues);
    }
    if let Some(pem) = ca {
        options = options.ca_certificates(pem);
    }
    if let Some(secret) = secret {
        let user = context.broker.user().to_owned();
        options = options.credentials(move || {
            let credentials = Credentials::password(user.clone(), secret.expose());
            async move { Ok(credentials) }
        });
    }
    options
}

async fn service_bus(
    context: &Context,
    queue: &str,
    secret: Option<Secret>,
    ca: Option<String>,
) -> Result<Arc<dyn Shelves>> {
    let secret = connection_string(secret)?;
    Ok(Arc::new(service_bus_options(context, queue, ca).connect(secret.expose()).await?.shelves()))
}

/// Returns the connection string of Service Bus.
///
/// # Errors
///
/// If there is none.
pub(crate) fn connection_string(secret: Option<Secret>) -> Result<Secret> {
    secret.ok_or_else(|| {
        usage("Service Bus needs a connection string: --secret-file FILE, --secret-env NAME, or `secret` of a context")
    })
}

/// Returns the options of an entity of Service Bus.
pub(crate) fn service_bus_options(
    context: &Context,
    queue: &str,
    ca: Option<String>,
) -> redrive::servicebus::Options {
    let mut options = ServiceBus::options(queue);
    if let Some(name) = context.named(&context.parking_queues, queue) {
        options = options.parking_queue(name);
    }
    if let Some(name) = context.named(&context.retry_queues, queue) {
        options = options.retry_queue(name);
    }
    if let Some(pem) = ca {
        options = options.ca_certificates(pem);
    }
    options
}
