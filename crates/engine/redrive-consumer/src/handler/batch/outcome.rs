//! What a batch handler may return, and what follows.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use redrive_core::{
    BoxError, ByMarker, Disposition, ErrorClass, ErrorClassifier, Outcome, Permanent, Throttled,
    into_box_error,
};

use crate::handler::IntoOutcome;

/// Result of handling a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum BatchOutcome {
    /// One outcome for all items. If it is an error, the batch may be split: see [`BatchHandler`](super::BatchHandler).
    Whole(Outcome),
    /// One outcome for each item, in their order. These are final.
    Each(Vec<Outcome>),
}

/// What a [`BatchHandler`](super::BatchHandler) may return: what a [`Handler`](crate::Handler) may, for all items; a `Vec` with one
/// of these for each item, in their order; or a `Result` of these.
#[diagnostic::on_unimplemented(
    message = "a handler of batches cannot answer `{Self}`",
    note = "it answers `()`, a `Disposition`, a `Vec` with one of these or a `Result` for each item, or a `Result` of all these \
            whose error is `Into<Box<dyn Error + Send + Sync>>`"
)]
pub trait IntoBatchOutcome {
    /// Converts into the outcome.
    fn into_batch_outcome(self) -> BatchOutcome;
}

impl IntoBatchOutcome for () {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::Whole(self.into_outcome())
    }
}

impl IntoBatchOutcome for Disposition {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::Whole(self.into_outcome())
    }
}

impl<R: IntoOutcome> IntoBatchOutcome for Vec<R> {
    fn into_batch_outcome(self) -> BatchOutcome {
        BatchOutcome::Each(self.into_iter().map(IntoOutcome::into_outcome).collect())
    }
}

impl<R: IntoBatchOutcome, E: Into<BoxError> + 'static> IntoBatchOutcome for Result<R, E> {
    fn into_batch_outcome(self) -> BatchOutcome {
        match self {
            Ok(answer) => answer.into_batch_outcome(),
            Err(error) => BatchOutcome::Whole(Err(into_box_error(error))),
        }
    }
}

/// What follows from the outcome of a batch.
#[derive(Debug)]
pub(super) enum Next {
    /// Every item has its outcome.
    Answer(Vec<Outcome>),
    /// It is not known which items caused the error: handle each half separately.
    Halve(BoxError),
}

impl BatchOutcome {
    pub(super) fn next(self, items: usize) -> Next {
        match self {
            Self::Each(outcomes) if outcomes.len() == items => Next::Answer(outcomes),
            Self::Each(outcomes) => {
                let text = format!("the handler answered {} outcomes for a batch of {items}", outcomes.len());
                Next::Answer((0..items).map(|_| Err(Permanent::new(text.clone()).into())).collect())
            }
            Self::Whole(Ok(disposition)) => {
                Next::Answer(std::iter::repeat_n(disposition, items).map(Ok).collect())
            }
            Self::Whole(Err(error)) if items == 1 => Next::Answer(vec![Err(error)]),
            Self::Whole(Err(error)) => match ByMarker.classify(&*error) {
                // No item is the cause; smaller batches would only send more requests.
                ErrorClass::Throttled(wait) => {
                    let error = WholeBatch(error.into());
                    let throttled = || Err(Throttled::after(wait, error.clone()).into());
                    Next::Answer(std::iter::repeat_with(throttled).take(items).collect())
                }
                _ => Next::Halve(error),
            },
        }
    }
}

/// The error of a whole batch, reported for each of its items.
#[derive(Clone, Debug)]
struct WholeBatch(Arc<dyn Error + Send + Sync>);

impl fmt::Display for WholeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the whole batch failed")
    }
}

impl Error for WholeBatch {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redrive_core::{MarkError, secs};

    fn shown(next: &Next) -> Vec<String> {
        let Next::Answer(outcomes) = next else { return vec!["halve".to_owned()] };
        let shown = |outcome: &Outcome| match outcome {
            Ok(disposition) => disposition.name().to_owned(),
            Err(error) => format!("{:?}: {error}", ByMarker.classify(&**error)),
        };
        outcomes.iter().map(shown).collect()
    }

    #[test]
    fn one_answer_is_for_all_items() {
        assert_eq!(shown(&().into_batch_outcome().next(2)), ["ack", "ack"]);
        assert_eq!(shown(&Disposition::Release.into_batch_outcome().next(1)), ["release"]);
    }

    #[test]
    fn answers_of_items_are_final() {
        let each = vec![Ok(()), Err("no stock")].into_batch_outcome();
        assert_eq!(shown(&each.next(2)), ["ack", "Transient: no stock"]);
        let each = Ok::<_, BoxError>(vec![Disposition::Ack, Disposition::Release]).into_batch_outcome();
        assert_eq!(shown(&each.next(2)), ["ack", "release"]);
    }

    #[test]
    fn too_few_and_too_many_answers_acknowledge_nothing() {
        for answers in [1, 3] {
            let next = vec![(); answers].into_batch_outcome().next(2);
            let told = format!("Permanent: the handler answered {answers} outcomes for a batch of 2");
            assert_eq!(shown(&next), [told.clone(), told]);
        }
    }

    #[test]
    fn an_error_of_many_is_nobodys_yet() {
        let failed = || Err::<(), _>("no connection").into_batch_outcome();
        assert_eq!(shown(&failed().next(2)), ["halve"]);
        assert_eq!(shown(&failed().next(1)), ["Transient: no connection"]);
        assert_eq!(shown(&Err::<(), _>("bad").permanent().into_batch_outcome().next(2)), ["halve"]);
    }

    #[test]
    fn nobody_is_to_blame_where_everybody_is_throttled() {
        let next = Err::<(), _>("429").throttled(secs(5)).into_batch_outcome().next(2);
        assert_eq!(shown(&next), ["Throttled(5s): the whole batch failed"; 2]);
        let Next::Answer(outcomes) = next else { unreachable!() };
        let error = outcomes.into_iter().next().unwrap().unwrap_err();
        assert_eq!(error.source().unwrap().to_string(), "429");
    }
}
