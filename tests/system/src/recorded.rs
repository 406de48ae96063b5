//! What a consumer leaves in `tracing`: its spans and its lines.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Fields, by their names.
pub type Shown = BTreeMap<String, String>;

/// A subscriber that keeps all spans and lines of redrive.
#[derive(Clone, Debug, Default)]
pub struct Recorded(Arc<Mutex<Records>>);

#[derive(Debug, Default)]
struct Records {
    /// With the number of handles that are left.
    spans: Vec<(Shown, usize)>,
    events: Vec<(Level, Shown)>,
}

impl Recorded {
    /// The fields of each span, in the order of their beginnings; `name` is its name, and it has `closed` once it has ended.
    #[must_use]
    pub fn spans(&self) -> Vec<Shown> {
        self.records().spans.iter().map(|(fields, _)| fields.clone()).collect()
    }

    /// The fields of each line, with its level; `message` is its text.
    #[must_use]
    pub fn events(&self) -> Vec<(Level, Shown)> {
        self.records().events.clone()
    }

    /// The lines as text, with their levels.
    #[must_use]
    pub fn lines(&self) -> Vec<(Level, String)> {
        self.events().into_iter().map(|(level, fields)| (level, format!("{fields:?}"))).collect()
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_span<R>(&self, id: &Id, change: impl FnOnce(&mut (Shown, usize)) -> R) -> R {
        change(&mut self.records().spans[usize::try_from(id.into_u64()).expect("few spans") - 1])
    }
}

impl Subscriber for Recorded {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("redrive")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut span = Fields::default();
        attributes.record(&mut span);
        span.0.insert("name".to_owned(), attributes.metadata().name().to_owned());
        let mut records = self.records();
        records.spans.push((span.0, 1));
        Id::from_u64(records.spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        self.with_span(id, |(span, _)| span.extend(fields.0));
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.records().events.push((*event.metadata().level(), fields.0));
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.with_span(id, |(_, handles)| *handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        self.with_span(&id, |(span, handles)| {
            *handles -= 1;
            let closed = *handles == 0;
            if closed {
                span.insert("closed".to_owned(), String::new());
            }
            closed
        })
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Fields(Shown);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
