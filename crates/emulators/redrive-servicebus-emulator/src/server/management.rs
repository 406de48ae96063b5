//! Requests of a client to an entity's `$management` node.

use bytes::Bytes;
use uuid::Uuid;

use super::context::Context;
use super::errors::{amqp_error, status_of};
use super::requests::{Answer, Request};
use crate::amqp::state::AmqpError;
use crate::amqp::{Map, Message, Value};
use crate::broker::{
    BrokerError, Delivered, EntityId, Incoming, Operation, ReceiveMode, SequenceNumber, Settlement, Timestamp,
};
use crate::faults::{Effect, Step};

/// .NET's `DateTime.MaxValue`: asks for sessions with messages, not for those whose state changed.
const END_OF_TIME: i64 = 253_402_300_799_000;

pub(super) fn answer(context: &mut Context, entity: EntityId, path: &str, request: &Request) -> Answer {
    let fault = context.fault(Step::Request, path);
    if let Some(refusal) = fault.as_ref().and_then(Effect::refusal) {
        return Answer::refused(status_of(&refusal.condition), refusal);
    }
    let body = request.message.value();
    let empty = Map::new();
    let call = Call {
        context,
        entity,
        body: body.as_ref().and_then(Value::as_map).unwrap_or(&empty),
        transaction: request.transaction.as_ref(),
    };
    let answer = call.answer(&request.operation).unwrap_or_else(|refusal| match refusal {
        Refusal::Broker(error) => Answer::refused(error.status_code(), amqp_error(&error)),
        Refusal::Request(error) => Answer::refused(400, error),
    });
    Answer { fault, ..answer }
}

/// One request, with the parts that all requests have.
pub(super) struct Call<'a> {
    pub(super) context: &'a Context,
    pub(super) entity: EntityId,
    pub(super) body: &'a Map,
    transaction: Option<&'a Bytes>,
}

/// Why a request is refused.
pub(super) enum Refusal {
    Broker(BrokerError),
    Request(AmqpError),
}

impl From<BrokerError> for Refusal {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl From<AmqpError> for Refusal {
    fn from(error: AmqpError) -> Self {
        Self::Request(error)
    }
}

impl Call<'_> {
    fn answer(&self, operation: &str) -> Result<Answer, Refusal> {
        // Reads are refused too: the data in memory may not be on disk.
        self.context.shared.check_writable()?;
        match operation.strip_prefix("com.microsoft:").unwrap_or(operation) {
            "renew-lock" => self.renew_lock(),
            "peek-message" => self.peek(),
            "schedule-message" => self.schedule(),
            "cancel-scheduled-message" => self.cancel(),
            "receive-by-sequence-number" => self.receive_deferred(),
            "update-disposition" => self.update_disposition(),
            "renew-session-lock" => self.renew_session_lock(),
            "get-session-state" => self.session_state(),
            "set-session-state" => self.set_session_state(),
            "get-message-sessions" => self.session_ids(),
            "add-rule" => self.add_rule(),
            "remove-rule" => self.remove_rule(),
            "enumerate-rules" => self.enumerate_rules(),
            _ => {
                let text = format!("$management does not know the operation '{operation}'.");
                Err(AmqpError::new("amqp:not-implemented", text).into())
            }
        }
    }

    fn renew_lock(&self) -> Result<Answer, Refusal> {
        let tokens = self.tokens()?;
        let until = self.context.shared.with(|broker, now| broker.renew(self.entity, &tokens, now))?;
        let until = until.into_iter().map(timestamp).collect();
        Ok(Answer::ok(Map::new().with("expirations", Value::Array(until))))
    }

    fn peek(&self) -> Result<Answer, Refusal> {
        let from = self.number("from-sequence-number").unwrap_or(0);
        let max = usize::try_from(self.number("message-count").unwrap_or(1)).unwrap_or(0);
        let session = self.text("session-id");
        let messages =
            self.context.shared.with(|broker, now| broker.peek(self.entity, from, max, session, now));
        if messages.is_empty() {
            return Ok(Answer::nothing());
        }
        let messages =
            messages.iter().map(|message| Value::Map(Map::new().with("message", encoded(message))));
        Ok(Answer::ok(Map::new().with("messages", Value::List(messages.collect()))))
    }

