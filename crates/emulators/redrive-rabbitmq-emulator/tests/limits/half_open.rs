//! Peers that vanish without a word: their sockets stay open.

use redrive_amqp091::{HEARTBEAT, Table, basic};
use tokio::io::AsyncWriteExt as _;

use crate::client::short;
use crate::program::Program;

/// The program closes a connection that was silent for twice as long: more than a busy machine stands still.
const HEARTBEAT_SECONDS: u16 = 4;

#[tokio::test]
async fn a_peer_that_vanishes_gives_back_what_it_had() {
    let program = Program::start(&[]).await;
    let mut other = program.client().await;
    other.confirms().await;
    let mut vanished = Vec::new();
    for queue in ["one", "two"] {
        other.declare(queue, &Table::new()).await;
        other.publish(queue, &vec![b'x'; 1 << 20]).await.expect("confirmed");
        let mut peer = program.client_with(HEARTBEAT_SECONDS).await;
        peer.consume(queue, 1).await;
        peer.message().await;
        vanished.push(peer);
    }
    // One of them has asked for much that it did not read any more.
    let peer = &mut vanished[1];
    for delivery_tag in 1..=100 {
        peer.add(basic::Reject { delivery_tag, requeue: true });
        peer.add(basic::Get { queue: short("two"), ..Default::default() });
    }
    peer.add(basic::Get { queue: short("two"), ..Default::default() });
    peer.flush().await;
    // A third one is there, and only has nothing to say.
    let mut quiet = program.client_with(HEARTBEAT_SECONDS).await;
    for queue in ["one", "two"] {
        other.consume(queue, 0).await;
    }
    tokio::select! {
        () = async {
            other.message().await;
            other.message().await;
        } => {}
        () = async {
            let mut beats = tokio::time::interval(std::time::Duration::from_millis(300));
            loop {
                beats.tick().await;
                quiet.stream.write_all(&HEARTBEAT).await.expect("sent");
            }
        } => {}
    }
    quiet.call(basic::Qos::default(), "basic.QosOk").await;
    program.wait_for("GET /api/overview", "\"connections\":2,").await;
}
