//! Queues that are there, and policies on them, compared with what is needed.

use crate::common::{self, Scene, needs};
use base64::Engine as _;
use redrive_brokers::{Node, Proxy, Version, own_node_with_plugins};
use redrive_contract::Started;
use redrive_core::transport::{Needs, OpenError, Outline, Severity, Signals};
use redrive_core::{Transport, TransportErrorKind};
use redrive_rabbitmq::{Options, QueueType, RabbitMq, Topology};

mod v3_10 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn queues_and_policies_are_compared_with_what_is_needed() {
        super::queues_and_policies_are_compared_with_what_is_needed(redrive_brokers::Version::V3_10).await;
    }
}

mod v4_3 {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn queues_and_policies_are_compared_with_what_is_needed() {
        super::queues_and_policies_are_compared_with_what_is_needed(redrive_brokers::Version::V4_3).await;
    }
}

/// One node for all cases: it takes seconds to start.
async fn queues_and_policies_are_compared_with_what_is_needed(version: Version) {
    common::show_logs();
    let start = move || own_node_with_plugins(version, &[], &["rabbitmq_management"]);
    let node = tokio::task::spawn_blocking(start).await.unwrap();
    for queue_type in [QueueType::Quorum, QueueType::Classic] {
        let case = Case { node: &node, queue_type };
        case.what_redrive_declared_is_right().await;
        case.policies_that_harm_are_named().await;
        case.queues_of_others_are_looked_at().await;
        case.a_queue_that_is_replaced_later_is_noticed().await;
        case.what_the_plan_says_is_what_redrive_needs().await;
        case.dead_letters_that_lead_nowhere_are_named().await;
        case.other_arguments_are_found_before_they_are_declared().await;
        case.permissions_that_are_missing_are_named().await;
    }
    an_api_that_does_not_answer_is_no_reason_not_to_start(&node).await;
}

struct Case<'a> {
    node: &'a Node,
    queue_type: QueueType,
}

