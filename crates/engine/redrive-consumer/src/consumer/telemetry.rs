//! Spans and log lines: a span for each delivery and each settlement, one line for each decision. The field names are stable:
//! [observability](https://github.com/redrive-rs/redrive/blob/main/docs/observability.md).

use redrive_core::transport::Settlement;
use redrive_core::{Delivery, Disposition, Failure, TransportError};
use tracing::{Span, field};

use super::ConsumerError;

/// Creates the span of one delivery. Attribute names follow the OpenTelemetry semantic conventions for messaging
/// (<https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/>).
pub(crate) fn process_span(delivery: &Delivery, system: &str) -> Span {
    let (queue, id) = (delivery.queue(), delivery.id());
    let span = tracing::info_span!(
        "process",
        otel.name = %format_args!("process {queue}"),
        otel.kind = "consumer",
        otel.status_code = field::Empty,
        messaging.system = system,
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.destination.name = queue,
        messaging.message.id = id,
        messaging.message.conversation_id = field::Empty,
        messaging.message.body.size = delivery.message().body().len(),
        error.r#type = field::Empty,
        message.id = id,
        queue.name = queue,
        delivery.count = delivery.broker_delivery_count(),
        redrive.attempt = delivery.attempt(),
        redrive.disposition = field::Empty,
        redrive.retry.reason = field::Empty,
        redrive.retry.wait_ms = field::Empty,
        dlq.reason = field::Empty,
        dlq.error_description = field::Empty,
    );
    if !span.is_disabled()
        && let Some(conversation) = &delivery.message().properties().correlation_id
    {
        span.record("messaging.message.conversation_id", conversation.as_str());
    }
    span
}

/// Creates the span of one settlement, inside that of its delivery.
pub(crate) fn settle_span(delivery: &Delivery, settlement: &Settlement, system: &str) -> Span {
    let (queue, operation) = (delivery.queue(), settlement.name());
    tracing::info_span!(
        "settle",
        otel.name = %format_args!("{operation} {queue}"),
        otel.kind = "client",
        otel.status_code = field::Empty,
        messaging.system = system,
        messaging.operation.name = operation,
        messaging.operation.r#type = "settle",
        messaging.destination.name = queue,
        messaging.message.id = delivery.id(),
        error.r#type = field::Empty,
    )
}

/// Creates the span of a consumer's start.
pub(crate) fn start_span(queue: &str) -> Span {
    tracing::info_span!(
        "start",
        otel.name = %format_args!("start {queue}"),
        otel.status_code = field::Empty,
        messaging.destination.name = queue,
        error.r#type = field::Empty,
    )
}

/// Records on the span of a start why it failed.
pub(crate) fn start_failed(span: &Span, error: &ConsumerError) {
    match error {
        ConsumerError::Refused { .. } => failed(span, "Refused"),
        ConsumerError::Ledger { .. } => failed(span, "Ledger"),
        ConsumerError::Layer { .. } => failed(span, "Layer"),
        ConsumerError::Start { error, .. }
        | ConsumerError::Transport { error, .. }
        | ConsumerError::GaveUp { error, .. } => {
            failed(span, &format!("{:?}", error.kind()));
        }
    }
}

/// Creates the span of the time in which a consumer cannot receive.
pub(crate) fn interruption_span(queue: &str, error: &TransportError) -> Span {
    let span = tracing::info_span!(
        parent: None,
        "interruption",
        otel.name = %format_args!("interruption {queue}"),
        otel.status_code = field::Empty,
        messaging.destination.name = queue,
        error.r#type = field::Empty,
    );
    failed(&span, &format!("{:?}", error.kind()));
    span
}

/// Records on a span what went wrong.
pub(crate) fn failed(span: &Span, error_type: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error_type);
}

/// Records the decision on the span, and logs it, at the level that a person on call needs: a warning when the message leaves
/// the queue without success.
pub(crate) fn decided(span: &Span, delivery: &Delivery, disposition: &Disposition) {
    // The line says all of it, also where the level of the log has no spans.
    let (message_id, queue, attempt) = (delivery.id(), delivery.queue(), delivery.attempt());
    let name = disposition.name();
    span.record("redrive.disposition", name);
    let failure = disposition.failure();
    let (reason, error) = (failure.map(|failure| failure.reason().as_str()), failure.map(Failure::text));
    let wait_ms = disposition.wait().and_then(|wait| u64::try_from(wait.as_millis()).ok());
    if let Some(reason) = reason {
        failed(span, reason);
    }
    macro_rules! log {
        ($level:ident, $text:literal) => {
            tracing::$level!(message_id, queue, attempt, disposition = name, reason, error, wait_ms, $text)
        };
    }
    match disposition {
        Disposition::Ack => log!(debug, "acknowledged"),
        Disposition::Release => log!(debug, "given back"),
        Disposition::Snooze(_) => log!(debug, "again later, at the handler's request"),
        Disposition::Retry(..) => {
            span.record("redrive.retry.reason", reason);
            span.record("redrive.retry.wait_ms", wait_ms);
            log!(info, "failed: tried again");
        }
        Disposition::DeadLetter(_) => {
            record_end(span, reason, error);
            log!(warn, "failed: goes to the dead-letter shelf");
        }
        Disposition::Park(_) => {
            record_end(span, reason, error);
            log!(warn, "failed: goes to the parking shelf");
        }
        Disposition::Discard(_) => log!(warn, "failed: removed at the handler's request"),
        // A decision of a newer `redrive-core`, which the fields describe.
        _ => log!(warn, "decided"),
    }
}

fn record_end(span: &Span, reason: Option<&str>, error: Option<&str>) {
    span.record("dlq.reason", reason);
    span.record("dlq.error_description", error);
}
