use redrive::prelude::*;

#[derive(Clone)]
struct Database;

async fn ship(State(_database): State<Database>) {}

fn main() {
    let _ = Consumer::new(Memory::new("orders")).handler_with("not a database", ship);
}
