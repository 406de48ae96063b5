//! A receipt is moved into its settlement.
use redrive::{Settlement, Transport};

async fn settle_twice<T: Transport>(transport: T, receipt: T::Receipt) {
    let _ = transport.settle(receipt, Settlement::Complete).await;
    let _ = transport.settle(receipt, Settlement::Complete).await;
}

fn main() {}
