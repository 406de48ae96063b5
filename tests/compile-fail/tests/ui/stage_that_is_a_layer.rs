use redrive::prelude::*;

struct TimeoutLayer;

fn main() {
    let _ = Consumer::new(Memory::new("orders")).stage(TimeoutLayer);
}