impl Case<'_> {
    fn queue(&self, what: &str) -> String {
        format!("{what}-{:?}", self.queue_type)
    }

    fn options(&self, queue: &str, topology: Topology) -> Options {
        RabbitMq::options(queue)
            .queue_type(self.queue_type)
            .topology(topology)
            .management(self.node.management_url())
    }

    async fn what_redrive_declared_is_right(&self) {
        let queue = self.queue("right");
        for topology in [Topology::Declare, Topology::Verify] {
            started(self.options(&queue, topology), self.node, &waits()).await.expect("nothing is wrong");
        }
    }

    async fn policies_that_harm_are_named(&self) {
        let queue = self.queue("policies");
        started(self.options(&queue, Topology::Declare), self.node, &waits()).await.expect("declared");
        // Measured: the lower one of argument and policy holds, and a message comes back too early.
        let pattern = format!("^{queue}--retry");
        for (definition, part) in [
            (r#"{"message-ttl":1000}"#, "come back after 1s"),
            (r#"{"expires":86400000}"#, "with its messages"),
        ] {
            let set = ["set_policy", "--apply-to", "queues", "harm", &pattern, definition].map(str::to_owned);
            ctl(self.node, set).await;
            for topology in [Topology::Declare, Topology::Verify] {
                let error = started(self.options(&queue, topology), self.node, &waits()).await;
                let error = error.expect_err("it harms");
                assert_eq!(error.kind(), TransportErrorKind::Topology, "{error}");
                let said = error.to_string();
                for part in [part, "policy `harm`", "--retry-60000ms"] {
                    assert!(said.contains(part), "`{part}` is not in: {said}");
                }
            }
            ctl(self.node, ["clear_policy", "harm"].map(str::to_owned)).await;
        }
    }

    async fn queues_of_others_are_looked_at(&self) {
        let queue = self.queue("adopted");
        started(self.options(&queue, Topology::Declare), self.node, &waits()).await.expect("declared");
        // Said to be of the other type.
        let other = match self.queue_type {
            QueueType::Classic => QueueType::Quorum,
            _ => QueueType::Classic,
        };
        let options = self.options(&queue, Topology::Verify).queue_type(other);
        let error = started(options, self.node, &waits()).await.expect_err("the type is wrong");
        assert!(error.to_string().contains("`queue_type`"), "{error}");
        if self.queue_type == QueueType::Quorum {
            // Its limit is 20, which a passive declaration cannot tell.
            let mut needs = waits();
            needs.deliveries = Some(20);
            started(self.options(&queue, Topology::Verify), self.node, &needs)
                .await
                .expect("below the limit");
            needs.deliveries = Some(21);
            let error = started(self.options(&queue, Topology::Verify), self.node, &needs).await;
            let error = error.expect_err("the broker is first");
            assert_eq!(error.kind(), TransportErrorKind::Unsupported, "{error}");
            let said_too_much = self.options(&queue, Topology::Verify).delivery_limit(50);
            let error = started(said_too_much, self.node, &waits()).await.expect_err("it is 20");
            assert!(error.to_string().contains("is 20 by its arguments, and the options say 50"), "{error}");
        }
    }

    /// Imported by somebody else, it is verified without a word, and is what redrive itself would declare.
    async fn what_the_plan_says_is_what_redrive_needs(&self) {
        let ladder = self.options(&self.queue("planned"), Topology::Verify).argument("x-max-length", 7_i64);
        let single_queue =
            self.options(&self.queue("planned-single"), Topology::Verify).with_durable_dead_letter_backoff();
        let tutorial = self
            .options(&self.queue("planned-tutorial"), Topology::Verify)
            .dead_letter_exchange(self.queue("tutorial.dlx"))
            .dead_letter_queue(self.queue("tutorial.dlq"))
            .native_dead_letter(true)
            .bind("amq.topic", ["order.*"]);
        for options in [ladder, single_queue, tutorial] {
            let plan = options.topology_plan(waits().waits).expect("a plan");
            let error = started(options.clone(), self.node, &waits()).await.expect_err("nothing is there");
            for line in plan.to_string().lines().filter(|line| !line.starts_with("binding")) {
                assert!(error.to_string().contains(line), "`{line}` is not in: {error}");
            }
            import(self.node, plan.definitions_json("/")).await;
            for topology in [Topology::Verify, Topology::Declare] {
                started(options.clone().topology(topology), self.node, &waits())
                    .await
                    .expect("as it must be");
            }
        }
    }

    /// The work queue of somebody else, whose dead letters are lost.
    async fn dead_letters_that_lead_nowhere_are_named(&self) {
        let queue = self.queue("nowhere");
        let scene = Scene::new(&self.node.url(), "nowhere", self.queue_type).await;
        let queue_type = if self.queue_type == QueueType::Quorum { "quorum" } else { "classic" };
        let [dlx, dlq] = ["dlx", "dlq"].map(|name| format!("{queue}.{name}"));
        let arguments = [
            ("x-queue-type", common::text(queue_type)),
            ("x-dead-letter-exchange", common::text(&dlx)),
            ("x-dead-letter-routing-key", common::text("orders")),
        ];
        scene.declare_raw(&queue, &arguments).await;
        let options =
            || self.options(&queue, Topology::DeclareOwn).dead_letter_queue(&dlq).native_dead_letter(true);
        let refused = async || started(options(), self.node, &waits()).await.expect_err("lost").to_string();
        let said = refused().await;
        assert!(said.contains(&format!("no exchange `{dlx}` exists")), "{said}");
        common::exchange(&scene, &dlx, lapin::ExchangeKind::Direct).await;
        common::bind(&scene, &dlq, &dlx, "bills").await;
        let said = refused().await;
        assert!(
            said.contains(&format!("no queue is bound to the exchange `{dlx}` for the key `orders`")),
            "{said}"
        );
        // Who does not rely on it is only warned.
        started(options().native_dead_letter(false), self.node, &waits()).await.expect("started");
        common::bind(&scene, &dlq, &dlx, "orders").await;
        started(options(), self.node, &waits()).await.expect("it leads somewhere");
        let unbound = options().topology(Topology::Verify).bind(&dlx, ["orders"]);
        let said = started(unbound, self.node, &waits()).await.expect_err("not bound").to_string();
        assert!(said.contains(&format!("`{queue}` is not bound to the exchange `{dlx}`")), "{said}");
    }

    /// The list of arguments that RabbitMQ compares is redrive's own.
    async fn other_arguments_are_found_before_they_are_declared(&self) {
        let scene = Scene::new(&self.node.url(), "arguments", self.queue_type).await;
        let queue = self.queue("arguments");
        let name = if self.queue_type == QueueType::Quorum { "quorum" } else { "classic" };
        let number = lapin::types::AMQPValue::LongInt;
        for (argument, value) in
            [("x-max-length", number(7)), ("x-message-ttl", number(9)), ("x-expires", number(90_000))]
        {
            scene.declare_raw(&queue, &[("x-queue-type", common::text(name)), (argument, value)]).await;
            let error = started(self.options(&queue, Topology::Declare), self.node, &waits()).await;
            let said = error.expect_err("it is another queue").to_string();
            assert!(said.contains("PRECONDITION_FAILED"), "{said}");
            let outline =
                preflight(self.options(&queue, Topology::Declare), &self.node.url(), &waits()).await;
            assert!(refused(&outline).contains(&format!("`{argument}` is ")), "{outline:?}");
            scene.delete(&queue).await;
        }
    }

    async fn permissions_that_are_missing_are_named(&self) {
        let queue = self.queue("permissions");
        ctl(self.node, ["add_user", &queue, "secret"].map(str::to_owned)).await;
        let url = self.node.url().replace("guest:guest@", &format!("{queue}:secret@"));
        let guests = self.node.management_url();
        for (permissions, missing) in [
            (["^none$", "^none$", "^none$"], "grant configure on"),
            (["^none$", ".*", ".*"], "grant configure on"),
            ([".*", "^none$", ".*"], "grant write on `amq.default`"),
            ([".*", ".*", "^none$"], "grant read on"),
            ([&*format!("^{queue}"), "^amq.default$", &*format!("^{queue}")], ""),
        ] {
            let [configure, write, read] = permissions;
            ctl(self.node, ["set_permissions", &queue, configure, write, read].map(str::to_owned)).await;
            let options = self.options(&queue, Topology::Declare).management(guests.clone());
            let outline = preflight(options.clone(), &url, &waits()).await;
            assert!(refused(&outline).contains(missing), "`{missing}` is not in {outline:?}");
            assert_eq!(refused(&outline).is_empty(), missing.is_empty(), "{outline:?}");
            // One by AMQP, which may answer for each queue, and one by the API.
            let refusals = outline.findings.iter().filter(|finding| finding.severity == Severity::Refused);
            assert!(refusals.count() <= 2, "not one for each queue: {outline:?}");
            assert!(!format!("{outline:?}").contains("secret"), "{outline:?}");
            let transport = options.connect(&url).await.expect("connected");
            let opened = transport.open(&waits(), Signals::ignored()).await.map(drop);
            assert_eq!(opened.is_ok(), missing.is_empty(), "{opened:?}");
            transport.close().await;
        }
        ctl(self.node, ["delete_user".to_owned(), queue]).await;
    }

    /// Passively declared, it is there as before.
    async fn a_queue_that_is_replaced_later_is_noticed(&self) {
        let queue = self.queue("replaced");
        started(self.options(&queue, Topology::Declare), self.node, &waits()).await.expect("declared");
        let address = common::address(&self.node.url());
        let proxy = Proxy::start(address).await.expect("a proxy");
        let url = self.node.url().replace(&address.to_string(), &proxy.addr().to_string());
        let transport = self.options(&queue, Topology::Verify).connect(&url).await.expect("connected");
        let transport = Started::open(transport, &waits()).await.expect("started");
        proxy.refuse(true);
        proxy.cut();
        let scene = Scene::new(&self.node.url(), "replaced", self.queue_type).await;
        scene.delete(&queue).await;
        let other = if self.queue_type == QueueType::Quorum { "classic" } else { "quorum" };
        scene.declare_raw(&queue, &[("x-queue-type", common::text(other))]).await;
        proxy.refuse(false);
        let refused = transport.disconnected_by(TransportErrorKind::Topology);
        let error = tokio::time::timeout(common::ARRIVAL, refused).await.expect("it is another queue");
        assert!(error.to_string().contains(&format!("is a {other} queue")), "{error}");
        transport.close().await;
    }
}

async fn an_api_that_does_not_answer_is_no_reason_not_to_start(node: &Node) {
    let wrong_password = node.management_url().replace("guest:guest@", "guest:wrong-s3cret@");
    // Taken, so that nobody else comes to listen there; and not listened on.
    let taken = tokio::net::TcpSocket::new_v4().unwrap();
    taken.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = taken.local_addr().unwrap().port();
    for url in [wrong_password, format!("http://127.0.0.1:{port}")] {
        let options = RabbitMq::options("unasked").queue_type(QueueType::Classic).management(url);
        started(options, node, &waits()).await.expect("it is only not compared");
    }
    let refused = RabbitMq::options("unasked").management("ftp://somewhere").connect(&node.url()).await;
    assert_eq!(refused.expect_err("no URL of it").kind(), TransportErrorKind::Unsupported);
}

fn waits() -> Needs {
    needs(&[60_000], 4)
}

async fn started(options: Options, node: &Node, needs: &Needs) -> Result<(), OpenError> {
    let outline = preflight(options.clone(), &node.url(), needs).await;
    let transport = options.connect(&node.url()).await.expect("connected");
    let started = tokio::time::timeout(common::ARRIVAL, transport.open(needs, Signals::ignored()))
        .await
        .expect("an answer");
    let unmet = needs.unmet(transport.queue(), &outline.facts);
    transport.close().await;
    let foreseen = refused(&outline).is_empty() && unmet.is_empty();
    assert_eq!(foreseen, started.is_ok(), "{outline:?}, {unmet:?}, and the start: {:?}", started.err());
    started.map(drop)
}

/// What is found before the start; each start of these tests must come to the same.
async fn preflight(options: Options, url: &str, needs: &Needs) -> Outline {
    let transport = options.connect(url).await.expect("connected");
    let outline = transport.preflight(needs).await.expect("an answer");
    transport.close().await;
    outline
}

fn refused(outline: &Outline) -> String {
    let refused = outline.findings.iter().filter(|finding| finding.severity == Severity::Refused);
    refused.map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; ")
}

async fn import(node: &Node, definitions: String) {
    let url = format!("{}/api/definitions", node.management_url().replace("guest:guest@", ""));
    let guest = format!("Basic {}", base64::engine::general_purpose::STANDARD.encode("guest:guest"));
    let post = move || {
        ureq::post(url).header("authorization", guest).content_type("application/json").send(definitions)
    };
    tokio::task::spawn_blocking(post).await.unwrap().expect("imported");
}

async fn ctl<const N: usize>(node: &Node, arguments: [String; N]) {
    let run = move |node: &Node| node.ctl(&arguments.each_ref().map(String::as_str));
    node.aside(run).await.expect("rabbitmqctl works");
}
