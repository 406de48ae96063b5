//! Deliveries that arrived and that the consumer has not yet received.

use redrive_core::transport::Received;
use redrive_transport::Arrival;

use crate::receipt::Receipt;

pub(crate) type Inbox = redrive_transport::Inbox<Unreceived>;
pub(crate) type Source = redrive_transport::Source<Unreceived>;

/// A delivery in the inbox. Its lock may expire there.
#[derive(Debug)]
pub(crate) struct Unreceived(pub(crate) Received<Receipt>);

impl Arrival for Unreceived {
    fn is_lost(&self) -> bool {
        self.0.receipt.is_lost()
    }
}
