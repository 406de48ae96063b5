use serde_json::{Map, Value, json};

use super::*;
use crate::options::Options;

fn plan() -> std::sync::Arc<crate::topology::Plan> {
    Options::new("orders").plan().expect("a plan").into()
}

/// Builds the existing queue from the needed one: as declared, with a policy, and without some arguments.
fn found(needed: &Queue, policy: &Value, without: &[&str]) -> Found {
    let mut arguments = Map::new();
    for (name, value) in needed.arguments.iter().filter(|(name, _)| !without.contains(&name.as_str())) {
        let value = match value {
            AMQPValue::LongString(text) => json!(std::str::from_utf8(text.as_bytes()).unwrap()),
            AMQPValue::LongLongInt(number) => json!(number),
            other => panic!("{other:?}"),
        };
        arguments.insert(name.clone(), value);
    }
    Found::read(&json!({
        "type": "quorum", "arguments": arguments, "policy": "broad", "effective_policy_definition": policy,
    }))
}

fn rung() -> Queue {
    plan().rung(Duration::from_secs(60))
}

fn queue(index: usize) -> Queue {
    queue_of(&plan(), index)
}

fn queue_of(plan: &crate::topology::Plan, index: usize) -> Queue {
    let queue = |part| if let crate::topology::Part::Queue(queue) = part { Some(queue) } else { None };
    plan.parts().into_iter().filter_map(queue).nth(index).expect("a queue")
}

fn of_rung(policy: &Value, without: &[&str]) -> Vec<Finding> {
    audit(&rung(), Role::Delay, Said::default(), &found(&rung(), policy, without))
}

fn only_wrong(findings: &[Finding]) -> &str {
    let [Wrong(said)] = findings else { panic!("{findings:?}") };
    said
}

#[test]
fn what_redrive_declares_is_as_it_should_be() {
    for (index, role) in [(0, Role::Shelf), (1, Role::Shelf), (2, Role::Work)] {
        let needed = queue(index);
        assert_eq!(audit(&needed, role, Said::default(), &found(&needed, &json!({}), &[])), []);
    }
    assert_eq!(of_rung(&json!({}), &[]), []);
    assert_eq!(of_rung(&json!({"message-ttl": 90_000, "ha-mode": "all"}), &[]), [], "the lower one holds");
}

#[test]
fn a_policy_that_fills_in_another_way_back_is_wrong() {
    let staged = crate::Staged::back_to("shop").stage("wait", Duration::from_secs(30)).declared(true);
    let delay = crate::Delay::from(staged);
    let parts = delay.strategy(&plan(), &redrive_core::transport::Needs::none(), &[]).parts();
    let queue = |part| if let crate::topology::Part::Queue(queue) = part { Some(queue) } else { None };
    let stage = parts.into_iter().find_map(queue).expect("a stage");
    let audited = |policy| audit(&stage, Role::Delay, Said::default(), &found(&stage, &policy, &[]));
    assert_eq!(audited(json!({})), []);
    let findings = audited(json!({"dead-letter-routing-key": "elsewhere"}));
    assert!(only_wrong(&findings).contains("`elsewhere`, by policy `broad`"), "{findings:?}");
}

