//! What a preflight finds at a broker that is set up wrongly: what the start would refuse, and nothing is changed. What only the
//! management API tells is in `management.rs`, on a node that has it; here a stand-in answers for it.

use crate::common::{self, ARRIVAL, Scene, text};
use redrive_consumer::{Consumer, Event, Runner};
use redrive_core::transport::{Needs, Severity};
use redrive_core::{DeadLetterBackoff, RetryPlan, Transport, TransportErrorKind, secs};
use redrive_rabbitmq::{Options, QueueType, RabbitMq, Topology};

crate::tests!(
    emulator:
    what_is_missing_and_will_be_declared_is_noted,
    what_is_missing_and_will_not_be_declared_is_refused,
    exchanges_of_others_that_are_missing_are_refused,
    limits_of_the_broker_are_compared_with_what_is_asked,
    without_the_management_api_it_says_what_it_did_not_see,
    a_broker_that_cannot_be_asked_is_an_error,
);

/// A bound of the layers that fits every broker here.
const POISON_AFTER: u32 = 5;

async fn what_is_missing_and_will_be_declared_is_noted(scene: Scene) {
    let plan = preflight(scene.options(), &scene).await;
    let note = said(&plan, Severity::Note);
    for queue in [&scene.queue, &scene.dead_letters(), &scene.parking(), &scene.rung(60_000)] {
        assert!(note.contains(&format!("`{queue}`")), "`{queue}` is not in {plan}");
        assert!(scene.find(queue).await.is_err(), "`{queue}` was declared");
    }
    assert!(plan.starts() && plan.asked);
    starts(scene.options(), &scene).await.expect("it declares them");
    let plan = preflight(scene.options(), &scene).await;
    assert!(plan.findings.iter().all(|finding| finding.severity != Severity::Note), "{plan}");
    scene.tidy_up(&common::needs(&[60_000], 1)).await;
}

async fn what_is_missing_and_will_not_be_declared_is_refused(scene: Scene) {
    for (topology, missing) in [
        (Topology::Verify, vec![scene.queue.clone(), scene.dead_letters(), scene.rung(60_000)]),
        (Topology::DeclareOwn, vec![scene.queue.clone()]),
    ] {
        let options = || scene.options().topology(topology);
        let plan = preflight(options(), &scene).await;
        let refused = said(&plan, Severity::Refused);
        for queue in missing {
            assert!(refused.contains(&format!("queue `{queue}` (durable, ")), "`{queue}` is not in {plan}");
        }
        let error = starts(options(), &scene).await.expect_err("the queue is missing");
        assert!(error.contains(&refused), "the start says: {error}, and the preflight: {refused}");
        assert!(scene.find(&scene.queue).await.is_err());
    }
    scene.tidy_up(&common::needs(&[60_000], 1)).await;
}

async fn exchanges_of_others_that_are_missing_are_refused(scene: Scene) {
    let (shop, dlx) = (format!("{}.shop", scene.queue), format!("{}.dlx", scene.queue));
    for options in [
        scene.options().bind(&shop, ["order.*"]),
        scene.options().argument("x-dead-letter-exchange", shop.as_str()),
        scene.options().topology(Topology::Verify).dead_letter_exchange(dlx.as_str()),
    ] {
        let refused = said(&preflight(options.clone(), &scene).await, Severity::Refused);
        assert!(refused.contains("exchange `") && refused.contains("have "), "{refused}");
        starts(options, &scene).await.expect_err("the exchange is missing");
    }
    scene.tidy_up(&common::needs(&[60_000], 1)).await;
}

