//! The shared parts of one transport.

use std::sync::Arc;

use redrive_core::TransportError;

use crate::connections::{ConnectionAccess, Connections, Ownership};
use crate::copy_store::CopyStore;
use crate::delivery_channel::DeliveryChannels;
use crate::facts::TransportFacts;
use crate::options::Options;
use crate::prepare::QueuePreparation;
use crate::topology::Plan;

/// The parts of one transport. Each depends only on those above it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) connections: Arc<ConnectionAccess>,
    pub(crate) facts: Arc<TransportFacts>,
    pub(crate) queues: Arc<QueuePreparation>,
    pub(crate) deliveries: Arc<DeliveryChannels>,
    pub(crate) copies: CopyStore,
}

impl Shared {
    pub(crate) fn new(
        options: Options,
        connections: Connections,
        ownership: Ownership,
    ) -> Result<Self, TransportError> {
        let (plan, options) = (Arc::new(options.plan()?), Arc::new(options));
        let connections = Arc::new(ConnectionAccess::new(connections, ownership));
        let facts = Arc::new(TransportFacts::new(Arc::clone(&options), Arc::clone(&plan)));
        let queues = Arc::new(QueuePreparation::new(
            Arc::clone(&options),
            Arc::clone(&plan),
            Arc::clone(&connections),
            Arc::clone(&facts),
        ));
        let deliveries = Arc::<DeliveryChannels>::default();
        let copies = CopyStore::new(
            Arc::clone(&plan),
            Arc::clone(&facts),
            Arc::clone(&queues),
            Arc::clone(&connections),
            Arc::clone(&deliveries),
        );
        Ok(Self { options, plan, connections, facts, queues, deliveries, copies })
    }

    /// Returns the name of the work queue.
    pub(crate) fn queue(&self) -> &str {
        &self.plan.names.work
    }
}
