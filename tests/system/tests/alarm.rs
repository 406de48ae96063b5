//! A broker without memory takes no copies: the intake rests, nothing is lost, and work resumes when there is room.

use std::time::Duration;

use redrive::secs;
use redrive_brokers::{own_node, report};
use redrive_system_tests::service::{Service, good, publish};
use redrive_system_tests::{Combination, on_both_versions};

on_both_versions!(180; a_memory_alarm_lets_the_intake_rest);

const QUEUE: &str = "alarm";
const MESSAGES: usize = 3000;
/// How long the alarm lasts after the intake came to rest.
const ALARM: Duration = Duration::from_secs(4);

async fn a_memory_alarm_lets_the_intake_rest(on: Combination) {
    let node = tokio::task::spawn_blocking(move || own_node(on.version)).await.unwrap();
    let memory = |most: &'static str| {
        node.aside(move |node| node.ctl(&["set_vm_memory_high_watermark", "absolute", most]).unwrap())
    };
    let operator = on.options(QUEUE).connect(&node.url()).await.unwrap();
    let ids = publish(&operator, 0, MESSAGES).await;
    let mut service = Service::run(on.options(QUEUE).connect(&node.url()).await.unwrap());
    service.handled(100).await;

    memory("1").await;
    service.rests(true).await;
    // What is in hand is handled to its end.
    tokio::time::sleep(secs(1)).await;
    let before = service.handled_now();
    assert!(before < good(&ids), "all was handled before the alarm: publish more");
    tokio::time::sleep(ALARM).await;
    assert_eq!(service.handled_now(), before, "the intake rests");

    memory("1GB").await;
    let over = std::time::Instant::now();
    let resumed = service.rests(false).await - over;
    let (again, said) = service.to_the_end(&ids, &operator).await;
    report(&format!(
        "memory alarm on {on}: {MESSAGES} messages, rested at {before} handled, took messages again {resumed:.1?} after \
         the alarm, 0 lost, {again} ended more than once, {} settled on sight",
        said.settled_on_sight
    ));
}
