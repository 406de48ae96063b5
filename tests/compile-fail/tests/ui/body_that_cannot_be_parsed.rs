//! `Order` does not implement `Deserialize`.
use redrive::prelude::*;

struct Order;

async fn ship(Json(_order): Json<Order>) {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
