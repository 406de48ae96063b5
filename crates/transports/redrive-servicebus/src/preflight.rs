//! Compares the needs of a consumer with the entities of the namespace, and changes nothing there.

use redrive_core::transport::{Finding, Needs, Outline};
use redrive_core::{TransportError, TransportErrorKind};

use crate::options::{Options, Protocol};
use crate::outline::outline;
use crate::shared::Shared;
use crate::topology;

/// Checks everything that opening the transport would check, and returns what it found.
pub(crate) async fn preflight(shared: &Shared, needs: &Needs) -> Result<Outline, TransportError> {
    let mut found = outline(&shared.options, needs);
    // REST can check an entity only by locking one of its messages, which counts a delivery.
    let checked =
        if shared.options.protocol() == Protocol::Amqp { shared.options.sources() } else { Vec::new() };
    for entity in checked {
        match topology::verify_entity(shared, &entity.path()).await {
            Ok(()) => {}
            Err(error) if error.kind() == TransportErrorKind::Unreachable => return Err(error),
            Err(error) => found = found.with(Finding::refused(error.to_string())),
        }
    }
    Ok(unchecked(&shared.options).into_iter().map(Finding::unchecked).fold(found, Outline::with))
}

/// Returns what cannot be checked with the rights to listen and send: one sentence each, with what to do.
fn unchecked(options: &Options) -> Vec<String> {
    let entity = &options.entity;
    let mut unchecked = vec![format!(
        "the MaxDeliveryCount of `{entity}` is taken to be {} (`Options::max_delivery_count`): the right to listen does not \
         show it; compare it with the entity's",
        options.max_delivery_count
    )];
    unchecked.push(format!(
        "the dead letters of `{entity}` are taken to stay in its dead-letter queue: the right to listen does not show \
         `ForwardDeadLetteredMessagesTo`, with which that queue is empty and they are in the entity named there"
    ));
    if options.protocol() != Protocol::Amqp {
        unchecked.push(
            "by REST, shelves leave out what is deferred, scheduled or locked by others, and no count has it: \
             `Backend::Amqp` reads all of it"
                .to_owned(),
        );
        unchecked.push(format!(
            "`{entity}` was not checked: by REST that would lock a message and count a delivery of it; a missing entity or right \
             shows when the consumer starts"
        ));
    }
    let queues = [options.parking_queue.as_deref(), options.dead_letter_target()];
    for queue in queues.into_iter().flatten() {
        unchecked.push(format!(
            "the queue `{queue}` is only sent to, and was not checked: make sure that it exists and that the key may send to it"
        ));
    }
    if options.has_transactions() {
        unchecked.push(format!(
            "the first retry shows if the namespace of `{entity}` has transactions (the tier Basic has none): without them a \
             crash may leave a copy beside its original"
        ));
    }
    unchecked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_said() {
        let options = Options::new("orders").parking_queue("parked").max_delivery_count(7);
        let said = unchecked(&options).join("; ");
        for part in
            ["taken to be 7", "`parked` is only sent to", "transactions", "ForwardDeadLetteredMessagesTo"]
        {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
        assert_eq!(unchecked(&Options::new("orders").transactions(crate::Transactions::Off)).len(), 2);
        #[cfg(feature = "rest")]
        {
            let rest = Options::new("orders").backend(crate::Backend::Rest).dead_letter_queue("dead");
            let said = unchecked(&rest).join("; ");
            assert!(
                said.contains("would lock a message") && said.contains("`dead` is only sent to"),
                "{said}"
            );
        }
    }
}
