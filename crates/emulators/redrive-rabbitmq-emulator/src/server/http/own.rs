//! The emulator's own calls: time, faults, events, drawings.

use std::time::Duration;

use serde_json::json;

use super::call::{Call, Reply};
use crate::broker::{Broker, ConfirmFault, Event, EventKind, Timestamp};
use crate::server::shared_state::SharedState;
use redrive_amqp091::ShortStr;

pub(super) fn answer(shared: &SharedState, call: &Call) -> Reply {
    let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
    match (&*call.method, &path[..]) {
        ("GET", ["emulator", "time"]) => time(shared),
        ("POST", ["emulator", "advance"]) => match call.query.get("millis").map(|millis| millis.parse()) {
            Some(Ok(millis)) => {
                let moved = shared.put_forward(Duration::from_millis(millis));
                moved.map_or_else(|error| Reply::bad_request(&error.to_string()), |()| time(shared))
            }
            _ => Reply::bad_request("give the time as ?millis=NUMBER"),
        },
        ("GET", ["emulator", "events"]) => events(shared.with(|broker, _| broker.events())),
        ("DELETE", ["emulator", "events"]) => events(shared.with(|broker, _| broker.take_events())),
        ("GET", ["emulator", "topology"]) => topology(shared, call),
        ("POST", ["emulator", "faults", fault]) => inject(shared, call, fault),
        (_, ["emulator", "time" | "advance" | "events" | "topology"] | ["emulator", "faults", _]) => {
            Reply::method_not_allowed()
        }
        _ => Reply::not_found(),
    }
}

fn time(shared: &SharedState) -> Reply {
    let deadline = shared.with(|broker, _| broker.next_deadline());
    Reply::json(json!({
        "now": shared.clock.now().millis(), "runs": shared.clock.runs(),
        "next_deadline": deadline.map(Timestamp::millis),
    }))
}

fn events(events: Vec<Event>) -> Reply {
    let events = events.into_iter().map(|event| {
        let (at, vhost) = (event.at.millis(), event.vhost);
        match event.kind {
            EventKind::Dropped { queue, reason, message } => json!({
                "at": at, "vhost": vhost, "event": "dropped", "queue": queue, "reason": format!("{reason:?}"),
                "exchange": message.exchange, "routing_key": message.routing_key,
                "message_id": message.properties.message_id.as_ref().map(ToString::to_string),
                "payload": String::from_utf8_lossy(&message.body),
            }),
            EventKind::DeadLettered { queue, reason, to } => {
                json!({"at": at, "vhost": vhost, "event": "dead-lettered", "queue": queue, "reason": reason, "to": to})
            }
            EventKind::QueueExpired { queue, messages } => {
                json!({"at": at, "vhost": vhost, "event": "queue-expired", "queue": queue, "messages": messages})
            }
            EventKind::DeadLetteringIgnored { queue } => {
                json!({"at": at, "vhost": vhost, "event": "dead-lettering-ignored", "queue": queue})
            }
            EventKind::ConsumerTimedOut { queue } => {
                json!({"at": at, "vhost": vhost, "event": "consumer-timed-out", "queue": queue})
            }
        }
    });
    Reply::list(events.collect())
}

fn topology(shared: &SharedState, call: &Call) -> Reply {
    let name = call.query.get("vhost").map_or("/", String::as_str);
    let dot = call.query.get("format").is_some_and(|format| format == "dot");
    let drawing = shared.with(|broker, _| {
        let vhost = broker.vhost_named(name)?;
        Some(if dot { broker.dot(vhost) } else { broker.mermaid(vhost) })
    });
    drawing.map_or_else(Reply::not_found, Reply::text)
}

fn inject(shared: &SharedState, call: &Call, fault: &str) -> Reply {
    let argument = |name: &str| call.query.get(name).map(String::as_str);
    match fault {
        "cut-connections" => shared.with(|broker, _| broker.cut(None)),
        "close-connections" => {
            let reason = argument("reason").unwrap_or("closed by the emulator");
            shared.with(|broker, now| broker.close_all(reason, now));
        }
        "hold-confirms" => shared.with(|broker, now| broker.set_confirms(ConfirmFault::Hold, now)),
        "release-confirms" => shared.with(|broker, now| broker.set_confirms(ConfirmFault::None, now)),
        "refuse-confirms" => match argument("publishes").unwrap_or("1").parse() {
            Ok(publishes) => {
                shared.with(|broker, now| broker.set_confirms(ConfirmFault::Refuse(publishes), now));
            }
            Err(_) => return Reply::bad_request("give the number of publishes as ?publishes=NUMBER"),
        },
        "raise-alarm" => {
            let reason = argument("reason").unwrap_or("low on memory");
            shared.with(|broker, now| broker.raise_alarm(reason, now));
        }
        "clear-alarm" => shared.with(Broker::clear_alarm),
        "freeze" => shared.set_frozen(true),
        "resume" => shared.set_frozen(false),
        "lose-leader" | "restore-leader" | "give-back-unsettled" => return on_queue(shared, call, fault),
        _ => return Reply::not_found(),
    }
    Reply::done()
}

fn on_queue(shared: &SharedState, call: &Call, fault: &str) -> Reply {
    let vhost = call.query.get("vhost").map_or("/", String::as_str);
    let Some(Ok(queue)) = call.query.get("queue").map(|name| ShortStr::try_from(name.as_str())) else {
        return Reply::bad_request("give the queue as ?queue=NAME");
    };
    let done = shared.with(|broker, now| {
        let vhost = broker.vhost_named(vhost)?;
        let id = broker.queue_named(vhost, &queue)?;
        if fault != "give-back-unsettled" {
            broker.set_leaderless(id, fault == "lose-leader", now);
        }
        if fault != "restore-leader" {
            broker.give_back_unsettled(id, now);
        }
        Some(())
    });
    done.map_or_else(Reply::not_found, |()| Reply::done())
}
