//! The emulator ends like a killed process while a client sends messages.

use std::collections::BTreeSet;
use std::path::Path;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::Emulator;

const MESSAGES: u32 = 500;

async fn emulator(state: &Path) -> Emulator {
    let builder = Emulator::builder().queue("orders", Settings::default()).state_file(state);
    builder.start().await.expect("an emulator")
}

/// Returns all bytes of a client that sends this many messages without waiting for a response.
fn everything() -> BytesMut {
    let mut bytes = BytesMut::from(&AMQP_HEADER[..]);
    let mut say = |performative: &Performative, payload: &[u8]| {
        put_frame(FrameKind::Amqp, 0, &mut bytes, |to| {
            performative.encode(to);
            to.extend_from_slice(payload);
        });
    };
    let open = Open { container_id: "test".into(), max_frame_size: 65536, channel_max: 9, ..Open::default() };
    say(&Performative::Open(open), &[]);
    let (incoming_window, outgoing_window) = (1000, 1000);
    say(&Performative::Begin(Begin { incoming_window, outgoing_window, ..Begin::default() }), &[]);
    let attach = Attach {
        name: "link".into(),
        sender_settle_mode: 2,
        source: list(SOURCE, vec!["me".into()]),
        target: list(TARGET, vec!["orders".into()]),
        initial_delivery_count: Some(0),
        ..Attach::default()
    };
    say(&Performative::Attach(Box::new(attach)), &[]);
    for id in 0..MESSAGES {
        let mut message = Message::with_data(vec![7; 1000]);
        message.properties.message_id = id.to_string().into();
        let delivery_tag = Some(Bytes::copy_from_slice(&id.to_be_bytes()));
        let transfer = Transfer { delivery_id: Some(id), delivery_tag, ..Transfer::default() };
        say(&Performative::Transfer(transfer), &message.to_bytes());
    }
    bytes
}

/// Reads the accepted ids until there are `enough`, or the connection ends.
async fn accepted(stream: &mut TcpStream, input: &mut BytesMut, enough: usize) -> BTreeSet<u32> {
    let mut accepted = BTreeSet::new();
    loop {
        while input.len() >= 8 && input[..4] == *b"AMQP" {
            let _ = input.split_to(8);
        }
        while let Some(frame) = take_frame(input, 1 << 20).unwrap() {
            let mut reader = Reader::new(&frame.body);
            if frame.body.is_empty() {
                continue;
            }
            if let Performative::Disposition(said) = Performative::decode(&mut reader).unwrap() {
                assert_eq!(said.state, Some(DeliveryState::Accepted));
                accepted.extend(said.first..=said.last);
            }
        }
        if accepted.len() >= enough || !matches!(stream.read_buf(input).await, Ok(1..)) {
            return accepted;
        }
    }
}

#[tokio::test]
async fn what_was_accepted_before_a_crash_is_there_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let emulator = emulator(&folder.path().join("state")).await;
    let mut stream = TcpStream::connect(emulator.address()).await.unwrap();
    stream.write_all(&everything()).await.unwrap();
    let mut input = BytesMut::new();
    let mut told = accepted(&mut stream, &mut input, 1).await;
    emulator.crash().await;
    told.extend(accepted(&mut stream, &mut input, usize::MAX).await);
    emulator.restart().await.unwrap();
    let kept: BTreeSet<u32> = emulator
        .entity("orders")
        .unwrap()
        .messages()
        .iter()
        .map(|kept| kept.message.properties.message_id.as_text().unwrap().parse().unwrap())
        .collect();
    assert!(!told.is_empty() && told.is_subset(&kept), "accepted, and lost: {:?}", told.difference(&kept));
    emulator.stop().await;
}

#[tokio::test]
async fn what_was_taken_before_a_stop_is_there_after_it() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let first = emulator(&state).await;
    let mut stream = TcpStream::connect(first.address()).await.unwrap();
    stream.write_all(&everything()).await.unwrap();
    assert_eq!(accepted(&mut stream, &mut BytesMut::new(), MESSAGES as usize).await.len(), MESSAGES as usize);
    first.stop().await;
    let second = emulator(&state).await;
    assert_eq!(second.entity("orders").unwrap().counts().active, u64::from(MESSAGES));
    second.stop().await;
}

#[tokio::test]
async fn without_a_state_file_a_restart_is_empty() {
    let emulator = Emulator::builder().queue("orders", Settings::default()).start().await.unwrap();
    let mut stream = TcpStream::connect(emulator.address()).await.unwrap();
    stream.write_all(&everything()).await.unwrap();
    accepted(&mut stream, &mut BytesMut::new(), 1).await;
    emulator.restart().await.unwrap();
    assert_eq!(emulator.entity("orders").unwrap().counts().active, 0);
    emulator.stop().await;
}

#[tokio::test]
async fn who_comes_in_the_last_moment_hears_of_the_end_too() {
    // It is a race whether the client is accepted before or after the emulator learns that it must end.
    for _ in 0..20 {
        let emulator = Emulator::builder().queue("orders", Settings::default()).start().await.unwrap();
        let mut stream = TcpStream::connect(emulator.address()).await.unwrap();
        stream.write_all(&everything()).await.unwrap();
        let client = async move { accepted(&mut stream, &mut BytesMut::new(), usize::MAX).await };
        let both = async { tokio::join!(emulator.stop(), client) };
        tokio::time::timeout(Duration::from_secs(120), both).await.expect("an end");
    }
}
