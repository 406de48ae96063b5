use redrive::prelude::*;

async fn ship() -> u32 {
    7
}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
