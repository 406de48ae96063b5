//! Replays a client's input without sockets: for the fuzz target and for the test that replays its corpus.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use redrive_emulator_host::Clock;
use tokio::time::Instant;

use super::connection::Connection;
use super::keys::Keys;
use super::shared_state::SharedState;
use crate::broker::{Broker, Namespace, Settings, Topic};
use crate::faults::Faults;

/// Runs a client that sends these bytes in pieces, and reads the output.
///
/// # Panics
/// If the server misbehaves: it buffers bytes without a limit, or does not end.
pub fn replay(bytes: &[u8]) {
    let shared = shared();
    let mailbox = shared.connect();
    let mut now = Instant::now();
    let mut connection = Connection::new(Arc::clone(&shared), Arc::clone(&mailbox), now);
    let mut input = BytesMut::new();
    // The bytes determine the size of the pieces, so that every input is split somewhere.
    let piece = bytes.first().map_or(1, |byte| usize::from(*byte) * 16 + 1);
    for piece in bytes.chunks(piece) {
        input.extend_from_slice(piece);
        let before = input.len();
        connection.receive(&mut input, now);
        assert!(input.len() <= before);
        connection.read_mail(mailbox.take());
        connection.serve();
        let output = connection.take_output();
        assert!(output.len() < 32 << 20, "{} bytes in answer to a few", output.len());
        now += Duration::from_secs(1);
        let _ = shared.clock.advance(Duration::from_secs(1));
        if connection.next_deadline().is_some_and(|deadline| deadline <= now) {
            connection.on_time(now);
        }
        if connection.is_over() {
            break;
        }
    }
    connection.end();
    shared.disconnect(mailbox.id);
}

fn shared() -> Arc<SharedState> {
    let sessions = Settings { requires_session: true, ..Settings::default() };
    let topic = Topic::new("events", Settings::default()).subscription("audit", Settings::default());
    let namespace =
        Namespace::default().queue("orders", Settings::default()).queue("sessions", sessions).topic(topic);
    let broker = Broker::new(&namespace, 1).expect("a namespace that can be");
    Arc::new(SharedState::new(
        broker,
        None,
        Arc::new(Clock::new(true)),
        Arc::new(Keys::default()),
        Arc::new(Faults::default()),
    ))
}