#[test]
fn a_policy_that_shortens_a_wait_is_wrong() {
    let findings = of_rung(&json!({"message-ttl": 1000}), &[]);
    let said = only_wrong(&findings);
    for part in ["orders--retry-60000ms", "1s", "1m", "policy `broad`"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_policy_that_deletes_a_queue_is_wrong() {
    assert!(only_wrong(&of_rung(&json!({"expires": 1000}), &[])).contains("with its messages"));
}

#[test]
fn a_limit_that_takes_messages_off_before_their_time_is_wrong_and_one_that_refuses_new_ones_is_not() {
    assert_eq!(of_rung(&json!({"max-length": 10}), &[]), [], "our own overflow refuses");
    let findings = of_rung(&json!({"max-length": 10}), &["x-overflow"]);
    assert!(only_wrong(&findings).contains("before their time"));
}

#[test]
fn a_delay_queue_must_lead_back_in_time() {
    assert!(only_wrong(&of_rung(&json!({}), &["x-message-ttl"])).contains("never comes back"));
    for missing in ["x-dead-letter-exchange", "x-dead-letter-routing-key"] {
        assert!(only_wrong(&of_rung(&json!({}), &[missing])).contains("would not come back"), "{missing}");
    }
    // A policy supplies what no argument sets.
    assert_eq!(of_rung(&json!({"dead-letter-routing-key": "orders"}), &["x-dead-letter-routing-key"]), []);
    let elsewhere = of_rung(&json!({"dead-letter-routing-key": "audit"}), &["x-dead-letter-routing-key"]);
    assert!(only_wrong(&elsewhere).contains("`audit`"));
}

#[test]
fn the_options_must_be_borne_out_by_the_work_queue() {
    let needed = queue(2);
    let there = found(&needed, &json!({}), &["x-dead-letter-exchange", "x-dead-letter-routing-key"]);
    let said = |native_dead_letter, delivery_limit| {
        audit(&needed, Role::Work, Said { native_dead_letter, delivery_limit }, &there)
    };
    assert!(matches!(&said(None, None)[..], [Doubtful(_)]));
    assert!(only_wrong(&said(Some(true), None)).contains("native_dead_letter"));
    let there = found(&needed, &json!({"delivery-limit": 5}), &[]);
    let said = Said { delivery_limit: Some(20), ..Said::default() };
    let findings = audit(&needed, Role::Work, said, &there);
    let said = only_wrong(&findings);
    assert!(
        said.contains("is 5 by policy `broad`, and the options say 20: say `delivery_limit(5)`, or take"),
        "{said}"
    );
    assert_eq!(there.delivery_limit(), Some(5));
}

#[test]
fn what_a_policy_sets_is_changed_there_and_an_argument_needs_another_queue() {
    let by_policy = of_rung(&json!({"message-ttl": 1000}), &[]);
    let said = only_wrong(&by_policy);
    assert!(said.ends_with("take `message-ttl` out of policy `broad`"), "{said}");
    let mut shorter = rung();
    shorter.arguments.insert("x-message-ttl".to_owned(), AMQPValue::LongLongInt(1000));
    let by_argument = audit(&rung(), Role::Delay, Said::default(), &found(&shorter, &json!({}), &[]));
    let said = only_wrong(&by_argument);
    assert!(
        said.ends_with("delete the queue once it is empty, and declare it with `x-message-ttl` 60000"),
        "{said}"
    );
    let expires = of_rung(&json!({"expires": 1000}), &[]);
    assert!(only_wrong(&expires).ends_with("unused for 1s: take `expires` out of policy `broad`"));
}

#[test]
fn dead_letters_that_reach_no_queue_are_led_to_the_shelf() {
    let needed = queue(2);
    let said = |exchange: &str, behind: Behind| {
        let without = ["x-dead-letter-exchange"];
        let there = found(&needed, &json!({"dead-letter-exchange": exchange}), &without);
        match dead_letters(&needed, "failed", Said::default(), &there, &behind) {
            Some(Doubtful(said)) => said,
            other => panic!("{other:?}"),
        }
    };
    for (exchange, behind, ends) in [
        (
            "",
            Behind::Queue(false),
            "the default exchange, and no queue `orders--dead-letters` exists. Declare that queue",
        ),
        (
            "dlx",
            Behind::Exchange(None),
            "no exchange `dlx` exists. Declare that exchange, and bind `failed` to it for the key `orders--dead-letters`",
        ),
        (
            "dlx",
            Behind::Exchange(Some(FoundExchange::default())),
            "no queue is bound to the exchange `dlx` for the key `orders--dead-letters`. Bind `failed` to it",
        ),
    ] {
        let said = said(exchange, behind);
        assert!(said.ends_with(ends), "{said}");
    }
}

#[test]
fn a_queue_of_another_type_is_named() {
    let mut there = found(&rung(), &json!({}), &[]);
    for (there_is, said) in [("classic", "retry_queue_type"), ("stream", "another name")] {
        there.queue_type = there_is.to_owned();
        assert!(only_wrong(&audit(&rung(), Role::Delay, Said::default(), &there)).contains(said));
    }
}

#[test]
fn what_happens_to_dead_letters_is_the_operators_to_know() {
    let needed = queue(0);
    let there = found(&needed, &json!({"message-ttl": 1000, "max-length": 5}), &[]);
    let findings = audit(&needed, Role::Shelf, Said::default(), &there);
    assert!(matches!(&findings[..], [Doubtful(_), Doubtful(_)]), "{findings:?}");
}

#[test]
fn an_answer_of_any_shape_is_read() {
    for odd in
        [json!(null), json!({"arguments": []}), json!({"arguments": {"x-message-ttl": "soon"}, "type": 5})]
    {
        let _ = audit(&rung(), Role::Delay, Said::default(), &Found::read(&odd));
    }
}

#[test]
fn a_work_queue_that_is_to_hold_messages_back_must_do_so() {
    let native = crate::delay::Native::between(Duration::from_secs(1), Duration::from_secs(9));
    let needed = queue_of(&Options::new("orders").delay(native).plan().expect("a plan"), 2);
    let audited = |policy, without: &[&str]| {
        audit(&needed, Role::Work, Said::default(), &found(&needed, &policy, without))
    };
    assert_eq!(audited(json!({}), &[]), []);
    let arguments = ["x-delayed-retry-min", "x-delayed-retry-max"];
    let by_policy = json!({"delayed-retry-min": 1000, "delayed-retry-max": 9000});
    assert_eq!(audited(by_policy, &arguments), []);
    assert!(
        only_wrong(&audited(json!({}), &arguments[..1])).contains("has nothing as its `delayed-retry-min`")
    );
    assert!(only_wrong(&audited(json!({"delayed-retry-max": 500}), &[])).contains("500ms"));
}
