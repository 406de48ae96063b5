//! What is held across an await must be `Send`.
use std::rc::Rc;

use redrive::prelude::*;

async fn ship(order: String) {
    let order = Rc::new(order);
    std::future::ready(()).await;
    drop(order);
}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
