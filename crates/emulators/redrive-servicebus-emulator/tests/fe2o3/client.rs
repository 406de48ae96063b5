//! A thin client on fe2o3-amqp: what the tests say to the emulator, in few words.

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::link::{ReceiverAttachError, SenderAttachError};
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::{Connection, Delivery, Receiver, Sender, Session};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Body, Data, Message, MessageId, Outcome, Properties, Source, Target,
};
use fe2o3_amqp_types::primitives::{Array, Binary, OrderedMap, SimpleValue, Uuid, Value};
use redrive_servicebus_emulator::Emulator;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// How long something may take that is expected to come: it only tells a machine that stands still from one that hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How long nothing must come where nothing is expected.
const QUIET: Duration = Duration::from_millis(300);

pub(crate) type Received = Delivery<Body<Value>>;

/// One connection with one session.
pub(crate) struct Client {
    pub(crate) connection: ConnectionHandle<()>,
    pub(crate) session: SessionHandle<()>,
    links: u32,
}

impl Client {
    pub(crate) async fn connect(emulator: &Emulator) -> Self {
        Self::connect_with_frames_of(emulator, 65_536).await
    }

    pub(crate) async fn connect_with_frames_of(emulator: &Emulator, bytes: u32) -> Self {
        Self::open(&emulator.address().to_string(), bytes).await
    }

    pub(crate) async fn connect_to(address: &str) -> Self {
        Self::open(address, 65_536).await
    }

    async fn open(address: &str, bytes: u32) -> Self {
        let stream = tokio::net::TcpStream::connect(address).await.expect("somebody listens");
        Self::open_on(stream, bytes).await
    }

    /// On a stream of the test's own: within TLS, or WebSockets.
    pub(crate) async fn connect_on<S>(stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin + 'static,
    {
        Self::open_on(stream, 65_536).await
    }

    async fn open_on<S>(stream: S, bytes: u32) -> Self
    where
        S: AsyncRead + AsyncWrite + std::fmt::Debug + Send + Unpin + 'static,
    {
        let opening = Connection::builder()
            .container_id("fe2o3")
            .hostname("localhost")
            .scheme("amqp")
            .max_frame_size(bytes)
            .idle_time_out(30_000u32)
            .sasl_profile(SaslProfile::Anonymous)
            .open_with_stream(stream);
        let mut connection = opening.await.expect("a connection");
        let session = Session::begin(&mut connection).await.expect("a session");
        Self { connection, session, links: 0 }
    }

    /// Goes on in another session; the links of this one end. Needed after a refused attach: this client detaches the refused
    /// link twice, and the second time it hits the next link that has its handle.
    pub(crate) async fn go_on_in_another_session(&mut self) {
        self.session = Session::begin(&mut self.connection).await.expect("another session");
    }

    pub(crate) async fn sender(&mut self, entity: &str) -> Sender {
        self.try_sender(entity).await.expect("a sender")
    }

    pub(crate) async fn try_sender(&mut self, entity: &str) -> Result<Sender, SenderAttachError> {
        let name = self.link_name("sender");
        Sender::attach(&mut self.session, name, entity).await
    }

    pub(crate) async fn receiver(&mut self, entity: &str, credit: u32) -> Receiver {
        self.try_receiver(entity, credit).await.expect("a receiver")
    }

    pub(crate) async fn try_receiver(
        &mut self,
        source: impl Into<Source>,
        credit: u32,
    ) -> Result<Receiver, ReceiverAttachError> {
        let name = self.link_name("receiver");
        let builder = Receiver::builder().name(name).source(source).credit_mode(CreditMode::Manual);
        let mut receiver = builder.attach(&mut self.session).await?;
        if credit > 0 {
            receiver.set_credit(credit).await.expect("the link is open");
        }
        Ok(receiver)
    }

    /// Sends each text as a message of its own; all must be accepted.
    pub(crate) async fn send(&mut self, entity: &str, texts: &[&str]) {
        let mut sender = self.sender(entity).await;
        for text in texts {
            let outcome = sender.send(message(text)).await.expect("an outcome");
            assert!(matches!(outcome, Outcome::Accepted(_)), "{text}: {outcome:?}");
        }
        sender.close().await.expect("the link closes");
    }

    pub(crate) fn link_name(&mut self, of: &str) -> String {
        self.links += 1;
        format!("{of}-{}", self.links)
    }
}

/// Requests to a management node, and their replies.
pub(crate) struct Requests {
    pub(crate) sender: Sender,
    replies: Receiver,
    address: String,
    last: u64,
}

/// What a request was answered with.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: i32,
    pub(crate) condition: Option<String>,
    pub(crate) body: Value,
}

impl Requests {
    pub(crate) async fn open(client: &mut Client, node: &str) -> Self {
        let address = client.link_name("replies");
        let sender = client.sender(node).await;
        let replies = Receiver::builder()
            .name(address.clone())
            .source(node)
            .target(Target::from(address.as_str()))
            .credit_mode(CreditMode::Manual)
            .attach(&mut client.session);
        let mut replies = replies.await.expect("a link for replies");
        replies.set_credit(100).await.expect("the link is open");
        Self { sender, replies, address, last: 0 }
    }

