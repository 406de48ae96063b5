use redrive::prelude::*;

async fn connect() -> Memory {
    Memory::new("orders")
}

fn main() {
    let _ = Consumer::new(connect());
}
