//! The preset on `tower::ServiceBuilder`.

use redrive_core::{DeadLetterBackoff, IntoDeadLetterBackoff};

use crate::service::StageLayer;

/// `with_dead_letter_backoff` on [`tower::ServiceBuilder`].
///
/// The consumer cannot inspect a `ServiceBuilder`: declare the waits with [`Consumer::needs`](crate::Consumer::needs), so that the
/// transport can prepare them.
pub trait ServiceBuilderExt<L>: Sized {
    /// Adds the preset with this retry policy, or this preset.
    fn with_dead_letter_backoff(self, preset: impl IntoDeadLetterBackoff) -> WithPreset<L>;
}

/// A [`tower::ServiceBuilder`] with the preset as its innermost layer so far.
pub type WithPreset<L> = tower::ServiceBuilder<tower_layer::Stack<StageLayer<DeadLetterBackoff>, L>>;

impl<L> ServiceBuilderExt<L> for tower::ServiceBuilder<L> {
    fn with_dead_letter_backoff(self, preset: impl IntoDeadLetterBackoff) -> WithPreset<L> {
        self.layer(StageLayer::new(preset.into_dead_letter_backoff()))
    }
}
