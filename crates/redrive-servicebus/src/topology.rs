//! Whether the entities that a transport reads are there. Nothing is created: that takes rights that no consumer should have.

use redrive_core::TransportError;

use crate::error::{self, WireError};
use crate::shared::Shared;

/// Verifies that every entity can be read, and has sessions or not as the options say.
pub(crate) async fn verify(shared: &Shared) -> Result<(), TransportError> {
    for entity in shared.options.sources() {
        verify_entity(shared, &entity.path()).await?;
    }
    Ok(())
}

/// Verifies the same of one entity.
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
        Err(error) if error.speaks_of_sessions() => Err(error::needs_sessions(path)),
        Err(error) => Err(tried(error)),
    }
}
