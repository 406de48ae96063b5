use std::collections::VecDeque;

use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::task::JoinHandle;

use super::super::library::{LibraryStream, Tasks};
use super::super::reader::Greeting;
use super::*;
use crate::frames::{CopyChannel, Written};

/// The library's end of the pipe, the broker's end of the socket, and the task between them.
fn begun(channels: &OwnChannels) -> (LibraryStream, DuplexStream, JoinHandle<()>) {
    let (library, other_end) = LibraryStream::new(Tasks::default());
    let (socket, broker) = LibraryStream::new(Tasks::default());
    // The same pipe stands for the socket, whose end has no reason.
    broker.end.silently();
    let reader = FrameReader::new(0, Greeting::default(), channels.clone());
    let pump = Pump::new(socket, other_end, reader, channels.clone());
    (library, broker.pipe, tokio::spawn(pump.run(std::future::pending())))
}

/// A broker that reads nothing, and a library that gives up: a task and a socket would stay, and callers would wait.
#[tokio::test(start_paused = true)]
async fn it_ends_with_the_library_though_nothing_can_be_written() {
    let channels = OwnChannels::default();
    let copies = CopyChannel::new(channels.register(1));
    let (mut library, _broker, pump) = begun(&channels);
    // Frames without a payload, more of them than all pipes hold.
    let much = vec![0; 1 << 20];
    assert!(timeout(CLOSING, library.write_all(&much)).await.is_err());
    let message = Written { header: Vec::new().into(), body: Vec::new().into() };
    let answers = copies.publish(vec![message], VecDeque::new());
    drop(library);
    assert!(timeout(2 * CLOSING, answers).await.expect("they hear of it").is_err());
    timeout(2 * CLOSING, pump).await.expect("it ends").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn the_last_words_of_the_library_are_written() {
    let (mut library, mut broker, pump) = begun(&OwnChannels::default());
    let words = [redrive_amqp091::PROTOCOL_HEADER, redrive_amqp091::HEARTBEAT].concat();
    library.write_all(&words).await.expect("there is room");
    drop(library);
    let mut read = Vec::new();
    broker.read_to_end(&mut read).await.expect("read");
    assert_eq!(read, words);
    pump.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn the_library_hears_that_the_broker_has_gone() {
    let (mut library, broker, pump) = begun(&OwnChannels::default());
    drop(broker);
    let mut read = [0];
    assert_eq!(futures::AsyncReadExt::read(&mut library, &mut read).await.expect("an end"), 0);
    pump.await.expect("no panic");
}

/// Nobody has the connection any more, and the library does not end it.
#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_wants_ends() {
    let (library, other_end) = LibraryStream::new(Tasks::default());
    let (socket, _broker) = LibraryStream::new(Tasks::default());
    let channels = OwnChannels::default();
    let reader = FrameReader::new(0, Greeting::default(), channels.clone());
    let pump = Pump::new(socket, other_end, reader, channels);
    timeout(3 * CLOSING, pump.run(std::future::ready(()))).await.expect("it ends");
    drop(library);
}

/// It would log the end of the stream as an error.
#[tokio::test(start_paused = true)]
async fn a_library_that_has_closed_the_connection_hears_no_end() {
    let (mut library, mut broker, pump) = begun(&OwnChannels::default());
    let close_ok = [1, 0, 0, 0, 0, 0, 4, 0, 10, 0, 51, 0xce];
    tokio::io::AsyncWriteExt::write_all(&mut broker, &close_ok).await.expect("there is room");
    drop(broker);
    let mut read = [0; 12];
    futures::AsyncReadExt::read_exact(&mut library, &mut read).await.expect("the answer");
    assert_eq!(read, close_ok);
    pump.await.expect("no panic");
    assert!(timeout(CLOSING, futures::AsyncReadExt::read(&mut library, &mut read)).await.is_err());
}

#[test]
fn the_library_hears_that_the_runtime_has_ended() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut library, _broker, _pump) = runtime.block_on(async { begun(&OwnChannels::default()) });
    drop(runtime);
    let mut end = [0];
    let read = futures::FutureExt::now_or_never(futures::AsyncReadExt::read(&mut library, &mut end));
    let error = read.expect("it has ended").expect_err("no end by the broker");
    assert!(tokio::runtime::is_rt_shutdown_err(&error));
}
