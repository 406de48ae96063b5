//! The names of the queues of one consumer. Pure.

use std::time::Duration;

use redrive_core::{Shelf, TransportError, TransportErrorKind};

/// The names of the queues, as far as the options set them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenNames {
    pub(crate) work: String,
    pub(crate) dead_letters: Option<String>,
    pub(crate) parking: String,
    pub(crate) retry_prefix: String,
}

impl GivenNames {
    pub(crate) fn of(work: &str) -> Self {
        Self {
            work: work.to_owned(),
            dead_letters: None,
            parking: format!("{work}--parking-lot"),
            retry_prefix: format!("{work}--retry"),
        }
    }

    /// Returns true if redrive chose the name of this shelf.
    pub(crate) fn has_chosen(&self, shelf: &str) -> bool {
        let default = Self::of(&self.work);
        if shelf == self.parking { self.parking == default.parking } else { self.dead_letters.is_none() }
    }

    /// Returns all names; the dead-letter queue has this suffix, unless the options name it.
    pub(crate) fn settled(&self, dead_letter_suffix: &str) -> Names {
        let Self { work, dead_letters, parking, retry_prefix } = self.clone();
        let dead_letters = dead_letters.unwrap_or_else(|| format!("{work}--{dead_letter_suffix}"));
        Names { work, dead_letters, parking, retry_prefix }
    }
}

/// The names of the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) work: String,
    pub(crate) dead_letters: String,
    pub(crate) parking: String,
    pub(crate) retry_prefix: String,
}

impl Names {
    pub(crate) fn rung(&self, wait: Duration) -> String {
        format!("{}-{}ms", self.retry_prefix, wait.as_millis())
    }

    pub(crate) fn shelf(&self, shelf: Shelf) -> Result<&str, TransportError> {
        match shelf {
            Shelf::DeadLetter => Ok(&self.dead_letters),
            Shelf::Parking => Ok(&self.parking),
            other => {
                let message = format!("RabbitMQ has no queue for the shelf `{other}`");
                Err(TransportError::new(TransportErrorKind::Unsupported, message))
            }
        }
    }
}
