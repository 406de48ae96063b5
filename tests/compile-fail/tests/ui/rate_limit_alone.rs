//! `RateLimit` is not `Clone`.
use redrive::prelude::*;

async fn ship() {}

fn main() {
    let limit = tower::limit::RateLimitLayer::new(10, secs(1));
    let _ = Consumer::new(Memory::new("orders")).layer(limit).handler(ship);
}
