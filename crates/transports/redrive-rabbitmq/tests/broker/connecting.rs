//! Several addresses, and credentials that change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{self, Scene, message, needs, next, publish_at_least_once, settles};
use redrive_brokers::{Node, Proxy, Turn, Version, node_in_turn};
use redrive_contract::{Started, eventually};
use redrive_core::transport::Settlement;
use redrive_core::{BoxError, Transport, TransportErrorKind};
use redrive_rabbitmq::{Credentials, Options, QueueType, RabbitMq};
use tokio::sync::Mutex;

crate::tests!(another_address_takes_over);

/// Two ways to the broker; which of them is open changes.
async fn another_address_takes_over(scene: Scene) {
    let address = scene.url.rsplit('@').next().unwrap().split('/').next().unwrap().to_owned();
    let upstream = address.parse().expect("an IP address and a port");
    let (first, second) = (Proxy::start(upstream).await.unwrap(), Proxy::start(upstream).await.unwrap());
    let through = |proxy: &Proxy| scene.url.replace(&address, &proxy.addr().to_string());
    let (close, open) = (
        |proxy: &Proxy| {
            proxy.refuse(true);
            proxy.cut();
        },
        |proxy: &Proxy| proxy.refuse(false),
    );
    let needs = needs(&[100], 10);

    // The first is not there at the start.
    close(&first);
    let urls = format!("{}, {}", through(&first), through(&second));
    let transport = scene.options().connect(&urls).await.expect("connected to the second");
    let transport = Started::open(transport, &needs).await.expect("started");
    for turn in 0..3 {
        let (closing, opening) = if turn % 2 == 0 { (&second, &first) } else { (&first, &second) };
        open(opening);
        close(closing);
        round(&transport, &format!("turn {turn}")).await;
    }
    transport.close().await;

    close(&first);
    close(&second);
    let options = scene.options().connect_timeout(Duration::from_secs(2));
    let error = options.connect_any([through(&first), through(&second)]).await.expect_err("none is open");
    assert_eq!(error.kind(), TransportErrorKind::Unreachable, "{error}");
    let said = error.to_string();
    for part in ["none of 2 addresses", &*first.addr().to_string(), &*second.addr().to_string()] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    scene.tidy_up(&needs).await;
}

/// RabbitMQ ends the connection without a word.
#[tokio::test]
async fn v4_3_a_frame_size_that_it_does_not_take_is_named() {
    let broker = common::rabbitmq(Version::V4_3).await;
    let url = broker.url.replace("frame_max=131072", "frame_max=4096");
    assert!(url.contains("frame_max=4096"), "{url}");
    let refused = RabbitMq::connect(&url, "orders").await.expect_err("it is too small").to_string();
    assert!(refused.contains("frame_max=4096") && refused.contains("8192 at least"), "{refused}");
}

/// What a vault is to a service: it knows the password of now, and counts how often it was asked.
#[derive(Clone)]
struct Vault {
    password: Arc<Mutex<String>>,
    asked: Arc<AtomicU32>,
    valid_for: Option<Duration>,
}

impl Vault {
    fn with(password: &str, valid_for: Option<Duration>) -> Self {
        Self { password: Arc::new(Mutex::new(password.to_owned())), asked: Arc::default(), valid_for }
    }

    fn options(&self, queue: &str) -> Options {
        let vault = self.clone();
        RabbitMq::options(queue).credentials(move || {
            let vault = vault.clone();
            async move { vault.answer().await }
        })
    }

    async fn answer(&self) -> Result<Credentials, BoxError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let credentials = Credentials::password("rotating", self.password.lock().await.clone());
        Ok(match self.valid_for {
            Some(time) => credentials.valid_for(time),
            None => credentials,
        })
    }

    async fn asked_again(&self, times: u32) {
        let before = self.asked.load(Ordering::SeqCst);
        let asked_again = async || self.asked.load(Ordering::SeqCst) >= before + times;
        eventually("the credentials are asked for again", asked_again).await;
    }
}