async fn limits_of_the_broker_are_compared_with_what_is_asked(scene: Scene) {
    let slow = async |transport: RabbitMq| {
        let consumer =
            Consumer::new(transport).longest_handling(secs(60)).with_dead_letter_backoff([secs(60)]);
        consumer.handler(handled).preflight().await.expect("an answer")
    };
    if scene.queue_type == QueueType::Quorum {
        let options = || scene.options().delivery_limit(3);
        let plan = preflight(options(), &scene).await;
        assert!(said(&plan, Severity::Refused).contains("the broker takes it away itself at 4"), "{plan}");
        let error = starts(options(), &scene).await.expect_err("the broker is first");
        assert!(error.contains(&said(&plan, Severity::Refused)), "{error}");
        let plan = slow(connected(scene.options().consumer_timeout(secs(10)), &scene).await).await;
        assert!(
            said(&plan, Severity::Warning).contains("takes an unsettled delivery back after 10s"),
            "{plan}"
        );
    } else {
        let plan = slow(connected(scene.options(), &scene).await).await;
        assert!(said(&plan, Severity::Warning).contains("does not count how often"), "{plan}");
    }
    // The connection told what frames it takes.
    let plan = preflight(scene.options(), &scene).await;
    let headers = plan.limits.iter().find(|limit| limit.name == "all headers").expect("a limit");
    assert!(headers.allowed.is_some(), "{plan}");
}

async fn without_the_management_api_it_says_what_it_did_not_see(scene: Scene) {
    let other = if scene.queue_type == QueueType::Quorum { "classic" } else { "quorum" };
    scene.declare_raw(&scene.queue, &[("x-queue-type", text(other))]).await;
    let plan = preflight(scene.options(), &scene).await;
    let unchecked = said(&plan, Severity::Unchecked);
    assert!(plan.starts() && unchecked.contains("arguments of queues, policies"), "{plan}");
    assert!(unchecked.contains("`management`"), "{plan}");
    starts(scene.options(), &scene).await.expect_err("what it could not see is refused later");
    scene.tidy_up(&common::needs(&[60_000], 1)).await;
}

async fn a_broker_that_cannot_be_asked_is_an_error(scene: Scene) {
    let transport = connected(scene.options(), &scene).await;
    transport.close().await;
    let error = transport.preflight(&Needs::none()).await.expect_err("it is closed");
    assert_eq!(error.kind(), TransportErrorKind::Closed, "{error}");
}

async fn handled() {}

async fn connected(options: Options, scene: &Scene) -> RabbitMq {
    options.connect(&scene.url).await.expect("connected")
}

async fn consumer(options: Options, scene: &Scene) -> Runner<RabbitMq> {
    let preset = DeadLetterBackoff::new([secs(60)]).poison_after(POISON_AFTER);
    Consumer::new(connected(options, scene).await).with_dead_letter_backoff(preset).handler(handled)
}

async fn preflight(options: Options, scene: &Scene) -> RetryPlan {
    let plan =
        tokio::time::timeout(ARRIVAL, consumer(options, scene).await.preflight()).await.expect("in time");
    plan.expect("an answer")
}

/// Runs the consumer until it has started.
async fn starts(options: Options, scene: &Scene) -> Result<(), String> {
    let runner = consumer(options, scene).await;
    let handle = runner.handle();
    let stop = move |event: &Event<'_>| {
        if let Event::Started { .. } = event {
            handle.stop();
        }
    };
    let ended = tokio::time::timeout(ARRIVAL, runner.observer(stop).run()).await.expect("an end");
    ended.map(drop).map_err(|error| error.to_string())
}

/// The findings of this severity, of which there must be one.
fn said(plan: &RetryPlan, severity: Severity) -> String {
    let found = plan.findings.iter().filter(|finding| finding.severity == severity);
    let found: Vec<_> = found.map(|finding| finding.text.as_str()).collect();
    assert!(!found.is_empty(), "no finding is `{severity}`: {plan}");
    found.join("; ")
}

#[cfg(feature = "management")]
mod by_a_stand_in {
    //! The shared brokers have no management API. What RabbitMQ answers here was written down from its documentation and from
    //! the answers that `management.rs` gets.

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    crate::tests!(emulator: other_arguments_policies_and_permissions_are_found);

