//! Clients that say nothing, or read nothing, on paused time: a pipe of a few bytes stands for the socket.

use redrive_amqp091::{
    Frame, FrameKind, Method, PROTOCOL_HEADER, Properties, ShortStr, basic, channel, connection, queue,
    write_content,
};
use redrive_emulator_host::Clock;
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use super::*;
use crate::broker::{Broker, Options, Version};

/// Size of a pipe's buffer.
const PIPE: usize = 4096;
const HEARTBEAT_SECONDS: u16 = 10;

fn shared() -> Arc<SharedState> {
    let mut broker = Broker::new(Options::new(Version::V4_3));
    broker.add_defaults();
    Arc::new(SharedState::new(broker, None, Arc::new(Clock::new(true))))
}

struct Client {
    stream: DuplexStream,
    input: BytesMut,
    task: JoinHandle<io::Result<()>>,
}

impl Client {
    /// Opens a pipe to the server.
    fn open(shared: &Arc<SharedState>) -> Self {
        let (stream, server) = tokio::io::duplex(PIPE);
        let (id, wake) = shared.connect("test".to_owned());
        let registered = Registered { shared: Arc::clone(shared), id, wake };
        let task = tokio::spawn(async move {
            let (reading, writing) = tokio::io::split(server);
            Task::new(&registered, 1 << 20).exchange((Box::new(reading), Box::new(writing))).await
        });
        Self { stream, input: BytesMut::new(), task }
    }

    /// Logs in, opens channel 1, and declares the queue `work`.
    async fn connect(shared: &Arc<SharedState>) -> Self {
        let mut client = Self::open(shared);
        client.stream.write_all(&PROTOCOL_HEADER).await.expect("sent");
        let start = connection::StartOk {
            mechanism: ShortStr::from_static("PLAIN"),
            response: "\0guest\0guest".into(),
            locale: ShortStr::from_static("en_US"),
            ..Default::default()
        };
        client.send(0, start).await;
        let heartbeat = HEARTBEAT_SECONDS;
        client.send(0, connection::TuneOk { channel_max: 10, frame_max: 8192, heartbeat }).await;
        let virtual_host = ShortStr::from_static("/");
        client.send(0, connection::Open { virtual_host, ..Default::default() }).await;
        client.send(1, channel::Open::default()).await;
        client.send(1, queue::Declare { queue: work(), ..Default::default() }).await;
        client.hear("queue.DeclareOk").await;
        client
    }

    async fn send(&mut self, channel: u16, method: impl Into<Method>) {
        let mut frame = BytesMut::new();
        method.into().write_frame(channel, &mut frame);
        self.stream.write_all(&frame).await.expect("sent");
    }

    async fn publish(&mut self, body: &[u8]) {
        let mut frames = BytesMut::new();
        Method::from(basic::Publish { routing_key: work(), ..Default::default() })
            .write_frame(1, &mut frames);
        write_content(1, &Properties::default().encode(), body, 8192, &mut frames);
        self.stream.write_all(&frames).await.expect("sent");
    }

    /// Reads until a method of this name.
    async fn hear(&mut self, name: &str) {
        loop {
            while let Some(frame) = Frame::take(&mut self.input, 8192).expect("a frame") {
                if frame.kind == FrameKind::Method
                    && Method::decode(&frame.payload).expect("it").name() == name
                {
                    return;
                }
            }
            assert!(
                self.stream.read_buf(&mut self.input).await.expect("bytes") > 0,
                "the end instead of {name}"
            );
        }
    }

    /// Sends signs of life and reads nothing, for many heartbeats.
    async fn only_live(&mut self) {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(u64::from(HEARTBEAT_SECONDS))).await;
            self.stream.write_all(&HEARTBEAT).await.expect("the server still reads");
        }
        assert!(!self.task.is_finished());
    }

    /// Waits for the end of the connection; the client says and reads nothing. Returns why, and after how many seconds.
    async fn end(self) -> (String, u64) {
        let since = Instant::now();
        let ended = timeout(Duration::from_secs(1000), self.task).await.expect("it is given up");
        let ended = ended.expect("no panic").expect_err("a reason");
        (ended.to_string(), since.elapsed().as_secs())
    }
}

fn work() -> ShortStr {
    ShortStr::from_static("work")
}

fn unacked(shared: &SharedState) -> usize {
    shared.with(|broker, _| {
        let vhost = broker.vhost_named("/").expect("a virtual host");
        broker.counts(broker.queue_named(vhost, &work()).expect("a queue")).unacked
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_log_in_is_given_up() {
    let mut client = Client::open(&shared());
    client.stream.write_all(&PROTOCOL_HEADER).await.expect("sent");
    let (why, seconds) = client.end().await;
    assert!(why.contains("did not log in"), "{why}");
    assert_eq!(seconds, HANDSHAKE_TIMEOUT.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_vanishes_is_given_up_after_two_heartbeats() {
    let shared = shared();
    let mut client = Client::connect(&shared).await;
    client.publish(b"x").await;
    client.send(1, basic::Get { queue: work(), ..Default::default() }).await;
    client.hear("basic.GetOk").await;
    assert_eq!(unacked(&shared), 1);
    let (why, seconds) = client.end().await;
    assert!(why.contains("missed heartbeats"), "{why}");
    assert_eq!(seconds, 2 * u64::from(HEARTBEAT_SECONDS));
    assert_eq!(unacked(&shared), 0, "what it had is given back");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_and_lives_is_kept() {
    let shared = shared();
    let mut client = Client::connect(&shared).await;
    client.publish(&[b'x'; 100_000]).await;
    client.send(1, basic::Consume { queue: work(), ..Default::default() }).await;
    client.only_live().await;
    client.hear("basic.Deliver").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_much_and_reads_nothing_is_given_up() {
    let shared = shared();
    let mut client = Client::connect(&shared).await;
    client.publish(&[b'x'; 1_000_000]).await;
    let asking = async {
        for _ in 0..300 {
            client.send(1, basic::Recover { requeue: true }).await;
            client.send(1, basic::Get { queue: work(), ..Default::default() }).await;
        }
    };
    timeout(Duration::from_secs(1), asking).await.expect_err("the server reads no more");
    let (why, seconds) = client.end().await;
    assert!(why.contains("reads nothing"), "{why}");
    assert!(seconds <= 4 * u64::from(HEARTBEAT_SECONDS), "{seconds}");
    assert_eq!(unacked(&shared), 0, "what it had is given back");
}
