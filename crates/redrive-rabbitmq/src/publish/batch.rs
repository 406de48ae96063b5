//! One batch of published messages, and the broker's answers: on redrive's own frames, or through the client library.
//!
//! Through the library: with several unconfirmed messages the client library may report a returned one with the confirm of another. But the broker
//! returns a message before it confirms it, and the library passes every returned message on with some confirm. So once ALL
//! confirms of a batch are in, with nothing else on the channel, all returned messages are known, and the others are stored.

use std::pin::Pin;
use std::task::{Context, Waker};

use futures::future::{MaybeDone, maybe_done};
use lapin::message::BasicReturnMessage;
use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation};
use redrive_core::fail_point::{FailPoint, fail_point};
use redrive_core::{Message, TransportError};

use super::frames::Frames;
use crate::connection::{Channel, PooledChannel, while_open};
use crate::convert::{self, Form};
use crate::frames::{Answer, CopyChannel};
use crate::topology::Route;

/// Messages of one route that are ready to be published on a channel.
pub(super) enum Batch<'a> {
    Own(&'a CopyChannel, Frames),
    ThroughLapin(&'a Channel, Vec<BasicProperties>),
}

impl<'a> Batch<'a> {
    /// `frame_max`: in bytes; 0: any size. `expected`: about how many messages will be added.
    pub(super) fn new(channel: &'a PooledChannel, route: &Route, frame_max: u32, expected: usize) -> Self {
        match &channel.own {
            Some(own) => Self::Own(own, Frames::new(own.number(), route, frame_max, expected)),
            None => Self::ThroughLapin(&channel.channel, Vec::with_capacity(expected)),
        }
    }

    /// Adds a message.
    ///
    /// # Errors
    /// If AMQP 0-9-1 cannot carry it: then it is not added.
    pub(super) fn add(&mut self, message: &Message, form: Form) -> Result<(), TransportError> {
        match self {
            Self::Own(_, frames) => frames.add(message, form),
            Self::ThroughLapin(_, all) => {
                all.push(convert::properties(message, form)?);
                Ok(())
            }
        }
    }

    /// Publishes them and waits for all answers, in the same order. The channel has no other unconfirmed messages. After an error it has
    /// ended, and the result of its messages is not known.
    pub(super) async fn publish(
        self,
        route: &Route,
        messages: impl Iterator<Item = &Message>,
    ) -> lapin::Result<Vec<Answer>> {
        let answers = match self {
            Self::Own(channel, frames) => {
                let (written, pieces) = frames.finish();
                let copies = written.len();
                let answers = channel.publish(written, pieces);
                (0..copies).for_each(|_| fail_point(FailPoint::CopyHandedOver));
                answers.await?
            }
            Self::ThroughLapin(channel, properties) => {
                through_lapin(channel, route, messages.zip(properties)).await?
            }
        };
        for _ in answers.iter().filter(|answer| **answer == Answer::Stored) {
            fail_point(FailPoint::CopyConfirmed);
        }
        Ok(answers)
    }
}

async fn through_lapin<'a>(
    channel: &Channel,
    route: &Route,
    copies: impl Iterator<Item = (&'a Message, BasicProperties)>,
) -> lapin::Result<Vec<Answer>> {
    let mut messages = Vec::new();
    let sending = copies.map(|(message, properties)| {
        messages.push(message);
        Box::pin(maybe_done(send(channel, route, message, properties)))
    });
    let confirmed = while_open(channel, all(sending.collect())).await?;
    let mut acked = Vec::with_capacity(messages.len());
    let mut returned = Vec::new();
    for confirmation in confirmed {
        acked.push(matches!(confirmation, Confirmation::Ack(_)));
        returned.extend(confirmation.take_message());
    }
    Ok(answers(&acked, &returned, |returned, copy| {
        messages.get(copy).is_none_or(|message| may_be(returned, message))
    }))
}

/// Publishes one message, and waits for its confirm.
async fn send(
    channel: &Channel,
    route: &Route,
    message: &Message,
    properties: BasicProperties,
) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let (exchange, routing_key) =
        (ShortString::from(&*route.exchange), ShortString::from(&*route.routing_key));
    let sent = channel.basic_publish(exchange, routing_key, options, message.body(), properties);
    let confirm = sent.await?;
    fail_point(FailPoint::CopyHandedOver);
    confirm.await
}

