#![deny(unused_must_use)]
use redrive::prelude::*;

async fn ship() {}

fn main() {
    Consumer::new(Memory::new("orders")).handler(ship);
}
