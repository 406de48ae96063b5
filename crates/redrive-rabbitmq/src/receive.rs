//! Receiving and settling.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use redrive_core::{
    Delivery, Message, Received, Receiver, SettleError, Settlement, TransportError, TransportErrorKind,
};
use tokio::sync::watch;
use tracing::debug;

use crate::broker::Broker;
use crate::consume::Wanted;
use crate::delay::Way;
use crate::error;
use crate::hand_outs;
use crate::inbox::Arrived;
use crate::publish::AlarmTime;
use crate::session::Receipt;

/// Receives from one RabbitMQ queue; what [`open`](redrive_core::Transport::open) gives.
#[derive(Debug)]
pub struct RabbitMqReceiver {
    broker: Arc<Broker>,
    wanted: Arc<watch::Sender<Wanted>>,
}

impl RabbitMqReceiver {
    pub(crate) fn new(broker: Arc<Broker>, wanted: Arc<watch::Sender<Wanted>>) -> Self {
        Self { broker, wanted }
    }

    fn delivery(&self, arrived: Arrived) -> Received<Receipt> {
        let Arrived { message, left_out, origin, redelivered, tag, session } = arrived;
        if hand_outs::are_not_counted(message.headers(), redelivered) {
            self.broker.warn_of_missing_counts();
        }
        let times = hand_outs::count(
            message.headers(),
            redelivered,
            self.broker.options.queue_type,
            session.version(),
        );
        // Where failures are counted by the broker, each hand-out before this one was one.
        let failures = if self.broker.plan.native.is_some() { times - 1 } else { 0 };
        let delivery = Delivery::from_origin(message, &origin, SystemTime::now())
            .handed_out_times(times)
            .failed_in_place(failures)
            .marked_redelivered(redelivered)
            .after_interruptions(session.interruptions());
        let receipt = Receipt::new(tag, session).came_by(origin);
        match left_out {
            None => Received { delivery, receipt },
            Some(left_out) => {
                Received { delivery: delivery.read_without(left_out), receipt: receipt.for_a_part() }
            }
        }
    }

    async fn settle_by_copy(
        &self,
        receipt: Receipt,
        way: Result<Way, TransportError>,
        copy: Message,
    ) -> Result<(), SettleError<Receipt>> {
        let stored = match way {
            Ok(way) => self.broker.store(&way, copy, AlarmTime::DoesNotCount).await,
            Err(error) => Err(error),
        };
        match stored {
            // The copy is stored: when the original comes again it must not be copied a second time.
            Ok(()) => receipt.ack().await.map_err(SettleError::lost_after_copy),
            Err(error) => {
                debug!(queue = %self.broker.queue(), %error, "a copy was not stored; the delivery stays in hand");
                Err(SettleError::held(error, receipt))
            }
        }
    }

    fn is_closed(&self) -> bool {
        *self.wanted.borrow() == Wanted::Close
    }
}

impl Receiver for RabbitMqReceiver {
    type Receipt = Receipt;

    async fn receive(
        &self,
        batch: &mut VecDeque<Received<Receipt>>,
        most: usize,
    ) -> Result<usize, TransportError> {
        let inbox = &self.broker.inbox;
        let mut next = inbox.next().await?;
        let mut count = 0;
        while let Some(arrived) = next {
            batch.push_back(self.delivery(arrived));
            count += 1;
            next = if count < most { inbox.another() } else { None };
        }
        Ok(count)
    }

    async fn settle(&self, receipt: Receipt, settlement: Settlement) -> Result<(), SettleError<Receipt>> {
        if settlement == Settlement::Complete {
            return receipt.ack().await.map_err(SettleError::lost);
        }
        // Nothing is copied for a delivery that comes again anyway.
        receipt.check().map_err(SettleError::lost)?;
        if settlement.stores_copy() && !receipt.is_whole() {
            return Err(SettleError::held(error::read_in_part(), receipt));
        }
        let (way, copy) = match settlement {
            Settlement::Complete => return receipt.ack().await.map_err(SettleError::lost),
            Settlement::Release => return receipt.nack(true).await.map_err(SettleError::lost),
            Settlement::Reject if self.broker.options.broker_dead_letters() => {
                return receipt.nack(false).await.map_err(SettleError::lost);
            }
            Settlement::Reject => {
                let message = "the work queue is not known to have a dead-letter exchange: rejected, the message would \
                               be gone; say `native_dead_letter(true)` if it has one";
                let error = TransportError::new(TransportErrorKind::Unsupported, message);
                return Err(SettleError::held(error, receipt));
            }
            // On an older broker it would come again at once, and again.
            Settlement::HoldBack { .. } => match self.broker.options.delay.refused_by(receipt.version()) {
                None => return receipt.reject_to_retry().await.map_err(SettleError::lost),
                Some(refused) => {
                    let error = TransportError::new(TransportErrorKind::Unsupported, refused);
                    return Err(SettleError::held(error, receipt));
                }
            },
            Settlement::Reschedule { wait, mut copy } => {
                (self.broker.way(wait, &mut copy, receipt.origin()), copy)
            }
            Settlement::Move { shelf, copy } => (self.broker.plan.names.shelf(shelf).map(Way::queue), copy),
        };
        // In a box: most deliveries are completed, and need not carry the room for this along.
        Box::pin(self.settle_by_copy(receipt, way, copy)).await
    }

    async fn set_limit(&self, limit: u32) -> Result<(), TransportError> {
        match limit {
            0 if self.is_closed() => return Ok(()),
            0 => {
                want(&self.wanted, Wanted::Pause);
                self.broker.inbox.until_drained().await;
                return Ok(());
            }
            _ if self.is_closed() => return Err(error::closed()),
            _ => {}
        }
        let deliveries = Wanted::Deliveries(self.broker.set_limit(limit));
        want(&self.wanted, deliveries);
        if self.broker.inbox.reopen() {
            // The intake had given up, and waits for this word.
            self.wanted.send_if_modified(|wanted| *wanted == deliveries);
        }
        Ok(())
    }
}

/// What is wanted already is not said again: a subscription that is being made would begin again, and what it was handed out
/// already would come again, counted. Nothing is wanted after the end.
pub(crate) fn want(to: &watch::Sender<Wanted>, wanted: Wanted) {
    to.send_if_modified(|before| *before != Wanted::Close && std::mem::replace(before, wanted) != wanted);
}
