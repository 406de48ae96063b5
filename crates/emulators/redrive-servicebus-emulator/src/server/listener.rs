//! Accepts connections, and passes time to the broker.

use std::sync::Arc;

use redrive_emulator_host::{Accepting, Listeners};

use super::protocol_detect::ProtocolDetect;
use super::shared_state::SharedState;
use super::socket::serve;

pub(crate) fn accept(
    listeners: Listeners,
    protocols: &Arc<ProtocolDetect>,
    shared: &Arc<SharedState>,
) -> Accepting {
    let protocols = Arc::clone(protocols);
    let serving = Arc::clone(shared);
    let closing = Arc::clone(shared);
    Accepting::start(
        listeners,
        // Registered before its task begins: if the emulator ends in between, the connection is notified.
        move |stream, _| serve(stream, serving.connect(), Arc::clone(&protocols), Arc::clone(&serving)),
        move || closing.post_to_all(|mail| mail.close = true),
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
    let moved = || async {
        tokio::select! {
            () = shared.deadline_moved.notified() => {}
            () = shared.writable_again() => shared.wake_all(),
        }
    };
    redrive_emulator_host::pass_time(&shared.clock, advance, moved).await;
}
