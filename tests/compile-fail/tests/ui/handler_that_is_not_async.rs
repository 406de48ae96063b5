use redrive::prelude::*;

fn ship(_order: String) {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
