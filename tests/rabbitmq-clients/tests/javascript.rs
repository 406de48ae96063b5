//! amqplib and rascal.

use redrive_brokers::Version;
use redrive_rabbitmq_clients::scene::On;
use redrive_rabbitmq_clients::{install, suite};
use std::sync::Mutex;

/// The minimum number of scenarios: a suite that finds none of its files would hold, too.
const AT_LEAST: usize = 20;

/// One test installs the clients, the others wait for it.
static INSTALLING: Mutex<()> = Mutex::new(());

async fn hold(on: On) {
    let language = {
        let _alone = INSTALLING.lock();
        install::javascript()
    };
    suite::must_hold(language, on, AT_LEAST).await;
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
