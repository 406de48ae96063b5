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

    /// Resolves when the intake has stopped, or somebody else wants deliveries again: the later wish holds.
    async fn pause(&self) {
        want(&self.wanted, Wanted::Pause);
        let mut wanted = self.wanted.subscribe();
        tokio::select! {
            () = self.broker.inbox.until_drained() => {}
            _ = wanted.wait_for(|wanted| *wanted != Wanted::Pause) => {}
        }
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
        if limit == 0 {
            self.pause().await;
            return Ok(());
        }
        let deliveries = Wanted::Deliveries(self.broker.set_limit(limit));
        let mut reopened = Err(error::closed());
        // The wish and the phase change together: the intake closes the inbox while it reads a wish.
        self.wanted.send_if_modified(|wanted| {
            if *wanted == Wanted::Close {
                return false;
            }
            reopened = self.broker.inbox.reopen();
            let changed = std::mem::replace(wanted, deliveries) != deliveries;
            // An intake that had failed waits for a word, be it the same as before.
            changed || matches!(reopened, Ok(true))
        });
        reopened.map(drop)
    }
}

/// Sets what is wanted. A wish that holds already is not sent again: the intake would give up a subscription that it is just
/// making, and what that was handed comes again, counted. Nothing replaces [`Wanted::Close`].
pub(crate) fn want(to: &watch::Sender<Wanted>, wanted: Wanted) {
    to.send_if_modified(|before| *before != Wanted::Close && std::mem::replace(before, wanted) != wanted);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::FutureExt as _;

    use super::*;
    use crate::inbox::Phase;
    use crate::options::Options;

    fn receiver() -> RabbitMqReceiver {
        let broker = Broker::unconnected(Options::new("orders"));
        RabbitMqReceiver::new(Arc::new(broker), Arc::new(watch::Sender::new(Wanted::Pause)))
    }

    #[tokio::test]
    async fn who_stops_does_not_wait_where_somebody_else_goes_on() {
        let receiver = receiver();
        receiver.set_limit(5).await.unwrap();
        let stopping = receiver.set_limit(0);
        tokio::pin!(stopping);
        assert!(stopping.as_mut().now_or_never().is_none(), "the intake has not stopped");
        receiver.set_limit(5).await.unwrap();
        stopping.now_or_never().expect("the later wish holds").unwrap();
    }

    /// Else the intake could read the next wish between the two, and leave an inbox open that nothing fills.
    #[tokio::test]
    async fn whoever_reads_the_wish_for_deliveries_finds_the_inbox_open() {
        let (receiver, done) = (receiver(), AtomicBool::new(false));
        let (broker, wanted) = (&receiver.broker, &receiver.wanted);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let wanted = wanted.borrow();
                    assert!(*wanted == Wanted::Pause || !broker.inbox.is_drained());
                }
            });
            for _ in 0..50_000 {
                receiver.set_limit(5).now_or_never().unwrap().unwrap();
                want(wanted, Wanted::Pause);
                broker.inbox.enter(Phase::Drained);
            }
            done.store(true, Ordering::Relaxed);
            reading.join().unwrap();
        });
    }
}
