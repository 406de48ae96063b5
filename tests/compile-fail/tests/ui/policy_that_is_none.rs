use redrive::prelude::*;

async fn ship() {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).with_dead_letter_backoff(5).handler(ship);
}
