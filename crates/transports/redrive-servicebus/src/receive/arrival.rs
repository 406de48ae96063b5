//! The handling of a message that arrives at an intake.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redrive_core::Delivery;
use redrive_core::transport::{DeliveryBuilder, Origin, Received};
use redrive_transport::LossSignal;
use tracing::warn;
use uuid::Uuid;

use super::inbox::{Source, Unreceived};
use crate::convert::Incoming;
use crate::entity::Entity;
use crate::error::{Refusal, WireError};
use crate::locks::session::Session;
use crate::receipt::{InFlightCount, Locked, Receipt};
use crate::settle::dead_letter::{DeadLetterText, DeadLettered, dead_letter};
use crate::shared::Shared;
use crate::wire::{Handle, SessionRef, Tag, Wire};

/// The dead-letter reason of a message that cannot be read.
const UNDECODABLE: &str = "UndecodableMessage";

/// One of the entities that a transport receives from.
#[derive(Clone)]
pub(crate) struct ConsumedEntity {
    pub(crate) shared: Arc<Shared>,
    pub(crate) path: Arc<str>,
    origin: Origin,
    /// The longest wait of one request for messages that the consumer allows.
    pub(crate) max_wait_time: Option<Duration>,
}

/// The data of a delivery that only the intake has.
pub(crate) struct ArrivalContext {
    pub(crate) lock: Uuid,
    pub(crate) tag: Tag,
    pub(crate) handle: Arc<dyn Handle>,
    pub(crate) lost: Arc<LossSignal>,
    pub(crate) in_flight: Arc<InFlightCount>,
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) counts: Counts,
}

/// The counts of a delivery, derived from those of the broker.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) broker_delivery_count: u32,
    pub(crate) failures_in_place: u32,
}

impl ConsumedEntity {
    pub(crate) fn new(shared: Arc<Shared>, entity: &Entity, max_wait_time: Option<Duration>) -> Self {
        let path: Arc<str> = entity.path().into();
        let topic = match entity {
            Entity::Subscription { topic, .. } => topic.as_str(),
            Entity::Queue(_) => "",
        };
        let origin = Origin::new(shared.entity(), topic, Arc::clone(&path));
        Self { shared, path, origin, max_wait_time }
    }

    /// Passes a message to the consumer.
    pub(crate) fn deliver(&self, mut incoming: Incoming, taken: ArrivalContext, source: &Source) {
        incoming.name_kept_reason_foreign();
        let ArrivalContext { lock, tag, handle, lost, in_flight, session, counts } = taken;
        let receipt = Receipt::new(Locked {
            shared: Arc::clone(&self.shared),
            entity: Arc::clone(&self.path),
            lock,
            tag,
            handle,
            sequence_number: incoming.sequence_number,
            enqueued_at: incoming.enqueued_at,
            marked: incoming.shelf.is_some(),
            delivered: incoming.message.headers().clone(),
            lost,
            in_flight,
            session,
            delivery_count: incoming.delivery_count,
        });
        source.push([Unreceived(Received { delivery: self.delivery(incoming, counts), receipt })]);
    }

    fn delivery(&self, incoming: Incoming, counts: Counts) -> Delivery {
        DeliveryBuilder::new(incoming.message, self.origin.clone(), SystemTime::now())
            .enqueued_at(incoming.enqueued_at)
            .broker_number(incoming.sequence_number.cast_unsigned())
            .broker_delivery_count(counts.broker_delivery_count)
            .failures_in_place(counts.failures_in_place)
            .build()
    }

    /// Signals that the entity cannot be received from for now, and prepares the next try. `wire`: the connection on which it was
    /// tried, if there was one.
    pub(crate) async fn refused(&self, error: WireError, wire: Option<&Arc<dyn Wire>>) {
        let connection = &self.shared.connection;
        let is_outage = wire.is_none_or(|wire| error.refusal == Refusal::Disconnected || !wire.is_live());
        let tried = format!("receiving from `{}`", self.path);
        if !is_outage {
            if let Some(last) = connection.last() {
                // The token may have expired, the key may have changed, or the entity may be another one.
                last.forget(&self.path).await;
            }
            return self.shared.locks.signal_refusal(&self.path, error.into_error_without_lock(&tried));
        }
        // Another intake may be on the next connection already.
        let is_over = || {
            let last = connection.last();
            last.is_some_and(|last| last.is_live() && wire.is_none_or(|wire| !Arc::ptr_eq(&last, wire)))
        };
        self.shared.locks.signal_outage(error.into_error_without_lock(&tried), is_over);
    }

    /// Dead-letters a message that cannot be read: no handler can process it, and it would be redelivered up to
    /// `MaxDeliveryCount`.
    pub(crate) async fn dead_letter_undecodable(&self, lock: Uuid, why: &str, session: Option<&SessionRef>) {
        warn!(entity = %self.path, %why, "a message cannot be read; it is dead-lettered");
        let text = DeadLetterText::new(UNDECODABLE, why);
        // The size of what cannot be read is not known: it may be the reason of any refusal.
        let message = DeadLettered { entity: &self.path, lock, session, properties_size: usize::MAX };
        let settled = dead_letter(&self.shared.connection, message, text).await;
        if let Err(error) = settled {
            warn!(entity = %self.path, %error, "a message that cannot be read was not dead-lettered; it is redelivered");
        }
    }
}
