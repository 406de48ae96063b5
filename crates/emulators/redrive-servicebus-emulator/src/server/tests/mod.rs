//! Tests of the server without sockets: the client sends performatives.

mod crash;
mod idle;
mod limits;
mod links;
mod settling;
mod transactions;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use redrive_emulator_host::Clock;
use tokio::time::Instant;

use super::connection::Connection;
use super::keys::Keys;
use super::mailbox::Mailbox;
use super::shared_state::SharedState;
use crate::amqp::frame::{AMQP_HEADER, FrameKind, put_frame, take_frame};
use crate::amqp::performative::{Attach, Begin, Disposition, Flow, Open, Performative, Transfer};
use crate::amqp::state::{AmqpError, DeliveryState, list};
use crate::amqp::{Map, Message, Reader, Value};
use crate::broker::{Broker, Namespace, Settings};
use crate::faults::Faults;

const SOURCE: u64 = 0x28;
const TARGET: u64 = 0x29;

/// A frame's performative, and a transfer's payload.
type Said = (Performative, Bytes);

struct Client {
    shared: Arc<SharedState>,
    connection: Connection,
    mailbox: Arc<Mailbox>,
    now: Instant,
    next_delivery: u32,
}

fn shared() -> Arc<SharedState> {
    hub_with(Keys::default())
}

fn hub_with(keys: Keys) -> Arc<SharedState> {
    let sessions = Settings { requires_session: true, ..Settings::default() };
    let namespace = Namespace::default().queue("orders", Settings::default()).queue("sessions", sessions);
    let broker = Broker::new(&namespace, 1).unwrap();
    Arc::new(SharedState::new(
        broker,
        None,
        Arc::new(Clock::new(true)),
        Arc::new(keys),
        Arc::new(Faults::default()),
    ))
}

impl Client {
    fn connect(shared: &Arc<SharedState>) -> Self {
        Self::connect_with_frames_of(shared, 64 * 1024)
    }

    fn connect_with_frames_of(shared: &Arc<SharedState>, max_frame_size: u32) -> Self {
        let (mailbox, now) = (shared.connect(), Instant::now());
        let connection = Connection::new(Arc::clone(shared), Arc::clone(&mailbox), now);
        let mut client = Self { shared: Arc::clone(shared), connection, mailbox, now, next_delivery: 0 };
        client.connection.receive(&mut BytesMut::from(&AMQP_HEADER[..]), now);
        assert_eq!(client.connection.take_output(), AMQP_HEADER[..]);
        let open = Open { container_id: "test".into(), max_frame_size, channel_max: 9, ..Open::default() };
        assert!(matches!(client.say(&Performative::Open(open))[..], [(Performative::Open(_), _)]));
        let begin =
            Begin { next_outgoing_id: 0, incoming_window: 1000, outgoing_window: 1000, ..Begin::default() };
        assert!(matches!(client.say(&Performative::Begin(begin))[..], [(Performative::Begin(_), _)]));
        client
    }

    fn say(&mut self, performative: &Performative) -> Vec<Said> {
        self.say_with(performative, &[])
    }

    fn say_with(&mut self, performative: &Performative, payload: &[u8]) -> Vec<Said> {
        let mut bytes = BytesMut::new();
        put_frame(FrameKind::Amqp, 0, &mut bytes, |to| {
            performative.encode(to);
            to.extend_from_slice(payload);
        });
        self.connection.receive(&mut bytes, self.now);
        self.hear()
    }

    /// Returns what the server has sent since the last call.
    fn hear(&mut self) -> Vec<Said> {
        self.connection.read_mail(self.mailbox.take());
        let mut output = self.connection.take_output();
        let mut said = Vec::new();
        while let Some(frame) = take_frame(&mut output, 1 << 20).unwrap() {
            let mut reader = Reader::new(&frame.body);
            let performative = Performative::decode(&mut reader).unwrap();
            said.push((performative, Bytes::copy_from_slice(reader.rest())));
        }
        said
    }

    fn wait(&mut self, time: Duration) -> Vec<Said> {
        self.now += time;
        self.connection.on_time(self.now);
        self.hear()
    }

    fn attach(&mut self, handle: u32, receiver: bool, source: Value, target: Value) -> Vec<Said> {
        let attach = Attach {
            name: format!("link-{handle}"),
            handle,
            receiver,
            sender_settle_mode: 2,
            source,
            target,
            initial_delivery_count: (!receiver).then_some(0),
            ..Attach::default()
        };
        self.say(&Performative::Attach(Box::new(attach)))
    }

    fn attach_sender(&mut self, handle: u32, address: &str) -> Vec<Said> {
        self.attach(handle, false, list(SOURCE, vec!["me".into()]), list(TARGET, vec![address.into()]))
    }