/// Waits for all, and returns their results in order. `join_all` would wake this task, and poll, twice for each of them.
async fn all<F>(mut sending: Vec<Pin<Box<MaybeDone<F>>>>) -> lapin::Result<Vec<Confirmation>>
where
    F: Future<Output = lapin::Result<Confirmation>>,
{
    // The first poll passes each message to the channel, without a waker: they are awaited one after the other, and when one is
    // done, most of the following ones are too.
    for one in &mut sending {
        let _ = one.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    let mut done = Vec::with_capacity(sending.len());
    for mut one in sending {
        one.as_mut().await;
        done.extend(one.as_mut().take_output());
    }
    done.into_iter().collect()
}

/// Returns one answer for each message; `acked` is the broker's confirm. If several messages may be the returned one, all of them
/// count as returned: each is stored possibly twice, never zero times.
fn answers(
    acked: &[bool],
    returned: &[BasicReturnMessage],
    may_be: impl Fn(&BasicReturnMessage, usize) -> bool,
) -> Vec<Answer> {
    let confirmed = |acked: &bool| if *acked { Answer::Stored } else { Answer::Refused };
    let mut answers: Vec<_> = acked.iter().map(confirmed).collect();
    let all_came_back = returned.len() >= answers.len();
    for returned in returned {
        let reason = || Answer::Returned(returned.reply_text.as_str().to_owned());
        let mut found = false;
        for (copy, answer) in answers.iter_mut().enumerate() {
            if all_came_back || may_be(returned, copy) {
                *answer = reason();
                found = true;
            }
        }
        if !found {
            answers.fill_with(reason);
        }
    }
    answers
}

/// Returns true if the returned message may be this copy, by the properties that a broker never changes.
fn may_be(returned: &BasicReturnMessage, copy: &Message) -> bool {
    let id = returned.delivery.properties.message_id().as_ref().map(ShortString::as_str);
    id == copy.id() && returned.delivery.data == copy.body().as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapin::message::Delivery;

    fn message(id: &str) -> Message {
        Message::new("body").with_id(id)
    }

    fn returned(id: &str) -> BasicReturnMessage {
        let mut delivery = Delivery::mock(0, "".into(), "gone".into(), false, b"body".to_vec());
        delivery.properties = BasicProperties::default().with_message_id(id.into());
        BasicReturnMessage { delivery, reply_code: 312, reply_text: "NO_ROUTE".into() }
    }

    fn shown(acked: &[bool], sent: &[&str], came_back: &[&str]) -> String {
        let sent: Vec<_> = sent.iter().map(|id| message(id)).collect();
        let came_back: Vec<_> = came_back.iter().map(|id| returned(id)).collect();
        let answers = answers(acked, &came_back, |returned, copy| may_be(returned, &sent[copy]));
        let letter = |answer: &Answer| match answer {
            Answer::Stored => 's',
            Answer::Returned(_) => 'r',
            Answer::Refused => 'n',
        };
        answers.iter().map(letter).collect()
    }

    #[test]
    fn what_did_not_come_back_and_was_confirmed_is_stored() {
        assert_eq!(shown(&[true, true, false], &["a", "b", "c"], &[]), "ssn");
        assert_eq!(shown(&[true, true, false], &["a", "b", "c"], &["b"]), "srn");
        assert_eq!(shown(&[true, true], &["a", "b"], &["b", "a"]), "rr");
    }

    #[test]
    fn whatever_may_be_what_came_back_is_not_stored() {
        assert_eq!(shown(&[true; 3], &["a", "twin", "twin"], &["twin"]), "srr");
        assert_eq!(shown(&[true; 3], &["a", "b", "c"], &["nobody's"]), "rrr");
    }
}