async fn node_with_user(version: Version) -> Turn {
    let node = node_in_turn(version).await;
    ctl(&node, &["add_user", "rotating", "first"]).await;
    ctl(&node, &["set_permissions", "rotating", ".*", ".*", ".*"]).await;
    node
}

async fn ctl(node: &Node, arguments: &'static [&'static str]) -> String {
    node.aside(move |node| node.ctl(arguments)).await.expect("rabbitmqctl works")
}

/// One message there and back. A connection that is cut just then leaves open whether the message was stored: it is
/// published again, as a producer would, and may come twice. What came over the old connection just before it ended is lost,
/// and is redelivered.
async fn round(transport: &Started<RabbitMq>, id: &str) {
    publish_at_least_once(transport, message(id)).await;
    loop {
        let hand = next(transport).await;
        let arrived = hand.delivery.id() == id;
        if settles(transport, hand.receipt, Settlement::Complete).await && arrived {
            return;
        }
    }
}

async fn a_password_that_changes_is_asked_for_anew(version: Version) {
    common::show_logs();
    let node = node_with_user(version).await;
    let needs = needs(&[100], 10);
    let vault = Vault::with("first", None);
    let wrong = Vault::with("wrong-s3cret", None);
    let refused = wrong.options("rotation").connect(&node.url()).await.expect_err("refused");
    assert_eq!(refused.kind(), TransportErrorKind::Unauthorized, "{refused}");
    let said = refused.to_string();
    assert!(said.contains("credentials provider") && !said.contains("s3cret"), "{said}");

    // The URL says guest: the provider counts.
    let transport = vault
        .options("rotation")
        .queue_type(QueueType::Classic)
        .connect(&node.url())
        .await
        .expect("connected");
    let transport = Started::open(transport, &needs).await.expect("started");
    round(&transport, "before").await;
    let users = ctl(&node, &["list_connections", "user"]).await;
    assert!(users.contains("rotating") && !users.contains("guest"), "{users}");

    ctl(&node, &["change_password", "rotating", "second"]).await;
    *vault.password.lock().await = "second".to_owned();
    ctl(&node, &["close_all_user_connections", "rotating", "rotated"]).await;
    round(&transport, "after").await;
    transport.close().await;
    ctl(&node, &["delete_user", "rotating"]).await;
    node.pass_on();
}

async fn a_secret_is_renewed_on_the_connection_that_is_there(version: Version) {
    common::show_logs();
    let node = node_with_user(version).await;
    let vault = Vault::with("first", Some(Duration::from_secs(1)));
    let transport = vault
        .options("renewal")
        .queue_type(QueueType::Classic)
        .connect(&node.url())
        .await
        .expect("connected");
    let transport = Started::open(transport, &needs(&[100], 10)).await.expect("started");
    round(&transport, "before").await;
    let before = connections(&node).await;
    assert_eq!(before.len(), 2, "{before:?}");
    // Two connections, each of them twice: the answer to the first was taken when the second is asked for.
    vault.asked_again(4).await;
    round(&transport, "after").await;
    // Had the broker refused the new secret, it would have ended the connection.
    assert_eq!(connections(&node).await, before);
    transport.close().await;
    ctl(&node, &["delete_user", "rotating"]).await;
    node.pass_on();
}

/// Those of the user whose password rotates.
async fn connections(node: &Node) -> BTreeSet<String> {
    let all = ctl(node, &["list_connections", "pid", "user"]).await;
    all.lines().filter(|line| line.contains("rotating")).map(str::to_owned).collect()
}

macro_rules! on_own_nodes {
    ($($test:ident),+) => {
        mod v3_10 { $( on_own_nodes!(@test $test V3_10); )+ }
        mod v4_3 { $( on_own_nodes!(@test $test V4_3); )+ }
    };
    (@test $test:ident $version:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::super::$test(redrive_brokers::Version::$version).await;
        }
    };
}

mod own {
    on_own_nodes!(
        a_password_that_changes_is_asked_for_anew,
        a_secret_is_renewed_on_the_connection_that_is_there
    );
}
