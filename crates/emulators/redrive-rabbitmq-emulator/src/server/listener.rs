//! Accepts connections, and passes time to the broker.

use std::sync::Arc;

use redrive_emulator_host::{Accepting, Listeners};

use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use super::socket::{Registered, serve};

pub(crate) fn accept(
    listeners: Listeners,
    protocols: &Arc<ProtocolDetect>,
    shared: &Arc<SharedState>,
    max_body: u64,
) -> Accepting {
    let protocols = Arc::clone(protocols);
    let serving = Arc::clone(shared);
    let closing = Arc::clone(shared);
    Accepting::start(
        listeners,
        move |stream, peer| {
            // Registered before its task begins: if the emulator ends in between, the connection is told.
            let (id, wake) = serving.connect(peer.to_string());
            let registered = Registered { shared: Arc::clone(&serving), id, wake };
            serve(stream, registered, Arc::clone(&protocols), max_body)
        },
        move || {
            // A connection on which no bytes move cannot be closed.
            closing.set_frozen(false);
            closing.with(|broker, now| {
                broker.close_all("broker forced connection closure with reason 'shutdown'", now);
            });
        },
    )
}

/// Advances the broker when time alone causes a change.
pub(crate) async fn pass_time(shared: Arc<SharedState>) {
    let advance = || {
        shared.with(|broker, now| {
            broker.advance(now);
            broker.next_deadline().map(|deadline| deadline.since(now))
        })
    };
    redrive_emulator_host::pass_time(&shared.clock, advance, || shared.deadline_moved.notified()).await;
}