    fn schedule(&self) -> Result<Answer, Refusal> {
        let entries = self.items("messages")?;
        let messages = entries
            .iter()
            .map(|entry| {
                let bytes = entry.as_map().and_then(|entry| entry.get("message")).and_then(Value::as_binary);
                let bytes = bytes.ok_or_else(|| missing("messages[].message"))?;
                let message = Message::decode(bytes).map_err(|error| {
                    AmqpError::new("amqp:decode-error", format!("This is no message: {error}."))
                })?;
                Ok(Incoming::new(message, bytes.len()))
            })
            .collect::<Result<Vec<_>, AmqpError>>()?;
        let to = self.entity;
        let transaction = self.transaction()?;
        let numbers = self.context.shared.with(|broker, now| {
            broker.check_sender(to)?;
            match transaction {
                None => broker.schedule(to, messages, now),
                Some(id) => broker.enlist(id, Operation::Schedule { to, messages }, now),
            }
        })?;
        let numbers = numbers.into_iter().map(Value::Long).collect();
        Ok(Answer::ok(Map::new().with("sequence-numbers", Value::Array(numbers))))
    }

    fn cancel(&self) -> Result<Answer, Refusal> {
        let numbers = self.sequence_numbers()?;
        let at = self.entity;
        let transaction = self.transaction()?;
        self.context.shared.with(|broker, now| match transaction {
            None => broker.cancel(at, &numbers, now),
            Some(id) => broker.enlist(id, Operation::Cancel { at, numbers }, now).map(drop),
        })?;
        Ok(Answer::ok(Map::new()))
    }

    fn receive_deferred(&self) -> Result<Answer, Refusal> {
        let numbers = self.sequence_numbers()?;
        let mode = match self.number("receiver-settle-mode") {
            Some(0) => ReceiveMode::ReceiveAndDelete,
            _ => ReceiveMode::PeekLock,
        };
        let session = self.text("session-id");
        if self.context.shared.with(|broker, _| broker.settings(self.entity).requires_session) {
            self.check_holds(session.unwrap_or_default())?;
        }
        let messages = self
            .context
            .shared
            .with(|broker, now| broker.receive_deferred(self.entity, &numbers, mode, session, now))?;
        let messages = messages.iter().map(|message| {
            let entry = Map::new().with("message", encoded(message));
            Value::Map(match message.lock_token {
                Some(token) => entry.with("lock-token", token),
                None => entry,
            })
        });
        Ok(Answer::ok(Map::new().with("messages", Value::List(messages.collect()))))
    }

    fn update_disposition(&self) -> Result<Answer, Refusal> {
        let (at, tokens, settlement) = (self.entity, self.tokens()?, self.settlement()?);
        let transaction = self.transaction()?;
        self.context.shared.with(|broker, now| match transaction {
            None => broker.settle(at, &tokens, &settlement, now),
            Some(id) => broker.enlist(id, Operation::Settle { at, tokens, settlement }, now).map(drop),
        })?;
        Ok(Answer::ok(Map::new()))
    }

    fn settlement(&self) -> Result<Settlement, AmqpError> {
        let properties =
            self.body.get("properties-to-modify").and_then(Value::as_map).cloned().unwrap_or_default();
        let text = |key| self.text(key).map(str::to_owned);
        match self.text("disposition-status") {
            Some("completed") => Ok(Settlement::Complete),
            Some("abandoned") => Ok(Settlement::Abandon { properties }),
            Some("released") => Ok(Settlement::Release),
            // All SDKs spell it this way.
            Some("defered" | "deferred") => Ok(Settlement::Defer { properties }),
            Some("suspended") => Ok(Settlement::DeadLetter {
                reason: text("deadletter-reason"),
                description: text("deadletter-description"),
                properties,
            }),
            _ => Err(missing("disposition-status: completed, abandoned, defered or suspended")),
        }
    }

