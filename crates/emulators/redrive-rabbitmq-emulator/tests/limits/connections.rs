//! Many connections at once: `REDRIVE_TEST_CONNECTIONS`, 300 by default.

use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt as _, stream};
use redrive_amqp091::{Table, basic, queue};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::client::{TEST_TIMEOUT, short};
use crate::number;
use crate::program::Program;

#[tokio::test]
async fn many_connections_are_served_and_forgotten() {
    let count = number("REDRIVE_TEST_CONNECTIONS", 300);
    let program = Program::start(&[]).await;
    let program = &program;
    let before = program.memory();
    let began = Instant::now();
    let connecting = (0..count).map(|nth| async move {
        let mut client = program.client_with(60).await;
        let name = short(&format!("own-{nth}"));
        let own = queue::Declare { queue: name.clone(), exclusive: true, ..Default::default() };
        client.call(own, "queue.DeclareOk").await;
        client.call(basic::Consume { queue: name, ..Default::default() }, "basic.ConsumeOk").await;
        client
    });
    let mut clients: Vec<_> = stream::iter(connecting).buffer_unordered(100).collect().await;
    let (connected, memory) = (began.elapsed(), program.memory().saturating_sub(before));
    let mut publisher = program.client().await;
    publisher.confirms().await;
    for nth in 0..count {
        publisher.publish(&format!("own-{nth}"), b"x").await.expect("confirmed");
    }
    let taking = clients.iter_mut().map(|client| async {
        let (delivery_tag, _) = client.message().await;
        client.add(basic::Ack { delivery_tag, multiple: false });
        client.call(basic::Qos::default(), "basic.QosOk").await;
    });
    stream::iter(taking).buffer_unordered(100).collect::<Vec<()>>().await;
    let served = began.elapsed() - connected;
    let all = format!("\"connections\":{},", count + 1);
    program.wait_for("GET /api/overview", &all).await;
    let began = Instant::now();
    drop(clients);
    program.wait_for("GET /api/overview", "\"connections\":1,").await;
    println!(
        "{count} connections: opened in {connected:.1?}, served in {served:.1?}, forgotten in {:.1?}; {} KB each",
        began.elapsed(),
        memory / count as u64 / 1024,
    );
    let overview = program.http("GET /api/overview").await;
    assert!(overview.contains("\"queues\":0}"), "{overview}");
    assert!(memory / (count as u64) < 32 << 10, "a connection takes {} bytes", memory / count as u64);
    publisher.declare("after", &Table::new()).await;
    publisher.publish("after", b"x").await.expect("confirmed");
}

#[tokio::test]
async fn with_too_many_open_files_new_connections_wait_and_old_ones_go_on() {
    const FILES: usize = 40;
    let program = Arc::new(Program::start_limited(&format!("ulimit -n {FILES}"), &[]).await);
    let mut old = program.client().await;
    old.declare("work", &Table::new()).await;
    old.confirms().await;
    let leave = Arc::new(Semaphore::new(0));
    let clients: Vec<_> = (0..2 * FILES)
        .map(|_| {
            let (program, leave) = (Arc::clone(&program), Arc::clone(&leave));
            tokio::spawn(async move {
                let mut client = program.client().await;
                client.confirms().await;
                client.publish("work", b"x").await.expect("confirmed");
                let _ = leave.acquire().await.expect("it stays open");
            })
        })
        .collect();
    let all = async {
        while program.open_files() < FILES {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, all).await.expect("all files are open");
    for _ in 0..20 {
        old.publish("work", b"x").await.expect("confirmed");
    }
    leave.add_permits(1);
    for client in clients {
        client.await.expect("it was served");
    }
    program.wait_for("GET /api/overview", "\"connections\":1,").await;
}
