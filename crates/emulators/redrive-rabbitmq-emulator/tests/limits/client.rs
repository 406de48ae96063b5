//! A client that sends frames as it likes.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::BytesMut;
use redrive_amqp091::{
    Basic, Channel, Connection, ContentHeader, Frame, FrameKind, Method, PROTOCOL_HEADER, Properties,
    ShortStr, Table, basic, channel, confirm, connection, queue, write_content,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const FRAME_MAX: u32 = 131_072;
/// Only a server that is broken needs this long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    input: BytesMut,
    output: BytesMut,
}

/// What the server says.
#[derive(Debug)]
pub(crate) enum Said {
    Method(Method),
    /// A delivery tag (0: a returned message), and a body.
    Message(u64, Vec<u8>),
    /// The server has ended the connection.
    End,
}

impl Client {
    /// Logs in, and opens channel 1.
    pub(crate) async fn connect(stream: TcpStream, heartbeat: u16) -> Self {
        Self::try_connect(stream, heartbeat).await.expect("a connection")
    }

    /// Returns the reason if the server closes the connection instead.
    pub(crate) async fn try_connect(stream: TcpStream, heartbeat: u16) -> Result<Self, String> {
        let mut client = Self { stream, input: BytesMut::new(), output: BytesMut::new() };
        client.output.extend_from_slice(&PROTOCOL_HEADER);
        client.flush().await;
        client.said("connection.Start").await;
        let start = connection::StartOk {
            mechanism: short("PLAIN"),
            response: "\0guest\0guest".into(),
            locale: short("en_US"),
            ..Default::default()
        };
        client.add_on(0, start);
        client.flush().await;
        client.said("connection.Tune").await;
        client.add_on(0, connection::TuneOk { channel_max: 10, frame_max: FRAME_MAX, heartbeat });
        let virtual_host = short("/");
        client.add_on(0, connection::Open { virtual_host, ..Default::default() });
        client.flush().await;
        if let Said::Method(Method::Connection(Connection::Close(close))) = client.next().await {
            return Err(format!("{} {}", close.reply_code, close.reply_text));
        }
        client.call(channel::Open::default(), "channel.OpenOk").await;
        Ok(client)
    }

    /// Adds a method to what is sent next.
    pub(crate) fn add(&mut self, method: impl Into<Method>) {
        self.add_on(1, method);
    }

    fn add_on(&mut self, channel: u16, method: impl Into<Method>) {
        method.into().write_frame(channel, &mut self.output);
    }

    /// Adds a persistent message.
    pub(crate) fn add_publish(&mut self, queue: &str, body: &[u8]) {
        self.add(basic::Publish { routing_key: short(queue), ..Default::default() });
        let properties = Properties { delivery_mode: Some(2), ..Properties::default() };
        write_content(1, &properties.encode(), body, FRAME_MAX as usize, &mut self.output);
    }

    /// Sends what was added.
    pub(crate) async fn flush(&mut self) {
        self.stream.write_all_buf(&mut self.output).await.expect("sent");
    }

    /// Sends a method, and waits for the response of this name.
    pub(crate) async fn call(&mut self, method: impl Into<Method>, response: &str) -> Method {
        self.add(method);
        self.flush().await;
        self.said(response).await
    }

    pub(crate) async fn declare(&mut self, name: &str, arguments: &Table) {
        self.call(declaration(name, arguments), "queue.DeclareOk").await;
    }

    pub(crate) async fn consume(&mut self, name: &str, prefetch_count: u16) {
        self.call(basic::Qos { prefetch_count, ..Default::default() }, "basic.QosOk").await;
        self.call(basic::Consume { queue: short(name), ..Default::default() }, "basic.ConsumeOk").await;
    }

    pub(crate) async fn confirms(&mut self) {
        self.call(confirm::Select { no_wait: false }, "confirm.SelectOk").await;
    }

    /// Publishes, and waits for the confirm. Returns the reason if the server closes the connection instead.
    pub(crate) async fn publish(&mut self, queue: &str, body: &[u8]) -> Result<(), String> {
        self.add_publish(queue, body);
        self.flush().await;
        loop {
            match self.next().await {
                Said::Method(Method::Basic(Basic::Ack(_))) => return Ok(()),
                Said::Method(Method::Connection(Connection::Close(close))) => {
                    return Err(format!("{} {}", close.reply_code, close.reply_text));
                }
                Said::End => return Err("the connection ended".to_owned()),
                _ => {}
            }
        }
    }

    /// Returns the next message.
    pub(crate) async fn message(&mut self) -> (u64, Vec<u8>) {
        loop {
            match self.next().await {
                Said::Message(tag, body) => return (tag, body),
                Said::Method(Method::Basic(Basic::Cancel(_)) | Method::Connection(Connection::Close(_)))
                | Said::End => panic!("no message"),
                Said::Method(_) => {}
            }
        }
    }

    /// Returns the next method of this name; anything else must not end the connection.
    pub(crate) async fn said(&mut self, name: &str) -> Method {
        loop {
            match self.next().await {
                Said::Method(method) if method.name() == name => return method,
                Said::Method(
                    method @ (Method::Connection(Connection::Close(_)) | Method::Channel(Channel::Close(_))),
                ) => {
                    panic!("{method:?} instead of {name}")
                }
                Said::End => panic!("the end instead of {name}"),
                _ => {}
            }
        }
    }

    pub(crate) async fn next(&mut self) -> Said {
        let mut content: Option<(u64, u64, Vec<u8>)> = None;
        loop {
            let Some(frame) = self.frame().await else { return Said::End };
            match (frame.kind, &mut content) {
                (FrameKind::Method, _) => match Method::decode(&frame.payload).expect("a method") {
                    Method::Basic(Basic::Deliver(deliver)) => {
                        content = Some((deliver.delivery_tag, 0, Vec::new()));
                    }
                    Method::Basic(Basic::GetOk(ok)) => content = Some((ok.delivery_tag, 0, Vec::new())),
                    Method::Basic(Basic::Return(_)) => content = Some((0, 0, Vec::new())),
                    method => return Said::Method(method),
                },
                (FrameKind::Header, Some((_, size, _))) => {
                    *size = ContentHeader::decode(&frame.payload).expect("a header").body_size;
                }
                (FrameKind::Body, Some((_, _, body))) => body.extend_from_slice(&frame.payload),
                _ => {}
            }
            if let Some((tag, _, body)) = content
                .take_if(|(_, size, body)| frame.kind != FrameKind::Method && body.len() as u64 == *size)
            {
                return Said::Message(tag, body);
            }
        }
    }

    async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Frame::take(&mut self.input, FRAME_MAX as usize).expect("a frame") {
                return Some(frame);
            }
            let read = timeout(TEST_TIMEOUT, self.stream.read_buf(&mut self.input)).await;
            match read.expect("the server says something") {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub(crate) fn declaration(name: &str, arguments: &Table) -> queue::Declare {
    queue::Declare { queue: short(name), durable: true, arguments: arguments.encode(), ..Default::default() }
}

pub(crate) fn short(text: &str) -> ShortStr {
    ShortStr::try_from(text).expect("a short text")
}
