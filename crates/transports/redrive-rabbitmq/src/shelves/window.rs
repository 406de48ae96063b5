//! Takes many messages from the head of a queue at once: a quorum queue decides once for a consumer, and once for each `basic.get`.

use std::time::Duration;

use futures::StreamExt as _;
use lapin::Consumer;
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use redrive_core::TransportError;
use tokio::time::sleep;

use crate::connection::while_open;
use crate::convert::short;
use crate::delivery_channel::DeliveryChannel;
use crate::error;
use crate::frames::{Got, TakenDelivery};
use crate::topology;

/// Maximum number of messages in one window.
const MOST: u32 = 1024;
/// Size of the bodies that one window should not exceed.
const MOST_BYTES: usize = 16 << 20;
/// Time without a message after which the broker is asked whether one is left.
const QUIET: Duration = Duration::from_millis(500);

/// How often in a row the broker is only asked: a consumer that gets nothing of what is there is not the active one of its queue.
const MOST_ASKED: u32 = 10;

/// Returns the size of the next window: it grows, so that a caller who needs one message takes few, and large messages are few.
pub(super) fn next_size(last: u32, largest_body: usize, left: u32) -> u32 {
    let fitting = u32::try_from(MOST_BYTES / largest_body.max(1)).unwrap_or(MOST).max(1);
    last.saturating_mul(2).clamp(1, MOST).min(fitting).min(left)
}

/// Takes the first message, and the number of those behind it.
pub(super) async fn first(channel: &DeliveryChannel, queue: &str) -> Result<Option<Got>, TransportError> {
    channel.get(queue).await.map_err(|failed| cannot_read(queue, failed))
}

/// Takes the next `size` messages, in the order of the queue; fewer if another client took some, more if the broker was slow.
///
/// The consumer is cancelled before anything is settled: otherwise the broker would deliver more.
pub(super) async fn take(
    delivery_channel: &DeliveryChannel,
    queue: &str,
    size: u32,
) -> Result<Vec<TakenDelivery>, TransportError> {
    let channel = delivery_channel.channel();
    let prefetch = u16::try_from(size).unwrap_or(u16::MAX);
    let failed = |failed| cannot_read(queue, failed);
    let limiting = channel.basic_qos(prefetch, BasicQosOptions { global: false });
    while_open(channel, limiting).await.map_err(failed)?;
    let options = BasicConsumeOptions::default();
    let name = short(queue, "the name of a queue")?;
    let consuming = channel.basic_consume(name, "".into(), options, FieldTable::default());
    let mut consumer = while_open(channel, consuming).await.map_err(failed)?;
    let taken = collect(delivery_channel, queue, &mut consumer, usize::from(prefetch)).await;
    let cancelling = channel.basic_cancel(consumer.tag(), BasicCancelOptions { nowait: false });
    while_open(channel, cancelling).await.map_err(failed)?;
    let mut taken = taken?;
    // What the broker assigned to the consumer before it was cancelled.
    taken.extend(delivery_channel.deliveries().take(usize::MAX));
    // Tags are given in the order of the queue.
    taken.sort_unstable_by_key(|found| found.tag);
    Ok(taken)
}

async fn collect(
    channel: &DeliveryChannel,
    queue: &str,
    consumer: &mut Consumer,
    size: usize,
) -> Result<Vec<TakenDelivery>, TransportError> {
    let mut taken = Vec::with_capacity(size);
    let (mut is_empty, mut asked) = (false, 0);
    // What the broker has assigned to the consumer must arrive: nobody would see it until the channel ends.
    while taken.len() < size {
        tokio::select! {
            biased;
            () = channel.deliveries().arrived() => {
                taken.extend(channel.deliveries().take(usize::MAX));
                asked = 0;
                continue;
            }
            ended = consumer.next() => return Err(match ended {
                Some(Err(cause)) => cannot_read(queue, cause),
                _ => error::lost("the broker ended the subscription of a scan"),
            }),
            () = sleep(QUIET) => {}
        }
        // Everything that the answer was behind is here.
        if is_empty {
            break;
        }
        // A slow broker has the rest still to send. Only asked: a quorum queue of 4.3 would put a message of `basic.get` back before those
        // of the consumer.
        if asked < MOST_ASKED && topology::count_on(channel.channel(), queue).await? > 0 {
            asked += 1;
            continue;
        }
        // Another client took a message, or the broker has sent all. The answer is behind the messages of the consumer.
        match first(channel, queue).await? {
            Some((delivery, _)) => taken.push(delivery),
            None => is_empty = true,
        }
    }
    Ok(taken)
}

fn cannot_read(queue: &str, failed: lapin::Error) -> TransportError {
    match error::refusal(&failed) {
        Some(_) => error::verifying(queue, failed),
        None => error::interrupted(&format!("queue `{queue}` cannot be read"), failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_grows_up_to_what_fits() {
        let sizes = |body, left| {
            let grown = std::iter::successors(Some(1), |last| Some(next_size(*last, body, left)));
            grown.skip(1).take(12).collect::<Vec<_>>()
        };
        assert_eq!(sizes(100, 5000), [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1024]);
        assert_eq!(sizes(4 << 20, 5000)[..4], [2, 4, 4, 4]);
        assert_eq!(sizes(1 << 30, 5000)[..2], [1, 1]);
        assert_eq!(sizes(0, 3)[..3], [2, 3, 3]);
    }
}
