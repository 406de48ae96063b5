//! Checks that the entities of a transport exist. Nothing is created: that takes rights that no consumer should have.

use redrive_core::TransportError;

use crate::error::{Refusal, WireError};
use crate::options::Protocol;
use crate::shared::Shared;
use crate::wire::Wire;

/// Verifies that every consumed entity can be read, and that it requires sessions if and only if the options set them.
pub(crate) async fn verify(shared: &Shared) -> Result<(), TransportError> {
    for entity in shared.options.sources() {
        verify_entity(shared, &entity.path()).await?;
    }
    Ok(())
}

/// Verifies one entity, as [`verify`] does.
pub(crate) async fn verify_entity(shared: &Shared, path: &str) -> Result<(), TransportError> {
    let verified = async {
        let wire = shared.connection.connection().await?;
        if shared.options.protocol() == Protocol::Amqp {
            // What is known may be long past.
            wire.forget(path).await;
            return fits(&*wire, path, shared.options.sessions.is_some()).await;
        }
        wire.receiver(path).await?.close().await;
        Ok(())
    };
    verified
        .await
        .map_err(|error: WireError| error.into_error_without_lock(&format!("attaching to `{path}`")))
}

/// Verifies that messages can be received from an entity in the way of the options. Disturbs no link of the connection.
pub(crate) async fn fits(wire: &dyn Wire, path: &str, in_sessions: bool) -> Result<(), WireError> {
    match (wire.requires_sessions(path).await?, in_sessions) {
        (true, false) => Err(WireError::new(Refusal::NeedsSessions, format!("`{path}` requires sessions"))),
        (false, true) => Err(WireError::new(Refusal::HasNoSessions, format!("`{path}` has no sessions"))),
        _ => Ok(()),
    }
}
