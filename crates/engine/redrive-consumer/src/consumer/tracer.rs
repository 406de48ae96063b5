//! The seam for distributed tracing.

use redrive_core::{Delivery, TraceParent};
use tracing::Span;

/// Joins the spans of a consumer to the traces that its messages carry: the seam for distributed tracing. It runs on the
/// consumer's tasks, so it must be quick and must not block. A panic in it is logged and has no other effect.
///
/// `redrive-telemetry` has one for OpenTelemetry.
pub trait Tracer: Send + Sync + 'static {
    /// Joins the span of a delivery, before anything enters it: sets its parent, or adds links.
    fn join(&self, span: &Span, delivery: &Delivery);

    /// Returns the context of this span; `None` if it has none. It is written on the copy of the message
    /// ([`header_names::TRACE_PARENT`](redrive_core::header_names::TRACE_PARENT)), so that the next attempt can refer to this one.
    fn context(&self, span: &Span) -> Option<TraceParent>;
}