    fn renew_session_lock(&self) -> Result<Answer, Refusal> {
        let session = self.held_session()?;
        let until =
            self.context.shared.with(|broker, now| broker.renew_session(self.entity, session, now))?;
        Ok(Answer::ok(Map::new().with("expiration", timestamp(until))))
    }

    fn session_state(&self) -> Result<Answer, Refusal> {
        let session = self.held_session()?;
        let state =
            self.context.shared.with(|broker, now| broker.session_state(self.entity, session, now))?;
        Ok(Answer::ok(Map::new().with("session-state", state)))
    }

    fn set_session_state(&self) -> Result<Answer, Refusal> {
        let session = self.held_session()?;
        let state = self.body.get("session-state").and_then(Value::as_binary).cloned();
        self.context.shared.with(|broker, now| broker.set_session_state(self.entity, session, state, now))?;
        Ok(Answer::ok(Map::new()))
    }

    fn session_ids(&self) -> Result<Answer, Refusal> {
        let since = self.number("last-updated-time").filter(|millis| *millis < END_OF_TIME);
        let since = since.map(Timestamp::from_millis);
        let (skip, top) = (self.count("skip"), self.count("top"));
        let ids =
            self.context.shared.with(|broker, now| broker.session_ids(self.entity, since, skip, top, now));
        if ids.is_empty() {
            return Ok(Answer::nothing());
        }
        let next = i32::try_from(skip + ids.len()).unwrap_or(i32::MAX);
        let ids = ids.iter().map(|id| Value::from(id.as_ref())).collect();
        Ok(Answer::ok(Map::new().with("skip", next).with("sessions-ids", Value::Array(ids))))
    }

    fn transaction(&self) -> Result<Option<crate::broker::TransactionId>, AmqpError> {
        self.transaction.map(|id| self.context.transaction(id)).transpose()
    }

    fn tokens(&self) -> Result<Vec<Uuid>, AmqpError> {
        let tokens = self.items("lock-tokens")?.iter().map(Value::as_uuid);
        tokens.collect::<Option<_>>().ok_or_else(|| missing("lock-tokens: an array of uuid"))
    }

    fn sequence_numbers(&self) -> Result<Vec<SequenceNumber>, AmqpError> {
        let numbers = self.items("sequence-numbers")?.iter().map(Value::as_i64);
        numbers.collect::<Option<_>>().ok_or_else(|| missing("sequence-numbers: an array of long"))
    }

    fn items(&self, key: &str) -> Result<&[Value], AmqpError> {
        self.body
            .get(key)
            .and_then(Value::as_items)
            .filter(|items| !items.is_empty())
            .ok_or_else(|| missing(key))
    }

    /// Returns the session of the request, which a link of the same connection must hold.
    fn held_session(&self) -> Result<&str, Refusal> {
        let session = self.text("session-id").ok_or_else(|| missing("session-id"))?;
        self.check_holds(session)?;
        Ok(session)
    }

    fn check_holds(&self, session: &str) -> Result<(), BrokerError> {
        let shared = &self.context.shared;
        if shared.holds_session(self.context.mailbox.id, self.entity, session) {
            return Ok(());
        }
        let path = shared.with(|broker, _| broker.path(self.entity).to_owned());
        Err(BrokerError::SessionLockLost { path, session: session.to_owned() })
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.body.get(key).and_then(Value::as_text)
    }

    pub(super) fn count(&self, key: &str) -> usize {
        self.number(key).and_then(|number| number.try_into().ok()).unwrap_or(0)
    }

    fn number(&self, key: &str) -> Option<i64> {
        self.body.get(key).and_then(Value::as_i64)
    }
}

pub(super) fn missing(what: &str) -> AmqpError {
    AmqpError::new("com.microsoft:argument-error", format!("The request needs {what}."))
}

fn encoded(message: &Delivered) -> Value {
    Value::Binary(message.to_message().to_bytes())
}

fn timestamp(time: Timestamp) -> Value {
    Value::Timestamp(time.millis())
}
