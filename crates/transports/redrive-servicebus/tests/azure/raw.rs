//! A client of the protocol that does not use redrive.

use std::sync::Arc;
use std::time::Duration;

use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::sasl_profile::SaslProfile;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{Controller, Transaction, TransactionPosting as _};
use fe2o3_amqp::{Connection, Delivery, Receiver, Sendable, Sender, Session, connection::ConnectionHandle};
use fe2o3_amqp_types::messaging::{
    AmqpValue, ApplicationProperties, Body, Message, MessageId, Properties, Source, Target,
};
use fe2o3_amqp_types::primitives::{Array, OrderedMap, SimpleValue, Value};
use fe2o3_amqp_types::transaction::Coordinator;
use redrive_core::BoxError;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use crate::namespace::{Namespace, Place};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

type Got = Delivery<Body<Value>>;

/// A connection to a queue, with all links that the tests need.
pub(crate) struct Raw {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) controller: Controller,
    management: Node,
    session: SessionHandle<()>,
    connection: ConnectionHandle<()>,
}

/// A node that answers requests.
struct Node {
    requests: Sender,
    replies: Receiver,
    reply_to: String,
    last: u64,
}

impl Raw {
    pub(crate) async fn connect(place: &Place) -> Result<Self, BoxError> {
        let Place { name, namespace, .. } = place;
        let mut connection = open(namespace).await?;
        let mut session = Session::begin(&mut connection).await?;
        let mut cbs = Node::attach(&mut session, "$cbs").await?;
        let audience = format!("sb://{}/{name}", namespace.host);
        let said = [("type", "servicebus.windows.net:sastoken"), ("name", &*audience)];
        let put = cbs.ask("put-token", &said, Value::String(namespace.token("sb", name)), None).await?;
        assert!((200..300).contains(&put), "the token is refused: {put}");
        let management = Node::attach(&mut session, &format!("{name}/$management")).await?;
        let sender = Sender::attach(&mut session, "sender", name.as_str()).await?;
        let receiver = Receiver::builder().name("receiver").source(name.as_str());
        let mut receiver = receiver.credit_mode(CreditMode::Manual).attach(&mut session).await?;
        receiver.set_credit(10).await?;
        let controller = Controller::builder().name("controller").coordinator(Coordinator::default());
        let controller = controller.verify_incoming_target(false).attach(&mut session).await?;
        Ok(Self { sender, receiver, controller, management, session, connection })
    }

    pub(crate) async fn send(&mut self, text: &str) -> Result<(), BoxError> {
        self.sender
            .send(message(text))
            .await?
            .accepted_or_else(|outcome| format!("not stored: {outcome:?}"))?;
        Ok(())
    }

    pub(crate) async fn next(&mut self) -> Result<Got, BoxError> {
        Ok(timeout(TIMEOUT, self.receiver.recv()).await??)
    }

    /// Returns true if no message arrives for a while. A shorter time can only hide a fault.
    pub(crate) async fn is_empty(&mut self) -> bool {
        timeout(Duration::from_secs(2), self.receiver.recv::<Body<Value>>()).await.is_err()
    }

    /// Completes a delivery by request, and returns the status.
    pub(crate) async fn complete(
        &mut self,
        delivery: &Got,
        transaction: Option<&Transaction<'_>>,
    ) -> Result<i32, BoxError> {
        complete(&mut self.management, delivery, transaction).await
    }

    /// Sends a copy and completes a delivery in one transaction, and commits it whatever the answers are. Returns the status of
    /// the completion and the result of the commit.
    pub(crate) async fn replace(
        &mut self,
        delivery: &Got,
        copy: &str,
    ) -> Result<(i32, Result<(), String>), BoxError> {
        let mut transaction = Transaction::declare(&self.controller, None).await?;
        transaction.set_rollback_on_drop_trials(0);
        let sendable = Sendable::builder().message(message(copy)).build();
        let stored = transaction.post_batchable(&mut self.sender, sendable).await?;
        let status = complete(&mut self.management, delivery, Some(&transaction)).await?;
        timeout(TIMEOUT, stored).await??;
        let committed = fe2o3_amqp::transaction::TransactionDischarge::commit(transaction);
        let committed = timeout(TIMEOUT, committed).await?;
        Ok((status, committed.map_err(|error| error.to_string())))
    }