    /// Asks, and waits for the reply to this very request.
    pub(crate) async fn ask(&mut self, operation: &str, body: Vec<(&str, Value)>) -> Reply {
        let (request, id) = self.request(operation, body);
        let outcome = self.sender.send(request).await.expect("an outcome");
        assert!(matches!(outcome, Outcome::Accepted(_)), "{operation}: {outcome:?}");
        self.reply(id).await
    }

    /// Shows a token for an entity; for the node `$cbs`.
    pub(crate) async fn put_token(&mut self, audience: &str, token: &str) -> Reply {
        let (properties, id) = self.properties();
        let asked = ApplicationProperties::builder()
            .insert("operation", "put-token")
            .insert("type", "servicebus.windows.net:sastoken")
            .insert("name", audience);
        let request = Message::builder().properties(properties).application_properties(asked.build());
        self.sender.send(request.value(Value::from(token.to_owned())).build()).await.expect("an outcome");
        self.reply(id).await
    }

    /// A request, not sent yet, and its id.
    pub(crate) fn request(
        &mut self,
        operation: &str,
        body: Vec<(&str, Value)>,
    ) -> (Message<AmqpValue<Value>>, MessageId) {
        let (properties, id) = self.properties();
        let asked = ApplicationProperties::builder().insert("operation", operation).build();
        let body: OrderedMap<Value, Value> =
            body.into_iter().map(|(key, value)| (Value::from(key.to_owned()), value)).collect();
        let request = Message::builder().properties(properties).application_properties(asked);
        (request.value(Value::Map(body)).build(), id)
    }

    fn properties(&mut self) -> (Properties, MessageId) {
        self.last += 1;
        let id = MessageId::Ulong(self.last);
        (Properties::builder().message_id(id.clone()).reply_to(self.address.clone()).build(), id)
    }

    pub(crate) async fn reply(&mut self, id: MessageId) -> Reply {
        let delivery: Delivery<Body<Value>> = tokio::time::timeout(TEST_TIMEOUT, self.replies.recv())
            .await
            .expect("a reply")
            .expect("a message");
        self.replies.accept(&delivery).await.expect("the link is open");
        let message = delivery.into_message();
        let correlation = message.properties.and_then(|properties| properties.correlation_id);
        assert_eq!(correlation, Some(id), "the reply is to this request, and its id has kept its type");
        let properties = message.application_properties.expect("a reply has a status").0;
        let status = ["statusCode", "status-code"].into_iter().find_map(|name| properties.get(name));
        let Some(SimpleValue::Int(status)) = status else { panic!("no status in {properties:?}") };
        let condition = properties.get("errorCondition").map(|condition| match condition {
            SimpleValue::Symbol(symbol) => symbol.0.clone(),
            other => panic!("the error condition is not a symbol but {other:?}"),
        });
        let body = match message.body {
            Body::Value(AmqpValue(value)) => value,
            _ => Value::Null,
        };
        Reply { status: *status, condition, body }
    }
}

impl Reply {
    /// A value of the body's map.
    pub(crate) fn value(&self, key: &str) -> &Value {
        let Value::Map(map) = &self.body else { panic!("the body is not a map but {:?}", self.body) };
        map.get(&Value::from(key.to_owned())).unwrap_or_else(|| panic!("no {key} in {map:?}"))
    }
}

pub(crate) fn message(text: &str) -> Message<Data> {
    Message::builder().data(Binary::from(text.as_bytes().to_vec())).build()
}

/// A message with this id: duplicate detection and lists of scheduled messages want one.
pub(crate) fn message_with_id(id: &str, text: &str) -> Message<Data> {
    let properties = Properties::builder().message_id(id.to_owned()).build();
    Message::builder().properties(properties).data(Binary::from(text.as_bytes().to_vec())).build()
}

pub(crate) async fn one(receiver: &mut Receiver) -> Received {
    tokio::time::timeout(TEST_TIMEOUT, receiver.recv()).await.expect("a message comes").expect("a delivery")
}

pub(crate) async fn many(receiver: &mut Receiver, count: usize) -> Vec<Received> {
    let mut deliveries = Vec::new();
    while deliveries.len() < count {
        deliveries.push(one(receiver).await);
    }
    deliveries
}

pub(crate) async fn nothing(receiver: &mut Receiver) {
    let came = tokio::time::timeout(QUIET, receiver.recv::<Body<Value>>()).await;
    assert!(came.is_err(), "something came: {came:?}");
}

pub(crate) fn text(delivery: &Received) -> String {
    let Body::Data(data) = delivery.body() else { panic!("no data in {delivery:?}") };
    data.iter().map(|data| String::from_utf8_lossy(&data.0).into_owned()).collect()
}

pub(crate) fn texts(deliveries: &[Received]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

pub(crate) fn delivery_count(delivery: &Received) -> u32 {
    delivery.message().header.as_ref().expect("a header").delivery_count
}

/// The delivery tag is the lock token, in .NET's order of bytes.
pub(crate) fn lock_token(delivery: &Received) -> Uuid {
    let tag: [u8; 16] = delivery.delivery_tag().as_ref().try_into().expect("a tag is a lock token");
    Uuid::from(uuid::Uuid::from_bytes_le(tag).into_bytes())
}

pub(crate) fn tokens(deliveries: &[Received]) -> Value {
    Value::Array(Array(deliveries.iter().map(|delivery| Value::Uuid(lock_token(delivery))).collect()))
}

/// Waits until the emulator has it so: a settlement on a link is not confirmed to this client.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(std::time::Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
