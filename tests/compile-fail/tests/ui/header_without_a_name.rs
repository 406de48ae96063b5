//! A text does not say in which header it is.
use redrive::Header;

#[redrive::debug_handler]
async fn ship(Header(tenant): Header<String>) {
    drop(tenant);
}

fn main() {}
