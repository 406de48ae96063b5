//! Many queues: `REDRIVE_TEST_QUEUES`, 5000 by default. Nothing may become slower with their number.

use std::time::Instant;

use redrive_amqp091::{Basic, Method, Table, basic, queue};

use crate::client::{Client, Said, declaration, short};
use crate::number;
use crate::program::Program;

/// Work is done in as many parts, to compare the last one with the first.
const PARTS: usize = 10;
/// The last part may take this many times the processor time of the first, and this many milliseconds more.
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
    let names = Names::new(number("REDRIVE_TEST_QUEUES", 5000));

    names
        .each(&program, &format!("{how}: declare"), &mut client, async |client, part| {
            for name in part {
                client.add(declaration(name, &Table::new()));
            }
            client.flush().await;
            for _ in part {
                client.said("queue.DeclareOk").await;
            }
        })
        .await;
    let declared = program.memory().saturating_sub(before);

    names
        .each(&program, &format!("{how}: publish"), &mut client, async |client, part| {
            for name in part {
                client.add_publish(name, b"a message");
            }
            client.flush().await;
            let last = part.last().and_then(|name| name.strip_prefix("queue-")?.parse::<u64>().ok());
            while client_confirmed(client).await <= last.expect("a number") {}
        })
        .await;
    let published = program.memory().saturating_sub(before);

    names
        .each(&program, &format!("{how}: consume, ack"), &mut client, async |client, part| {
            for name in part {
                client.add(basic::Consume {
                    queue: short(name),
                    consumer_tag: short(name),
                    ..Default::default()
                });
            }
            client.flush().await;
            for _ in part {
                let (delivery_tag, _) = client.message().await;
                client.add(basic::Ack { delivery_tag, multiple: false });
            }
            client.call(basic::Qos::default(), "basic.QosOk").await;
        })
        .await;
    names
        .each(&program, &format!("{how}: delete"), &mut client, async |client, part| {
            for name in part {
                client.add(queue::Delete { queue: short(name), ..Default::default() });
            }
            client.flush().await;
            for _ in part {
                client.said("queue.DeleteOk").await;
            }
        })
        .await;
    let count = names.0.len() as u64;
    println!("{how}: {} bytes a queue, {} with a message", declared / count, published / count);
    let overview = program.http("GET /api/overview").await;
    assert!(overview.contains("\"queues\":0}"), "{overview}");
}

/// Returns how many publishes are confirmed with the next confirm.
async fn client_confirmed(client: &mut Client) -> u64 {
    loop {
        if let Said::Method(Method::Basic(Basic::Ack(ack))) = client.next().await {
            return ack.delivery_tag;
        }
    }
}

struct Names(Vec<String>);

impl Names {
    fn new(count: usize) -> Self {
        Self((0..count).map(|nth| format!("queue-{nth}")).collect())
    }

    /// Does something with all queues, and compares the server's processor time at the end with that at the beginning.
    async fn each(
        &self,
        program: &Program,
        what: &str,
        client: &mut Client,
        act: impl AsyncFn(&mut Client, &[String]),
    ) {
        let began = Instant::now();
        let mut times = Vec::new();
        for part in self.0.chunks(self.0.len().div_ceil(PARTS)) {
            let before = program.cpu_millis();
            act(client, part).await;
            times.push(program.cpu_millis() - before);
        }
        let took = began.elapsed().as_secs_f64();
        println!("{what}: {} in {took:.2} s; CPU by tenths {times:?} ms", self.0.len());
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(last <= SLOWER * first + DISTURBED, "{what}: {times:?} ms");
    }
}
