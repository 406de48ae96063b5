//! Everything that depends on the broker.

use redrive::prelude::*;

#[cfg(not(feature = "rabbitmq"))]
pub async fn connect(queue: &str) -> Result<Memory, BoxError> {
    Ok(Memory::new(queue))
}

#[cfg(not(feature = "rabbitmq"))]
pub async fn publish(orders: &Memory, message: Message) -> Result<(), BoxError> {
    Ok(orders.publish(message)?)
}

#[cfg(feature = "rabbitmq")]
pub async fn connect(queue: &str) -> Result<RabbitMq, BoxError> {
    let url =
        std::env::args().nth(1).ok_or("which RabbitMQ? Give its URL: … -- amqp://guest:guest@localhost")?;
    Ok(RabbitMq::connect(&url, queue).await?)
}

#[cfg(feature = "rabbitmq")]
pub async fn publish(orders: &RabbitMq, message: Message) -> Result<(), BoxError> {
    Ok(orders.publish(message).await?)
}
