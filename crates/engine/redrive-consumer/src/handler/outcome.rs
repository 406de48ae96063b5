//! What a handler may return.

use redrive_core::{BoxError, Disposition, Outcome, into_box_error};

/// What a handler may return: `()` (acknowledge), a [`Disposition`], or a `Result` of these.
#[diagnostic::on_unimplemented(
    message = "a handler cannot answer `{Self}`",
    note = "it answers `()`, a `Disposition`, or a `Result` of these whose error is `Into<Box<dyn Error + Send + Sync>>`"
)]
pub trait IntoOutcome {
    /// Converts into the outcome.
    ///
    /// # Errors
    ///
    /// The handler's own error, for the layers to decide about.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Ok(Disposition::Ack)
    }
}

impl IntoOutcome for Disposition {
    fn into_outcome(self) -> Outcome {
        Ok(self)
    }
}

impl<T: IntoOutcome, E: Into<BoxError> + 'static> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(answer) => answer.into_outcome(),
            Err(error) => Err(into_box_error(error)),
        }
    }
}

impl IntoOutcome for std::convert::Infallible {
    fn into_outcome(self) -> Outcome {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_outcomes() {
        assert!(matches!(().into_outcome(), Ok(Disposition::Ack)));
        assert!(matches!(Disposition::Release.into_outcome(), Ok(Disposition::Release)));
        assert!(matches!(Ok::<_, std::fmt::Error>(()).into_outcome(), Ok(Disposition::Ack)));
        assert!(Err::<(), _>(std::fmt::Error).into_outcome().unwrap_err().is::<std::fmt::Error>());
        assert_eq!(Err::<(), _>("text").into_outcome().unwrap_err().to_string(), "text");
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn anyhow_does_not_hide_the_type() {
        let error = Err::<(), _>(anyhow::Error::new(std::fmt::Error)).into_outcome().unwrap_err();
        assert!(error.is::<std::fmt::Error>());
    }
}
