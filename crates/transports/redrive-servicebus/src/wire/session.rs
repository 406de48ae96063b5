//! The sessions of an entity: accepting the next one, its link, and its lock.

use std::time::{Duration, SystemTime};

use fe2o3_amqp::link::ReceiverAttachError;
use fe2o3_amqp_types::definitions::Fields;
use fe2o3_amqp_types::messaging::Source;
use fe2o3_amqp_types::primitives::{OrderedMap, Symbol};
use serde_amqp::Value;

use super::own_session::OwnSession;
use super::receiver::AmqpReceiver;
use super::requests::{Requests, unreadable_reply};
use super::{Accepted, SessionRef, WireReceiver, management, read_error};
use crate::error::{Refusal, WireError};

/// The filter of a source that requests a session. Without a value it requests the next session that is free and has messages.
const FILTER: &str = "com.microsoft:session-filter";
/// The link property for how long the broker looks for a session, in milliseconds.
const TIMEOUT: &str = "com.microsoft:timeout";
/// The link property for the expiry time of the lock.
const LOCKED_UNTIL: &str = "com.microsoft:locked-until-utc";
const RENEW_SESSION_LOCK: &str = "com.microsoft:renew-session-lock";
/// The ticks of .NET at 1970: it counts from the year 1, in units of 100 ns.
const TICKS_AT_1970: i64 = 621_355_968_000_000_000;
const TICKS_PER_MILLISECOND: u64 = 10_000;

/// Attaches to the next free session of an entity. If none was free, the error is [`Refusal::NoSession`]. Dropping the future
/// ends the AMQP session and releases a session that was accepted.
pub(super) async fn accept(
    session: OwnSession,
    source: &str,
    link: String,
    wait: Duration,
) -> Result<Accepted, WireError> {
    let filter: OrderedMap<Symbol, Value> = [(Symbol::from(FILTER), Value::Null)].into_iter().collect();
    let source = Source::builder().address(source).filter(filter).build();
    let millis = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
    let properties: Fields = [(Symbol::from(TIMEOUT), Value::Uint(millis))].into_iter().collect();
    let attached = AmqpReceiver::attach_to(session, source, link.clone(), Some(properties)).await;
    let (receiver, found, properties) = attached.map_err(refused)?;
    let Some(id) = found.as_ref().and_then(session_id) else {
        let text = "the broker accepted a session without naming it";
        return Err(WireError::new(Refusal::Other, text));
    };
    let locked_until = properties.get(&Symbol::from(LOCKED_UNTIL)).and_then(from_ticks);
    let reference = SessionRef { id: id.into(), link: link.into() };
    Ok(Accepted { reference, receiver: Box::new(receiver), locked_until })
}

/// Returns true if the entity requires sessions: it then refuses a plain link.
pub(super) async fn required(session: OwnSession, source: &str, link: String) -> Result<bool, WireError> {
    match AmqpReceiver::attach(session, source, link).await {
        Ok(receiver) => {
            Box::new(receiver).close().await;
            Ok(false)
        }
        Err(error) if error.refusal == Refusal::NeedsSessions => Ok(true),
        Err(error) => Err(error),
    }
}

/// Renews the lock of a session, and returns its expiry time.
pub(super) async fn renew(node: &Requests, reference: &SessionRef) -> Result<SystemTime, WireError> {
    let mut reply = management::ask(node, RENEW_SESSION_LOCK, Vec::new(), Some(reference), None).await?;
    reply.take("expiration").and_then(management::time).ok_or_else(|| unreadable_reply(RENEW_SESSION_LOCK))
}

/// Converts the refusal of a session. Without a reason it is treated as transient: another attempt may show the reason.
fn refused(error: ReceiverAttachError) -> WireError {
    match error {
        ReceiverAttachError::IncomingSourceIsNone => {
            WireError::interrupted("a session was refused without a reason")
        }
        error => {
            let mut error = read_error::attach_receiver(error, true);
            if matches!(error.refusal, Refusal::Timeout | Refusal::SessionTaken) {
                error.refusal = Refusal::NoSession;
            }
            error
        }
    }
}

fn session_id(source: &Source) -> Option<String> {
    match source.filter.as_ref()?.get(&Symbol::from(FILTER))? {
        Value::String(id) => Some(id.clone()),
        Value::Described(described) => match &described.value {
            Value::String(id) => Some(id.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn from_ticks(value: &Value) -> Option<SystemTime> {
    let Value::Long(ticks) = value else { return None };
    let since_1970 = u64::try_from(ticks.checked_sub(TICKS_AT_1970)?).ok()?;
    let millis = since_1970 / TICKS_PER_MILLISECOND;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_lock_is_read_as_dotnet_writes_it() {
        // new DateTime(2020, 1, 1, 0, 0, 0, DateTimeKind.Utc).Ticks
        let time = from_ticks(&Value::Long(637_134_336_000_000_000)).expect("it can be read");
        let since = time.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        assert_eq!(since, Duration::from_secs(1_577_836_800));
        assert_eq!(from_ticks(&Value::Long(0)), None);
        assert_eq!(from_ticks(&Value::Long(i64::MIN)), None);
        assert!(from_ticks(&Value::Long(i64::MAX)).is_some());
        assert_eq!(from_ticks(&Value::Null), None);
    }

    #[test]
    fn the_session_is_named_by_the_filter_of_the_answer() {
        let source = |value| {
            let filter: OrderedMap<Symbol, Value> = [(Symbol::from(FILTER), value)].into_iter().collect();
            Source::builder().filter(filter).build()
        };
        assert_eq!(session_id(&source(Value::String("a".to_owned()))).as_deref(), Some("a"));
        assert_eq!(session_id(&source(Value::Null)), None);
        assert_eq!(session_id(&Source::builder().build()), None);
    }
}