    fn attach_receiver(&mut self, handle: u32, address: &str) -> Vec<Said> {
        self.attach(handle, true, list(SOURCE, vec![address.into()]), list(TARGET, vec!["me".into()]))
    }

    fn attach_session(&mut self, handle: u32, address: &str, session: Value) -> Vec<Said> {
        let mut source = vec![Value::from(address)];
        source.resize(7, Value::Null);
        source.push(Value::Map(Map::new().with_symbol("com.microsoft:session-filter", session)));
        self.attach(handle, true, list(SOURCE, source), list(TARGET, vec!["me".into()]))
    }

    fn credit(&mut self, handle: u32, delivery_count: u32, credit: u32, drain: bool) -> Vec<Said> {
        self.say(&Performative::Flow(Flow {
            next_incoming_id: Some(1),
            incoming_window: 100_000,
            handle: Some(handle),
            delivery_count: Some(delivery_count),
            link_credit: Some(credit),
            drain,
            ..Flow::default()
        }))
    }

    /// Sends a message in one frame; returns its outcome.
    fn send(&mut self, handle: u32, message: &Message, state: Option<DeliveryState>) -> DeliveryState {
        let said = self.transfer(handle, &message.to_bytes(), state);
        outcome_of(&said)
    }

    fn transfer(&mut self, handle: u32, payload: &[u8], state: Option<DeliveryState>) -> Vec<Said> {
        let delivery_id = self.next_delivery;
        self.next_delivery += 1;
        let transfer = Transfer {
            handle,
            delivery_id: Some(delivery_id),
            delivery_tag: Some(Bytes::from_static(b"t")),
            state,
            ..Transfer::default()
        };
        self.say_with(&Performative::Transfer(transfer), payload)
    }

    fn settle(&mut self, first: u32, last: u32, state: DeliveryState) -> Vec<Said> {
        let disposition = Disposition { receiver: true, first, last, settled: false, state: Some(state) };
        self.say(&Performative::Disposition(disposition))
    }

    /// Sends a request to `$management` on new links; returns status, condition and body of the response.
    fn ask(&mut self, handles: (u32, u32), operation: &str, body: Map) -> (i64, Option<String>, Map) {
        let mut request = Message::with_value(&Value::Map(body));
        request.properties.message_id = Value::Ulong(7);
        request.application_properties.insert("operation", operation);
        let said = self.transfer(handles.0, &request.to_bytes(), None);
        let answer = said.iter().find_map(|(performative, payload)| match performative {
            Performative::Transfer(transfer) if transfer.handle == handles.1 => {
                Some(Message::decode(payload).unwrap())
            }
            _ => None,
        });
        let answer = answer.expect("an answer");
        assert_eq!(answer.properties.correlation_id, Value::Ulong(7));
        let property = |name| answer.application_properties.get(name).cloned();
        let status = property("statusCode").and_then(|status| status.as_i64()).expect("a status");
        let condition = property("errorCondition").and_then(|text| text.as_text().map(str::to_owned));
        (status, condition, answer.value().and_then(|body| body.as_map().cloned()).unwrap_or_default())
    }
}

#[tokio::test]
async fn who_waits_for_the_next_deadline_is_woken_when_the_clock_is_put_forward() {
    let shared = shared();
    shared.put_forward(Duration::from_secs(1)).expect("a short step");
    tokio::select! {
        biased;
        () = shared.deadline_moved.notified() => {}
        () = std::future::ready(()) => panic!("it goes on waiting for as long as before"),
    }
}

fn message(text: &'static str) -> Message {
    Message::with_data(text)
}

fn outcome_of(said: &[Said]) -> DeliveryState {
    let outcome = said.iter().find_map(|(performative, _)| match performative {
        Performative::Disposition(disposition) => disposition.state.clone(),
        _ => None,
    });
    outcome.unwrap_or_else(|| panic!("no outcome in {said:?}"))
}

fn transfers(said: &[Said]) -> Vec<&Transfer> {
    said.iter()
        .filter_map(|(performative, _)| match performative {
            Performative::Transfer(transfer) => Some(transfer),
            _ => None,
        })
        .collect()
}

fn messages(said: &[Said]) -> Vec<Message> {
    let payloads = said.iter().filter(|(performative, _)| matches!(performative, Performative::Transfer(_)));
    payloads.map(|(_, payload)| Message::decode(payload).unwrap()).collect()
}

fn detach_error(said: &[Said]) -> Option<AmqpError> {
    said.iter().find_map(|(performative, _)| match performative {
        Performative::Detach(detach) => detach.error.clone(),
        _ => None,
    })
}

fn rejection(state: &DeliveryState) -> Option<&str> {
    match state {
        DeliveryState::Rejected(Some(error)) => Some(&error.condition),
        _ => None,
    }
}
