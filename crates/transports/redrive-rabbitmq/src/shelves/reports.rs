//! Reports of consumers about redriven messages, in a queue that ends with the connection.

use std::sync::Arc;

use async_trait::async_trait;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use redrive_core::TransportError;
use redrive_core::shelves::{EntryHandle, REPORT_QUEUE_PREFIX, ReportRequest, Reports};
use redrive_core::transport::Origin;

use crate::connection::{Channel, Connection, with_timeout};
use crate::convert::short;
use crate::error;
use crate::frames::DeliveryQueue;

/// Maximum number of reports that one call takes: more may come as fast as they are read.
const MOST: usize = 10_000;

/// An exclusive queue: the broker deletes it with its connection.
pub(super) struct RabbitMqReports {
    queue: String,
    channel: Channel,
    deliveries: DeliveryQueue,
    _connection: Arc<Connection>,
}

impl RabbitMqReports {
    /// Declares a queue with a name that nobody can guess.
    pub(super) async fn declare(connection: Arc<Connection>) -> Result<Self, TransportError> {
        let queue = format!("{REPORT_QUEUE_PREFIX}{:032x}", fastrand::u128(..));
        let channel = connection.channel().await?;
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let name = short(&queue, "the name of a queue")?;
        let declaring = channel.queue_declare(name, options, FieldTable::default());
        with_timeout(&channel, declaring).await.map_err(|error| error::declaring(&queue, error))?;
        let deliveries = DeliveryQueue::new(connection.own(&channel), Origin::new(&*queue, "", ""));
        Ok(Self { queue, channel, deliveries, _connection: connection })
    }

    pub(super) fn queue(&self) -> &str {
        &self.queue
    }
}

#[async_trait]
impl Reports for RabbitMqReports {
    async fn take(&mut self) -> Result<Vec<EntryHandle>, TransportError> {
        let mut handled = Vec::new();
        for _ in 0..MOST {
            let found = with_timeout(&self.channel, self.deliveries.get(&self.queue, true)).await;
            let found = found.map_err(|error| error::verifying(&self.queue, error))?;
            let Some((report, _)) = found else { break };
            handled.extend(ReportRequest::reported(&report.body));
        }
        Ok(handled)
    }
}
