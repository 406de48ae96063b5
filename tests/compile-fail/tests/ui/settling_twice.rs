//! A receipt is moved into its settlement.
use redrive::transport::{Receiver, Settlement};

async fn settle_twice<R: Receiver>(receiver: R, receipt: R::Receipt) {
    let _ = receiver.settle(receipt, Settlement::Complete).await;
    let _ = receiver.settle(receipt, Settlement::Complete).await;
}

fn main() {}
