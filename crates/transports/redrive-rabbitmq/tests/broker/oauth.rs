//! Tokens that run out, on a node that takes them: the OAuth 2 plugin, and tokens that the test signs itself.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::common::{self, message, needs, next, publish};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, SigningKey as _};
use redrive_brokers::{Node, Version, own_node_with_files};
use redrive_contract::{Started, eventually};
use redrive_core::transport::Settlement;
use redrive_core::{Transport, TransportErrorKind};
use redrive_rabbitmq::{Connections, Credentials, QueueType, RabbitMq};
use tokio::sync::watch;

/// Who gives out tokens, and whose word the node believes.
#[derive(Clone)]
struct Issuer {
    key: Arc<KeyPair>,
    given: watch::Sender<u32>,
    /// How long a token is good. RabbitMQ tells times in whole seconds.
    life: Duration,
    /// How long it is said to be good, where that is said, so that it is renewed before. Less than it is: the machine may stand
    /// still when it is to be renewed.
    told: Option<Duration>,
}

impl Issuer {
    fn new(life: Duration, told: Option<Duration>) -> Self {
        // P-256, which JSON web tokens call ES256.
        let key = Arc::new(KeyPair::generate().expect("a key"));
        Self { key, given: watch::Sender::new(0), life, told }
    }

    /// A node that believes tokens, and knows guest besides.
    async fn node(&self, version: Version) -> Node {
        common::show_logs();
        let public = self.key.public_key_pem();
        let start = move || {
            let config = [
                "auth_backends.1 = rabbit_auth_backend_oauth2",
                "auth_backends.2 = internal",
                "auth_oauth2.resource_server_id = rabbitmq",
                "auth_oauth2.default_key = ours",
                "auth_oauth2.signing_keys.ours = {files}/public.pem",
            ];
            let plugins = ["rabbitmq_auth_backend_oauth2"];
            let node = own_node_with_files(version, &config, &plugins, &[("public.pem", &*public)]);
            // 3.10 remembers for this long what a token allowed; by default a minute.
            node.ctl(&["eval", "application:set_env(rabbit, channel_tick_interval, 2000)."]).expect("set");
            node
        };
        tokio::task::spawn_blocking(start).await.unwrap()
    }

