//! Topics, forwarding, and messages that cannot be forwarded.

use super::*;
use crate::broker::rules::{Filter, Rule, SqlFilter};

fn forwarding(to: &str) -> Settings {
    Settings { forward_to: Some(to.into()), ..Settings::default() }
}

fn sql(text: &str) -> Rule {
    Rule::new("r", Filter::Sql(SqlFilter::new(text).expect("an expression")))
}

fn colored(id: &str, color: &str) -> Message {
    let mut message = message(id);
    message.application_properties.insert("color", color);
    message
}

#[test]
fn every_subscription_gets_what_its_rules_take() {
    let topic = Topic::new("t", Settings::default())
        .subscription("all", Settings::default())
        .subscription_with_rules("red", Settings::default(), vec![sql("color = 'red'")])
        .subscription_with_rules("none", Settings::default(), Vec::new());
    let mut bench = Bench::new(&Namespace::default().topic(topic));
    bench.send("t", colored("a", "red"));
    bench.send("t", colored("b", "blue"));
    assert_eq!(bench.ids("t/subscriptions/all"), ["a", "b"]);
    assert_eq!(bench.ids("t/Subscriptions/red"), ["a"]);
    assert_eq!(bench.ids("t/subscriptions/none"), Vec::<String>::new());
    let all = bench.take("t/subscriptions/all");
    bench.complete(&all).expect("locked");
    assert_eq!(bench.counts("t/subscriptions/red").active, 1, "each has its own copy");
    assert!(bench.broker.check_receiver(bench.id("t"), false).is_err());
    assert!(bench.try_send("t/subscriptions/all", message("c")).is_err());
}

#[test]
fn a_message_that_is_scheduled_to_a_topic_is_cancelled_there() {
    let topic = Topic::new("t", Settings::default()).subscription("s", Settings::default());
    let mut bench = Bench::new(&Namespace::default().topic(topic));
    let t = bench.id("t");
    let at = bench.now + seconds(10);
    let numbers = bench
        .broker
        .schedule(t, vec![scheduled("a", at).into(), scheduled("b", at).into()], bench.now)
        .expect("a topic");
    bench.broker.cancel(t, &numbers[..1], bench.now).expect("scheduled");
    bench.pass(seconds(10));
    assert_eq!(bench.ids("t/subscriptions/s"), ["b"]);
}

#[test]
fn a_rule_that_cannot_be_evaluated_dead_letters_or_does_not_match() {
    let rules = || vec![sql("1 / count = 1")];
    let quiet = Settings { dead_letter_on_filter_errors: false, ..Settings::default() };
    let topic = Topic::new("t", Settings::default())
        .subscription_with_rules("loud", Settings::default(), rules())
        .subscription_with_rules("quiet", quiet, rules());
    let mut bench = Bench::new(&Namespace::default().topic(topic));
    let mut broken = message("a");
    broken.application_properties.insert("count", 0i32);
    bench.send("t", broken);
    let dead = bench.take("t/subscriptions/loud/$deadletterqueue");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("FilterEvaluationException"));
    assert_eq!(bench.ids("t/subscriptions/quiet/$deadletterqueue"), Vec::<String>::new());
}

#[test]
fn a_subscription_that_requires_sessions_dead_letters_what_has_none() {
    let sessions = Settings { requires_session: true, ..Settings::default() };
    let topic = Topic::new("t", Settings::default()).subscription("s", sessions);
    let mut bench = Bench::new(&Namespace::default().topic(topic));
    bench.send("t", message("a"));
    let dead = bench.take("t/subscriptions/s/$deadletterqueue");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("Session ID is null"));
}

#[test]
fn rules_come_and_go() {
    let topic = Topic::new("t", Settings::default()).subscription("s", Settings::default());
    let mut bench = Bench::new(&Namespace::default().topic(topic).queue("q", Settings::default()));
    let (s, q) = (bench.id("t/subscriptions/s"), bench.id("q"));
    assert_eq!(bench.broker.remove_rule(s, "$default", bench.now), Ok(()));
    assert_eq!(bench.broker.add_rule(s, sql("color = 'red'"), bench.now), Ok(()));
    assert!(matches!(bench.broker.add_rule(s, sql("TRUE"), bench.now), Err(BrokerError::RuleExists { .. })));
    assert!(matches!(bench.broker.remove_rule(s, "x", bench.now), Err(BrokerError::RuleNotFound { .. })));
    assert!(bench.broker.rules(q).is_err());
    bench.send("t", colored("a", "red"));
    bench.send("t", colored("b", "blue"));
    assert_eq!(bench.ids("t/subscriptions/s"), ["a"]);
}

