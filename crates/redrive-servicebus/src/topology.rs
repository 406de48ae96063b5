//! Checks that the entities of a transport exist. Nothing is created: that takes rights that no consumer should have.

use redrive_core::TransportError;

use crate::error::{self, WireError};
use crate::shared::Shared;

/// Verifies that every consumed entity can be read, and that it requires sessions if and only if the options set them.
pub(crate) async fn verify(shared: &Shared) -> Result<(), TransportError> {
    for entity in shared.options.sources() {
        verify_entity(shared, &entity.path()).await?;
    }
    Ok(())
}

/// Verifies one entity, as [`verify`] does.
pub(crate) async fn verify_entity(shared: &Shared, path: &str) -> Result<(), TransportError> {
    let tried = |error: WireError| error.into_error(&format!("attaching to `{path}`"));
    let wire = shared.connection.connection().await.map_err(tried)?;
    if shared.options.sessions.is_some() {
        return match wire.requires_sessions(path).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(error::has_no_sessions(path)),
            Err(error) => Err(tried(error)),
        };
    }
    match wire.receiver(path).await {
        Ok(receiver) => {
            receiver.close().await;
            Ok(())
        }
        Err(error) if error.mentions_sessions() => Err(error::needs_sessions(path)),
        Err(error) => Err(tried(error)),
    }
}
