//! Everything that depends on the broker.

use redrive::prelude::*;

#[cfg(not(any(feature = "rabbitmq", feature = "servicebus")))]
pub async fn connect(queue: &str) -> Result<Memory, BoxError> {
    Ok(Memory::new(queue))
}

/// On the RabbitMQ whose URL is given; without one, on an emulator that ends with the example.
#[cfg(all(feature = "rabbitmq", not(feature = "servicebus")))]
pub async fn connect(queue: &str) -> Result<RabbitMq, BoxError> {
    let url = match std::env::args().nth(1) {
        Some(given) => given,
        None => {
            let emulator = redrive_rabbitmq_emulator::Emulator::builder().start().await?;
            let url = emulator.url();
            // It runs for as long as the example does.
            std::mem::forget(emulator);
            url
        }
    };
    Ok(RabbitMq::connect(&url, queue).await?)
}

/// On the namespace whose connection string is given; without one, on an emulator that ends with the example.
#[cfg(feature = "servicebus")]
pub async fn connect(queue: &str) -> Result<ServiceBus, BoxError> {
    use redrive_servicebus_emulator::{Emulator, Settings};

    // More than the layers' own limit of 10, which is to be reached first.
    const MAX_DELIVERY_COUNT: u32 = 20;
    let connection_string = match std::env::args().nth(1) {
        Some(given) => given,
        None => {
            let mut settings = Settings::default();
            settings.max_delivery_count = MAX_DELIVERY_COUNT;
            let emulator = Emulator::builder().queue(queue, settings).start().await?;
            let connection_string = emulator.connection_string();
            // It runs for as long as the example does.
            std::mem::forget(emulator);
            connection_string
        }
    };
    let options = ServiceBus::options(queue).max_delivery_count(MAX_DELIVERY_COUNT);
    Ok(options.connect(&connection_string).await?)
}
