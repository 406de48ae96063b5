//! Compares what a consumer needs with what is at the namespace, and changes nothing there.

use redrive_core::{Finding, Needs, Outline, TransportError, TransportErrorKind};

use crate::options::{Options, Protocol};
use crate::outline::outline;
use crate::shared::Shared;
use crate::topology;

/// Everything that opening the transport would look at, and what it would find.
pub(crate) async fn preflight(shared: &Shared, needs: &Needs) -> Result<Outline, TransportError> {
    let mut found = outline(&shared.options, needs);
    // By REST an entity is only seen by locking a message of it, which counts.
    let looked_at =
        if shared.options.protocol() == Protocol::Amqp { shared.options.sources() } else { Vec::new() };
    for entity in looked_at {
        match topology::verify_entity(shared, &entity.path()).await {
            Ok(()) => {}
            Err(error) if error.kind() == TransportErrorKind::Unreachable => return Err(error),
            Err(error) => found = found.with(Finding::refused(error.to_string())),
        }
    }
    Ok(unchecked(&shared.options).into_iter().map(Finding::unchecked).fold(found, Outline::with))
}

/// What the rights to listen and send do not show: one sentence each, with what to do.
fn unchecked(options: &Options) -> Vec<String> {
    let entity = &options.entity;
    let mut unchecked = vec![format!(
        "the MaxDeliveryCount of `{entity}` is taken to be {}, as `Options::max_delivery_count` says: the right to listen does not \
         show it, compare it with the entity's",
        options.max_delivery_count
    )];
    if options.protocol() != Protocol::Amqp {
        unchecked.push(format!(
            "`{entity}` was not looked at: by REST that would lock a message and count a delivery of it; whether it exists and may be \
             read shows when the consumer starts"
        ));
    }
    let queues = [options.parking_queue.as_deref(), options.dead_letter_target()];
    for queue in queues.into_iter().flatten() {
        unchecked.push(format!(
            "the queue `{queue}` is only sent to, and was not looked at: see that it exists, and that the key may send to it"
        ));
    }
    if options.has_transactions() {
        unchecked.push(format!(
            "whether the namespace of `{entity}` has transactions, which the tier Basic has not, shows with the first retry: without \
             them a crash may leave a copy beside its original"
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
        for part in ["taken to be 7", "`parked` is only sent to", "transactions"] {
            assert!(said.contains(part), "`{part}` is not in: {said}");
        }
        assert_eq!(unchecked(&Options::new("orders").transactions(crate::Transactions::Off)).len(), 1);
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