    pub(super) async fn other_arguments_policies_and_permissions_are_found(scene: Scene) {
        starts(scene.options(), &scene).await.expect("declared");
        let kind = if scene.queue_type == QueueType::Quorum { "quorum" } else { "classic" };
        let policy = |name: &str, pattern: &str, definition: Value| json!([{"name": name, "pattern": pattern, "apply-to": "all", "priority": 0, "definition": definition}]);
        let everything = json!({"configure": ".*", "write": ".*", "read": ".*"});
        let nothing = || json!([]);
        let shorter = policy("harm", &format!("^{}--retry", scene.queue), json!({"message-ttl": 1000}));
        let work = policy("ttl", &format!("^{}$", scene.queue), json!({"message-ttl": 2000}));
        let limited = json!({"configure": "^none$", "write": "^none$", "read": ".*"});
        for (arguments, policies, permissions, severity, part) in [
            (
                json!({"x-max-length": 7}),
                nothing(),
                &everything,
                Severity::Refused,
                "`x-max-length` is 7 and not set",
            ),
            (json!({}), shorter, &everything, Severity::Refused, "come back after 1s, by policy `harm`"),
            (
                json!({}),
                work,
                &everything,
                Severity::Warning,
                "within 2s are dead-lettered by the broker, by policy `ttl`",
            ),
            (json!({}), nothing(), &limited, Severity::Refused, "let user `guest` declare"),
        ] {
            let url = stand_in(&scene, kind, arguments, policies, permissions.clone()).await;
            let plan = preflight(scene.options().management(url), &scene).await;
            assert!(said(&plan, severity).contains(part), "`{part}` is not in {plan}");
            assert_eq!(plan.starts(), severity != Severity::Refused, "{plan}");
        }
        // Who declares nothing need not be allowed to; copies must be stored all the same.
        let url = stand_in(&scene, kind, json!({}), nothing(), limited).await;
        let plan = preflight(scene.options().topology(Topology::Verify).management(url), &scene).await;
        assert!(
            plan.starts() && said(&plan, Severity::Warning).contains("grant write on `amq.default`"),
            "{plan}"
        );
        let url = stand_in(&scene, kind, json!({}), nothing(), Value::Null).await;
        let plan = preflight(scene.options().management(url), &scene).await;
        assert!(said(&plan, Severity::Unchecked).contains("takes the tag `administrator`"), "{plan}");
        scene.tidy_up(&common::needs(&[60_000], 1)).await;
    }

    /// Answers as the API would if the work queue had these arguments beside its own, and guest these permissions; `Null`: it does
    /// not show them.
    async fn stand_in(scene: &Scene, kind: &str, more: Value, policies: Value, permissions: Value) -> String {
        let plan: Value = serde_json::from_str(
            &scene.options().topology_plan([secs(60)]).expect("a plan").definitions_json("/"),
        )
        .expect("JSON");
        let (kind, work) = (kind.to_owned(), scene.queue.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let answer = move |path: &str| -> Option<Value> {
            match path {
                path if path.starts_with("/api/policies/") => Some(policies.clone()),
                path if path.starts_with("/api/operator-policies/") => Some(json!([])),
                path if path.starts_with("/api/permissions/") => {
                    Some(permissions.clone()).filter(|shown| !shown.is_null())
                }
                path => {
                    let name = path.rsplit('/').next()?.replace("%2D", "-").replace("%5F", "_");
                    let mut queue =
                        plan["queues"].as_array()?.iter().find(|queue| queue["name"] == *name)?.clone();
                    if name == work {
                        queue["arguments"].as_object_mut()?.extend(more.as_object()?.clone());
                    }
                    queue["type"] = json!(kind);
                    // Delay queues are quorum queues for either.
                    if name.contains("--retry-") {
                        queue["type"] = json!("quorum");
                    }
                    Some(queue)
                }
            }
        };
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n")
                    && client.read_buf(&mut request).await.is_ok_and(|read| read > 0)
                {}
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match answer(path) {
                    Some(body) => ("200 OK", body.to_string()),
                    None => ("401 Unauthorized", "{}".to_owned()),
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                let _ = client.write_all(answer.as_bytes()).await;
            }
        });
        format!("http://{address}")
    }
}
