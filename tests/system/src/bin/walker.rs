//! The service that `tests/path.rs` watches: `walker URL QUEUE`. Says on standard output when it has started, and which message it has
//! handled. A message whose id begins with `fail` fails once.
//!
//! Ends in order when its standard input ends.

use std::io::Read as _;
use std::time::Duration;

use redrive::rabbitmq::RabbitMq;
use redrive::{BoxError, Consumer, Delivery, Event, millis};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, queue] = &arguments[..] else { anyhow::bail!("walker URL QUEUE") };
    // Whether an acknowledgement waits for others depends on how fast the machine is: here none does.
    let transport = RabbitMq::options(queue).ack_within(Duration::ZERO).connect(url).await?;
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _held = ended;
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
    });
    Consumer::new(transport)
        .observer(|event: &Event<'_>| {
            if let Event::Started { .. } = event {
                println!("started");
            }
        })
        .with_dead_letter_backoff([millis(1); 2])
        .handler(handle)
        .run_until(async { drop(end.await) })
        .await?;
    Ok(())
}

async fn handle(delivery: Delivery) -> Result<(), BoxError> {
    if delivery.id().starts_with("fail") && delivery.attempt() == 1 {
        return Err("not this time".into());
    }
    println!("{}", delivery.id());
    Ok(())
}
