//! A handler of batches becomes a handler with `in_batches`.
#![allow(unused)]
use redrive::prelude::*;

async fn store(orders: Batch<String>) {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(store);
}