    fn token(&self) -> String {
        let expires = SystemTime::UNIX_EPOCH.elapsed().expect("after 1970") + self.life;
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","typ":"JWT","kid":"ours"}"#);
        let claims = format!(
            r#"{{"sub":"consumer","client_id":"consumer","aud":["rabbitmq"],"exp":{},"scope":["rabbitmq.read:*/*","rabbitmq.write:*/*","rabbitmq.configure:*/*"]}}"#,
            expires.as_secs()
        );
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let signature = two_numbers(&self.key.sign(signed.as_bytes()).expect("signed"));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    async fn connections(&self, node: &Node) -> Connections {
        let issuer = self.clone();
        let provider = move || {
            let issuer = issuer.clone();
            async move {
                issuer.given.send_modify(|given| *given += 1);
                let token = Credentials::token(issuer.token());
                Ok(match issuer.told {
                    Some(life) => token.valid_for(life),
                    None => token,
                })
            }
        };
        Connections::options()
            .credentials(provider)
            .connect(&node.url())
            .await
            .expect("the token is believed")
    }

    async fn given(&self, times: u32) {
        let mut given = self.given.subscribe();
        given.wait_for(|given| *given >= times).await.expect("the issuer is there");
    }
}

/// A signature as JSON web tokens have it: two numbers of 32 bytes. Signed it comes as DER: a sequence of two integers, each
/// with a zero in front where it would look negative, and without its leading zeros.
fn two_numbers(der: &[u8]) -> [u8; 64] {
    let mut numbers = [0; 64];
    let mut rest = &der[2..];
    for place in [32, 64] {
        let (length, value) = (usize::from(rest[1]), &rest[2..]);
        let digits = &value[..length];
        let digits = &digits[digits.len().saturating_sub(32)..];
        numbers[place - digits.len()..place].copy_from_slice(digits);
        rest = &value[length..];
    }
    numbers
}

/// What a consumer at work saw.
struct Seen {
    /// The connections that there were at its start.
    connections: BTreeSet<String>,
    /// How many deliveries could not be settled.
    unsettled: u32,
}

/// A consumer at work, while `meanwhile` has what it waits for: messages come in all the time, and each of them is handled.
async fn at_work(node: &Node, connections: &Connections, meanwhile: impl Future<Output = ()>) -> Seen {
    let options = |queue: &str| {
        RabbitMq::options(queue).queue_type(QueueType::Classic).retry_queue_type(QueueType::Classic)
    };
    let consumer = options("tokens").connect_over(connections).await.expect("connected");
    let consumer = Started::open(consumer, &needs(&[100], 10)).await.expect("started");
    let mut seen = Seen { connections: consumers(node).await, unsettled: 0 };
    // As guest, whom no token troubles.
    let producer = options("tokens").connect(&node.url()).await.expect("connected");
    let (mut sent, mut handled) = (0_u32, HashSet::new());
    tokio::pin!(meanwhile);
    let mut over = false;
    while !over || sent <= 20 || handled.len() < sent as usize {
        tokio::select! {
            () = &mut meanwhile, if !over => over = true,
            () = tokio::time::sleep(Duration::from_millis(50)), if !over || sent <= 20 => {
                publish(&producer, message(format!("m{sent}"))).await;
                sent += 1;
            }
            hand = next(&consumer) => {
                let id = hand.delivery.id().to_owned();
                // Every third goes round once, so that both connections are at work.
                let number: u32 = id[1..].parse().expect("ours");
                let first_time = hand.delivery.attempt() == 1 && number.is_multiple_of(3);
                let settlement = if first_time {
                    common::retry(&consumer, &hand.delivery, Duration::from_millis(100))
                } else {
                    Settlement::Complete
                };
                let settled = consumer.settle(hand.receipt, settlement).await;
                match settled {
                    Ok(()) if !first_time => drop(handled.insert(id)),
                    Ok(()) => {}
                    // It is redelivered.
                    Err(error) => {
                        drop(error);
                        seen.unsettled += 1;
                    }
                }
            }
        }
    }
    consumer.close().await;
    producer.close().await;
    seen
}

async fn a_token_that_is_renewed_in_time_keeps_the_connection(version: Version) {
    let life = Duration::from_secs(20);
    let issuer = Issuer::new(life, Some(Duration::from_secs(8)));
    let node = issuer.node(version).await;
    let connections = issuer.connections(&node).await;
    // Consuming, publishing and asking; each of them is shown two more, and the first has run out, as 3.10 too has noticed.
    let run_out = tokio::time::sleep(life + Duration::from_secs(4));
    let seen = at_work(&node, &connections, async {
        issuer.given(9).await;
        run_out.await;
    })
    .await;
    assert_eq!(seen.connections.len(), 3, "{:?}", seen.connections);
    assert_eq!(consumers(&node).await, seen.connections, "a connection was made again");
    assert_eq!(seen.unsettled, 0, "something was refused meanwhile");
    connections.close().await;
}

async fn a_token_that_runs_out_is_followed_by_another(version: Version) {
    let life = Duration::from_secs(8);
    let issuer = Issuer::new(life, None);
    let node = issuer.node(version).await;
    let connections = issuer.connections(&node).await;
    // 4.3 ends the connections: twice over, for the two that are at work. 3.10 refuses what is published, and is shown
    // another token on the connection that is there.
    let tokens = if version == Version::V4_3 { 3 + 2 * 2 } else { 3 + 2 };
    let before = consumers(&node).await;
    at_work(&node, &connections, issuer.given(tokens)).await;
    let stay = if version == Version::V4_3 { 0 } else { before.len() };
    eventually("as many connections as there must be stayed", async || {
        consumers(&node).await.intersection(&before).count() == stay
    })
    .await;
    connections.close().await;
    // What the node does not believe is said, and the token is not.
    let forger = Issuer::new(life, None);
    let forged = forger.token();
    let options = Connections::options().credentials(move || {
        let token = Credentials::token(forged.clone());
        async move { Ok(token) }
    });
    let refused = options.connect(&node.url()).await.expect_err("signed by nobody known");
    assert_eq!(refused.kind(), TransportErrorKind::Unauthorized, "{refused}");
    assert!(!refused.to_string().contains("eyJ"), "{refused}");
}

/// The connections that were made with a token.
async fn consumers(node: &Node) -> BTreeSet<String> {
    let all = ctl(node, &["list_connections", "user", "pid"]).await;
    all.lines().filter(|line| line.starts_with("consumer")).map(str::to_owned).collect()
}

async fn ctl(node: &Node, arguments: &'static [&'static str]) -> String {
    node.aside(move |node| node.ctl(arguments)).await.expect("rabbitmqctl works")
}

macro_rules! on_own_nodes {
    ($($test:ident),+ $(,)?) => {
        mod own {
            mod v3_10 { on_own_nodes!(@version V3_10 $($test)+); }
            mod v4_3 { on_own_nodes!(@version V4_3 $($test)+); }
        }
    };
    (@version $version:ident $($test:ident)+) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::super::$test(redrive_brokers::Version::$version).await;
            }
        )+
    };
}

on_own_nodes!(
    a_token_that_is_renewed_in_time_keeps_the_connection,
    a_token_that_runs_out_is_followed_by_another,
);
