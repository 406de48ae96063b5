//! What becomes of a failing message of the README's service, on three brokers. None of them is needed:
//!
//! ```console
//! $ cargo run -p redrive --features rabbitmq,servicebus --example retry_plan [mermaid | json]
//! ```

use redrive::prelude::*;
use redrive::rabbitmq::{Delay, Native};
use redrive::{RetryPlan, Runner};

async fn ship(order: String, Attempt(attempt): Attempt) -> Result<(), BoxError> {
    println!("attempt {attempt}: {order}");
    Ok(())
}

/// The consumer of the service, on any broker.
fn consumer<T: Transport>(orders: T) -> Runner<T> {
    Consumer::new(orders)
        .concurrency(16)
        .with_dead_letter_backoff(Exponential::from(secs(1)).attempts(6))
        .handler(ship)
}

fn main() -> Result<(), BoxError> {
    let native = Delay::from(Native::between(secs(1), secs(60)));
    let plans = [
        consumer(RabbitMq::options("orders").unconnected()?).explain(),
        consumer(RabbitMq::options("orders").delay(native).unconnected()?).explain(),
        consumer(ServiceBus::options("orders").unconnected()?).explain(),
    ];
    let shown: fn(&RetryPlan) -> String = match std::env::args().nth(1).as_deref() {
        Some("mermaid") => RetryPlan::to_mermaid,
        Some("json") => RetryPlan::to_json,
        _ => ToString::to_string,
    };
    for plan in &plans {
        println!("{}", shown(plan));
    }
    Ok(())
}
