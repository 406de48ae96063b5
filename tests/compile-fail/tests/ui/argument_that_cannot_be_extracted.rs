use redrive::prelude::*;

struct Database;

async fn ship(_database: Database) {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler(ship);
}
