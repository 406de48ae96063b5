//! Clients of RabbitMQ, on RabbitMQ and on its emulator.

mod amqprs;
mod lapin;
mod rabbitmqadmin;

use redrive_clients::rabbitmq::{On, Version};
use redrive_clients::{install, suite};

/// For each language a test on each broker. `at least` so many scenarios must run: a suite that finds none of its files would
/// hold, too.
macro_rules! languages {
    ($($name:ident: $install:path, at least $at_least:literal;)*) => {$(
        mod $name {
            use super::*;

            async fn hold(on: On) {
                match $install() {
                    Ok(client) => suite::must_hold(on, &client, &[], $at_least).await,
                    Err(why) => suite::not_run(on, stringify!($name), &format!("{why:#}")),
                }
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn rabbitmq_v3_10() {
                hold(On::RabbitMq(Version::V3_10)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn rabbitmq_v4_3() {
                hold(On::RabbitMq(Version::V4_3)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn emulator_of_3_10() {
                hold(On::Emulator(Version::V3_10)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn emulator_of_4_3() {
                hold(On::Emulator(Version::V4_3)).await;
            }
        }
    )*};
}

languages! {
    python: install::pika, at least 30;
    javascript: install::amqplib, at least 20;
}