    pub(crate) async fn close(mut self) {
        let _ = self.session.end().await;
        let _ = self.connection.close().await;
    }
}

impl Node {
    async fn attach(session: &mut SessionHandle<()>, node: &str) -> Result<Self, BoxError> {
        let reply_to = format!("replies-{}", node.replace(['/', '$'], "-"));
        let replies = Receiver::builder()
            .name(reply_to.clone())
            .source(Source::builder().address(node).build())
            .target(Target::builder().address(reply_to.clone()).build())
            .credit_mode(CreditMode::Auto(100))
            .auto_accept(true);
        let replies = replies.verify_incoming_target(false).attach(session).await?;
        let requests = Sender::builder()
            .name(format!("requests-{reply_to}"))
            .source(Source::builder().address(reply_to.clone()).build())
            .target(Target::builder().address(node).build());
        let requests = requests.verify_incoming_source(false).attach(session).await?;
        Ok(Self { requests, replies, reply_to, last: 0 })
    }

    /// Sends a request, and returns the status of the reply.
    async fn ask(
        &mut self,
        operation: &str,
        said: &[(&str, &str)],
        body: Value,
        transaction: Option<&Transaction<'_>>,
    ) -> Result<i32, BoxError> {
        self.last += 1;
        let mut properties = OrderedMap::new();
        for (name, value) in [("operation", operation)].iter().chain(said) {
            properties.insert((*name).to_owned(), SimpleValue::String((*value).to_owned()));
        }
        let mut message = Message::from(Body::Value(AmqpValue(body)));
        message.properties = Some(Properties {
            message_id: Some(MessageId::Ulong(self.last)),
            reply_to: Some(self.reply_to.clone()),
            ..Properties::default()
        });
        message.application_properties = Some(ApplicationProperties(properties));
        let sendable = Sendable::builder().message(message).build();
        match transaction {
            None => drop(self.requests.send_batchable(sendable).await?),
            Some(transaction) => drop(transaction.post_batchable(&mut self.requests, sendable).await?),
        }
        let reply: Got = timeout(TIMEOUT, self.replies.recv()).await??;
        let properties = reply.into_message().application_properties.ok_or("a reply without a status")?.0;
        match ["statusCode", "status-code"].into_iter().find_map(|name| properties.get(name)) {
            Some(SimpleValue::Int(status)) => Ok(*status),
            other => Err(format!("a reply whose status is {other:?}").into()),
        }
    }
}

async fn open(namespace: &Namespace) -> Result<ConnectionHandle<()>, BoxError> {
    let tcp = TcpStream::connect((&*namespace.host, namespace.port)).await?;
    let opening = Connection::builder()
        .container_id("questions")
        .hostname(&*namespace.host)
        .scheme("amqp")
        .idle_time_out(60_000_u32)
        .sasl_profile(SaslProfile::Anonymous);
    if !namespace.on_azure {
        return Ok(opening.open_with_stream(tcp).await?);
    }
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(namespace.host.clone())?;
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await?;
    Ok(opening.open_with_stream(tls).await?)
}

async fn complete(
    management: &mut Node,
    delivery: &Got,
    transaction: Option<&Transaction<'_>>,
) -> Result<i32, BoxError> {
    // Links use the byte order of .NET, and requests use the usual one.
    let tag: [u8; 16] = delivery.delivery_tag().as_ref().try_into()?;
    let token = fe2o3_amqp_types::primitives::Uuid::from(Uuid::from_bytes_le(tag).into_bytes());
    let mut body = OrderedMap::new();
    body.insert(Value::from("disposition-status".to_owned()), Value::from("completed".to_owned()));
    body.insert(Value::from("lock-tokens".to_owned()), Value::Array(Array(vec![Value::Uuid(token)])));
    management.ask("com.microsoft:update-disposition", &[], Value::Map(body), transaction).await
}

fn message(text: &str) -> Message<AmqpValue<Value>> {
    Message::builder().value(Value::from(text.to_owned())).build()
}

pub(crate) fn text(delivery: &Got) -> String {
    match delivery.body() {
        Body::Value(AmqpValue(Value::String(text))) => text.clone(),
        other => format!("{other:?}"),
    }
}
