//! Clients that hardly read.

use redrive_amqp091::{Table, basic};
use tokio::io::AsyncReadExt as _;

use crate::client::{Client, short};
use crate::program::Program;

/// How much the program may grow because of one client that does not read.
const GROWTH: u64 = 40 << 20;

#[tokio::test]
async fn a_client_that_reads_a_byte_now_and_then_holds_up_nobody() {
    let program = Program::start(&[]).await;
    let mut other = program.client().await;
    other.confirms().await;
    other.declare("work", &Table::new()).await;
    other.declare("other", &Table::new()).await;
    let body = vec![b'x'; 256 << 10];
    for _ in 0..400 {
        other.publish("work", &body).await.expect("confirmed");
    }
    let before = program.memory();
    let mut slow = program.client().await;
    slow.add(basic::Consume { queue: short("work"), ..Default::default() });
    slow.flush().await;
    other.consume("other", 10).await;
    let mut byte = [0];
    for _ in 0..100 {
        slow.stream.read_exact(&mut byte).await.expect("a byte");
        other.publish("other", b"x").await.expect("confirmed");
    }
    let grown = program.memory().saturating_sub(before);
    println!("a slow reader: {} KB of output", grown >> 10);
    assert!(grown < GROWTH, "{grown} bytes of output wait for a client that does not read");
    let queues = program.http("GET /api/queues/%2f/work").await;
    assert!(!queues.contains("\"messages_ready\":0,"), "what is not read stays in the queue: {queues}");
}

/// Each answer is a megabyte: all at once they would be 200.
#[tokio::test]
async fn what_a_client_asks_for_waits_until_it_reads() {
    const ANSWERS: u64 = 200;
    let program = Program::start(&[]).await;
    let mut other = program.client().await;
    other.confirms().await;
    other.declare("work", &Table::new()).await;
    other.publish("work", &vec![b'x'; 1 << 20]).await.expect("confirmed");
    let before = program.memory();
    let mut slow = program.client().await;
    for delivery_tag in 1..=ANSWERS {
        slow.add(basic::Get { queue: short("work"), ..Default::default() });
        slow.add(basic::Reject { delivery_tag, requeue: true });
    }
    slow.flush().await;
    slow.stream.readable().await.expect("the first answer");
    for _ in 0..100 {
        round_trip(&mut other).await;
    }
    let grown = program.memory().saturating_sub(before);
    println!("answers that are not read: {} KB", grown >> 10);
    assert!(grown < GROWTH, "{grown} bytes of output wait for a client that does not read");
    for expected in 1..=ANSWERS {
        let (tag, body) = slow.message().await;
        assert_eq!((tag, body.len()), (expected, 1 << 20));
    }
    round_trip(&mut slow).await;
}

async fn round_trip(client: &mut Client) {
    client.call(basic::Qos::default(), "basic.QosOk").await;
}
