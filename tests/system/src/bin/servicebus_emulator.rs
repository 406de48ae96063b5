//! An emulator of Service Bus that a test can kill: `servicebus_emulator LISTEN STATE-FILE`.
//!
//! Prints its address, then obeys its standard input, line by line, with one line of output for each: `drop` ends all connections
//! and prints how many, `expire N` ends at most this many locks and prints how many, `look` prints how many messages are where. Ends
//! with its input.

use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use redrive_servicebus_emulator::Emulator;
use redrive_system_tests::servicebus::{QUEUE, Setup, look};

/// Messages that were under way when their connection was dropped are redelivered after this time.
const LOCK: Duration = Duration::from_secs(5);

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, state_file] = &arguments[..] else { anyhow::bail!("servicebus_emulator LISTEN STATE-FILE") };
    let mut settings = Setup::settings();
    settings.lock_duration = LOCK;
    let emulator =
        Setup::builder(&settings).listen(listen).state_file(Path::new(state_file)).seed(fastrand::u64(..));
    let emulator = emulator.start().await?;
    say(&format!("{} {}", emulator.address(), emulator.connection_string()))?;
    // This task has nothing else to do.
    for line in std::io::stdin().lock().lines() {
        say(&obey(&emulator, &line?)?)?;
    }
    Ok(())
}

fn obey(emulator: &Emulator, line: &str) -> anyhow::Result<String> {
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("drop"), None) => {
            let connections = emulator.connections();
            emulator.drop_connections();
            Ok(connections.to_string())
        }
        (Some("expire"), Some(most)) => Ok(expire(emulator, most.parse()?)?.to_string()),
        (Some("look"), None) => {
            let left = look(emulator, Setup::OF_QUEUES[0]);
            Ok(format!("{} {} {} {}", left.work, left.waiting, left.shelf, left.parked))
        }
        _ => anyhow::bail!("no test writes {line:?}"),
    }
}

/// Of those that are locked, any.
fn expire(emulator: &Emulator, most: usize) -> anyhow::Result<usize> {
    let queue = emulator.entity(QUEUE).context("the queue")?;
    let locked = queue.messages().into_iter().filter(|message| message.lock_token.is_some());
    let mut locked: Vec<_> = locked.map(|message| message.sequence_number).collect();
    fastrand::shuffle(&mut locked);
    locked.truncate(most);
    Ok(locked.into_iter().filter(|number| queue.expire_lock(*number).is_ok()).count())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