#[test]
fn a_forwarded_message_is_new_where_it_comes_to_and_knows_its_first_number() {
    let mut bench =
        Bench::new(&Namespace::default().queue("from", forwarding("to")).queue("to", Settings::default()));
    bench.send("to", message("other"));
    bench.send("to", message("other2"));
    bench.send("from", message("a"));
    let a = bench.broker.messages(bench.id("to")).last().expect("forwarded");
    assert_eq!((id_of(&a).as_str(), a.sequence_number, a.enqueued_sequence_number), ("a", 3, 1));
    assert!(bench.broker.check_receiver(bench.id("from"), false).is_err());
    assert!(bench.broker.check_receiver(bench.id("from/$deadletterqueue"), false).is_ok());
}

#[test]
fn a_scheduled_message_is_forwarded_when_it_becomes_active() {
    let mut bench =
        Bench::new(&Namespace::default().queue("from", forwarding("to")).queue("to", Settings::default()));
    bench.send("from", scheduled("a", bench.now + seconds(10)));
    assert_eq!(bench.ids("to"), Vec::<String>::new());
    bench.pass(seconds(10));
    assert_eq!(bench.ids("to"), ["a"]);
}

#[test]
fn what_cannot_be_forwarded_rests_in_the_transfer_dead_letter_queue() {
    let small = Settings { max_size: 10, ..Settings::default() };
    let mut bench = Bench::new(&Namespace::default().queue("from", forwarding("to")).queue("to", small));
    bench.send("from", message("a"));
    let dead = bench.take("from/$Transfer/$DeadLetterQueue");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("amqp:resource-limit-exceeded"));
}

#[test]
fn two_that_forward_to_each_other_end() {
    let mut bench = Bench::new(&Namespace::default().queue("a", forwarding("b")).queue("b", forwarding("a")));
    bench.send("a", message("m"));
    let everywhere: Vec<_> =
        ["a", "b"].iter().flat_map(|name| bench.ids(&format!("{name}/$transfer/$deadletterqueue"))).collect();
    assert_eq!(everywhere, ["m"]);
}

#[test]
fn dead_letters_are_handed_on_with_their_source() {
    let dead_letters = Settings {
        forward_dead_lettered_messages_to: Some("graveyard".into()),
        max_delivery_count: 1,
        ..Settings::default()
    };
    let mut bench =
        Bench::new(&Namespace::default().queue("q", dead_letters).queue("graveyard", Settings::default()));
    bench.send("q", message("a"));
    let a = bench.take("q");
    bench.settle(&a, &abandon()).expect("locked");
    assert_eq!(bench.ids("q/$deadletterqueue"), Vec::<String>::new());
    let dead = bench.take("graveyard");
    assert_eq!(text(&dead, "DeadLetterReason"), Some("MaxDeliveryCountExceeded"));
    assert_eq!(dead.delivery_count, 0);
    let source = dead.to_message().message_annotations.get("x-opt-deadletter-source").cloned();
    assert_eq!(source, Some(Value::from("q")));
}

#[test]
fn a_namespace_that_cannot_be_is_refused() {
    let sessions = Settings { requires_session: true, ..forwarding("b") };
    for (namespace, reason) in [
        (
            Namespace::default().queue("a", Settings::default()).queue("A", Settings::default()),
            "two of this name",
        ),
        (Namespace::default().queue("", Settings::default()), "empty"),
        (Namespace::default().queue("a", forwarding("b")), "no such queue"),
        (Namespace::default().queue("a", forwarding("a")), "itself"),
        (Namespace::default().queue("a", sessions).queue("b", Settings::default()), "RequiresSession"),
        (
            Namespace::default().queue("a", forwarding("b/$deadletterqueue")).queue("b", Settings::default()),
            "neither",
        ),
    ] {
        let error = Broker::new(&namespace, 0).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
}
