//! Orders arrive; some succeed, some recover, some never will. Watch where each one ends.
//!
//!     cargo run --example quickstart
//!     cargo run --example quickstart --no-default-features --features rabbitmq -- amqp://guest:guest@localhost
//!     cargo run --example quickstart --no-default-features --features servicebus
//!     cargo run --example quickstart --no-default-features --features servicebus -- 'Endpoint=sb://…'

#![allow(unreachable_pub)] // Nobody outside of an example sees its modules.

mod broker;
mod screen;
mod service;

use redrive::prelude::*;
use screen::Screen;

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match run().await {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            std::process::ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    // A panicking handler is caught; here one line about it is enough.
    std::panic::set_hook(Box::new(|panic| println!("{:>16}  {panic}", "panic")));

    // The one line that differs between brokers is in there.
    let orders = broker::connect("quickstart-orders").await?;
    let shelves = orders.shelves();
    let screen = Screen::new();

    for message in service::some_orders() {
        orders.publisher().publish(message).await?;
    }

    let consumer = Consumer::new(orders)
        .with_dead_letter_backoff(
            DeadLetterBackoff::new([millis(500), secs(1), secs(2)]).park_after_redrives(1),
        )
        .observer(screen.observer())
        .handler_with(service::Warehouse, service::ship);

    let operator = operate(&screen, shelves);
    let (report, operated) =
        tokio::join!(consumer.run_until(screen.all_at_rest(service::HOW_MANY)), operator);
    report?;
    operated?;
    screen.print_table();
    Ok(())
}

/// What a person does who looks at the dead-letter shelf: finds the order that failed for a reason that may be gone by
/// now, and sends it back. It fails again, and is parked.
async fn operate(screen: &Screen, shelves: impl Shelves) -> Result<(), BoxError> {
    screen.dead_lettered(service::KEEPS_COMING_BACK).await;
    // The shelf shows a message a moment after it was put there, by the broker's count.
    let entry = loop {
        let page = shelves.browse(Shelf::DeadLetter, None, 100).await?;
        let mut entries = page.entries.into_iter();
        if let Some(entry) = entries.find(|entry| entry.message.id() == Some(service::KEEPS_COMING_BACK)) {
            break entry;
        }
        tokio::time::sleep(millis(50)).await;
    };
    shelves.redrive(Shelf::DeadLetter, &entry.handle.into()).await?.into_result()?;
    screen.say(service::KEEPS_COMING_BACK, "redriven by the operator: a first attempt again");
    Ok(())
}
