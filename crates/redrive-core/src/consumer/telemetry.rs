//! Spans and log lines: one span per delivery, one line per decision.

use tracing::{Span, field};

use crate::delivery::Delivery;
use crate::disposition::Disposition;

/// Creates the span of one delivery. Attribute names follow the OpenTelemetry semantic conventions for messaging
/// (<https://opentelemetry.io/docs/specs/semconv/messaging/messaging-spans/>); `traceparent` is the publisher's, for a
/// subscriber to link to.
pub(crate) fn span(delivery: &Delivery, system: &str) -> Span {
    let span = tracing::info_span!(
        "process",
        otel.kind = "consumer",
        messaging.system = system,
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.destination.name = delivery.queue(),
        messaging.message.id = delivery.id(),
        messaging.message.conversation_id = field::Empty,
        messaging.message.body.size = delivery.message().body().len(),
        traceparent = field::Empty,
        queue.name = delivery.queue(),
        delivery.count = delivery.attempt(),
        dlq.reason = field::Empty,
        dlq.error_description = field::Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(conversation) = &delivery.message().properties().correlation_id {
        span.record("messaging.message.conversation_id", conversation.as_str());
    }
    if let Some(traceparent) = delivery.traceparent() {
        span.record("traceparent", traceparent);
    }
    span
}

/// Logs the decision, at the level that an on-call engineer needs: at a higher level if the message is removed without success,
/// or needs a person.
pub(crate) fn decided(span: &Span, delivery: &Delivery, disposition: &Disposition) {
    // Also where the level of the log has no spans.
    let (attempt, queue, id) = (delivery.attempt(), delivery.queue(), delivery.id());
    if let Some(failure) = disposition.failure() {
        span.record("dlq.reason", failure.reason().as_str());
        span.record("dlq.error_description", failure.text());
    }
    match disposition {
        Disposition::Ack => tracing::debug!(attempt, "acknowledged"),
        Disposition::Release => tracing::debug!(attempt, "given back"),
        Disposition::Snooze(wait) => tracing::debug!(attempt, ?wait, "again later, at the handler's wish"),
        Disposition::Retry(wait, failure) => {
            tracing::warn!(attempt, ?wait, %failure, queue, id, "failed: tried again");
        }
        Disposition::DeadLetter(failure) => {
            tracing::error!(attempt, %failure, queue, id, "failed: goes to the dead-letter shelf");
        }
        Disposition::Park(failure) => {
            tracing::error!(attempt, %failure, queue, id, "failed: goes to the parking shelf");
        }
        Disposition::Discard(failure) => {
            tracing::warn!(attempt, %failure, queue, id, "failed: removed at the handler's wish");
        }
    }
}
