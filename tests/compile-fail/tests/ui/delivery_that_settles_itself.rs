//! A handler gets the delivery, and never the right to settle it.
use redrive::prelude::*;

async fn ship(delivery: Delivery) {
    delivery.ack().await;
}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
