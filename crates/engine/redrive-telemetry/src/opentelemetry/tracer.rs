//! Links between the spans of one message: across processes, attempts and redrives.

use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, KeyValue};
use redrive_consumer::Tracer;
use redrive_core::{Delivery, Message, TraceParent, Value};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Joins the spans of deliveries to the traces of their messages, if the process has the layer of
/// [`tracing-opentelemetry`](tracing_opentelemetry).
///
/// The span of a delivery has a link to the span of its publisher, taken from the header `traceparent`, or from `Diagnostic-Id` as
/// the SDKs of Service Bus write it. Another link, with the attribute `redrive.link` = `previous-attempt`, leads to the previous
/// attempt, also across a redrive. So all attempts of a message can be found from any of its spans. The context of an attempt is
/// written on its copy: if a broker retries [in place](redrive_core::transport::InPlace), there is no copy, and no link to the previous attempt.
///
/// ```
/// use redrive_consumer::Consumer;
/// use redrive_telemetry::OpenTelemetryTracer;
/// # use redrive_core::BoxError;
///
/// # fn build(transport: redrive_memory::Memory) {
/// # async fn ship(order: String) -> Result<(), BoxError> { Ok(()) }
/// let consumer = Consumer::new(transport).tracer(OpenTelemetryTracer::new()).handler(ship);
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTelemetryTracer {
    continues_trace: bool,
}

impl OpenTelemetryTracer {
    /// Creates a tracer that links to the publisher's span: each attempt is a trace of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes each attempt a child of the publisher's span, in the publisher's trace. A trace then ends when the last attempt does,
    /// which may be days later.
    #[must_use]
    pub fn continue_trace(mut self) -> Self {
        self.continues_trace = true;
        self
    }

    /// Writes the context of the current span on a message to be published, as the header `traceparent`.
    ///
    /// ```
    /// # use redrive_core::{Message, Publisher, TransportError};
    /// use redrive_telemetry::OpenTelemetryTracer;
    ///
    /// # async fn example(publisher: Publisher) -> Result<(), TransportError> {
    /// publisher.publish(OpenTelemetryTracer::inject(Message::new("order 7"))).await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn inject(message: Message) -> Message {
        match position(&Span::current()) {
            Some(parent) => message.with_header("traceparent", parent.to_string()),
            None => message,
        }
    }
}

impl Tracer for OpenTelemetryTracer {
    fn join(&self, span: &Span, delivery: &Delivery) {
        if let Some(publisher) = publisher_of(delivery).map(remote) {
            if self.continues_trace {
                // Fails only if the process has no layer for OpenTelemetry.
                let _ = span.set_parent(Context::new().with_remote_span_context(publisher));
            } else {
                span.add_link(publisher);
            }
        }
        // What a copy says is not of the attempt before, if attempts in place came after it.
        let was_copied = delivery.failures_in_place() == 0;
        if let Some(attempt) = delivery.history().trace_parent.filter(|_| was_copied).map(remote) {
            let kind = KeyValue::new("redrive.link", "previous-attempt");
            span.add_link_with_attributes(attempt, vec![kind]);
        }
    }

    fn context(&self, span: &Span) -> Option<TraceParent> {
        position(span)
    }
}

fn position(span: &Span) -> Option<TraceParent> {
    let context = span.context();
    let span = context.span();
    let position = span.span_context();
    let trace_id = u128::from_be_bytes(position.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(position.span_id().to_bytes());
    TraceParent::new(trace_id, span_id, position.trace_flags().to_u8())
}

fn publisher_of(delivery: &Delivery) -> Option<TraceParent> {
    let diagnostic_id = || delivery.message().headers().get("Diagnostic-Id").and_then(Value::as_str);
    delivery.trace_parent().or_else(|| TraceParent::parse(diagnostic_id()?))
}

fn remote(parent: TraceParent) -> SpanContext {
    let (trace_id, span_id) = (TraceId::from(parent.trace_id()), SpanId::from(parent.span_id()));
    SpanContext::new(trace_id, span_id, TraceFlags::new(parent.flags()), true, TraceState::NONE)
}
