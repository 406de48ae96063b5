//! Many queues: `REDRIVE_TEST_QUEUES`, 5000 by default. Nothing may become slower with their number.

use std::time::Instant;

use redrive_amqp091::{Basic, Method, Table, basic, queue};

use crate::client::{Client, Said, declaration, short};
use crate::number;
use crate::program::Program;

/// Queues are made in as many parts, to compare the one with the most queues with the one with the fewest.
const PARTS: usize = 10;
/// It may take this many times the processor time, and this many milliseconds more.
const SLOWER: u64 = 3;
const DISTURBED: u64 = 60;

#[tokio::test]
async fn nothing_becomes_slower_with_the_number_of_queues() {
    use_queues("in memory", &[]).await;
}

#[tokio::test]
async fn nor_does_it_with_a_state_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state").display().to_string();
    use_queues("with a state file", &["--state", &state]).await;
}

async fn use_queues(how: &str, arguments: &[&str]) {
    let program = Program::start(arguments).await;
    let mut client = program.client().await;
    client.confirms().await;
    let before = program.memory();
    let count = number("REDRIVE_TEST_QUEUES", 5000);
    let names: Vec<String> = (0..count).map(|nth| format!("queue-{nth}")).collect();
    let parts = names.chunks(count.div_ceil(PARTS));
    let began = Instant::now();
    let mut times = [const { Vec::new() }; 4];
    for part in parts.clone() {
        let mut cpu = vec![program.cpu_millis()];
        declare(&mut client, part).await;
        cpu.push(program.cpu_millis());
        publish(&mut client, part).await;
        cpu.push(program.cpu_millis());
        consume(&mut client, part).await;
        cpu.push(program.cpu_millis());
        for (times, span) in times.iter_mut().zip(cpu.windows(2)) {
            times.push(span[1] - span[0]);
        }
    }
    let (used, memory) = (began.elapsed(), program.memory().saturating_sub(before));
    for part in parts {
        let before = program.cpu_millis();
        delete(&mut client, part).await;
        times[3].push(program.cpu_millis() - before);
    }
    // With the fewest queues first, as the others.
    times[3].reverse();
    println!(
        "{count} queues {how}: used in {used:.1?}, deleted in {:.1?}; {} bytes each; CPU of tenths in ms, fewest queues first:",
        began.elapsed() - used,
        memory / count as u64
    );
    for (what, times) in ["declare", "publish", "consume, ack", "delete"].iter().zip(times) {
        println!("{what}: {times:?}");
        let (few, many) = (times[0], times[times.len() - 1]);
        assert!(many <= SLOWER * few + DISTURBED, "{what}: {times:?} ms");
    }
    let overview = program.http("GET /api/overview").await;
    assert!(overview.contains("\"queues\":0}"), "{overview}");
}

async fn declare(client: &mut Client, names: &[String]) {
    for name in names {
        client.add(declaration(name, &Table::new()));
    }
    client.flush().await;
    for _ in names {
        client.said("queue.DeclareOk").await;
    }
}

async fn publish(client: &mut Client, names: &[String]) {
    for name in names {
        client.add_publish(name, b"a message");
    }
    client.flush().await;
    let last = names.last().and_then(|name| name.strip_prefix("queue-")?.parse::<u64>().ok());
    while client_confirmed(client).await <= last.expect("a number") {}
}

async fn consume(client: &mut Client, names: &[String]) {
    for name in names {
        let name = short(name);
        client.add(basic::Consume { queue: name.clone(), consumer_tag: name, ..Default::default() });
    }
    client.flush().await;
    for _ in names {
        let (delivery_tag, _) = client.message().await;
        client.add(basic::Ack { delivery_tag, multiple: false });
    }
    client.call(basic::Qos::default(), "basic.QosOk").await;
}

async fn delete(client: &mut Client, names: &[String]) {
    for name in names {
        client.add(queue::Delete { queue: short(name), ..Default::default() });
    }
    client.flush().await;
    for _ in names {
        client.said("queue.DeleteOk").await;
    }
}

/// Returns how many publishes are confirmed with the next confirm.
async fn client_confirmed(client: &mut Client) -> u64 {
    loop {
        if let Said::Method(Method::Basic(Basic::Ack(ack))) = client.next().await {
            return ack.delivery_tag;
        }
    }
}
