//! What a consumer says about itself before it runs.
#![allow(missing_docs)]

use redrive_consumer::{Consumer, Handler, Router, Runner, UnknownKey};
use redrive_core::plan::{Amount, Case, Course, Span};
use redrive_core::transport::{
    Facts, Finding, InPlace, Needs, Outline, Rest, Settlement, Severity, Unconnected,
};
use redrive_core::{
    BoxError, DeadLetterBackoff, Delivery, Disposition, Expired, Exponential, Failure, Fixed, Jitter,
    Message, NoRetry, Outcome, RetryPlan, RetryPolicy, millis, secs, stage,
};

async fn fails() -> Result<(), BoxError> {
    Err("no".into())
}

fn on(facts: Facts) -> Consumer<Unconnected> {
    Consumer::new(Unconnected::new("orders", move |_: &Needs| Outline::new(facts.clone())))
}

fn plan(preset: impl redrive_core::IntoDeadLetterBackoff) -> RetryPlan {
    on(Facts::new("test")).with_dead_letter_backoff(preset).handler(fails).explain()
}

fn course(plan: &RetryPlan, case: Case) -> &Course {
    let course = plan.routes[0].courses.iter().find(|course| course.cases.contains(&case));
    course.unwrap_or_else(|| panic!("{case:?} is not in {plan}"))
}

fn end(plan: &RetryPlan, case: Case) -> (&'static str, &str) {
    let step = course(plan, case).steps.last().unwrap();
    (step.decision, step.reason.as_deref().unwrap_or_default())
}

#[test]
fn each_attempt_waits_as_its_policy_says_and_the_last_ends_on_the_shelf() {
    let plan = plan(Exponential::from(secs(1)).attempts(4));
    let transient = course(&plan, Case::Transient);
    let waits: Vec<_> = transient.steps.iter().map(|step| step.wait.map(|wait| wait.most)).collect();
    assert_eq!(waits, [Some(secs(1)), Some(secs(2)), Some(secs(4)), None]);
    let begins: Vec<_> = transient.steps.iter().map(|step| step.begins_after.most.as_secs()).collect();
    assert_eq!(begins, [0, 1, 3, 7]);
    assert_eq!(end(&plan, Case::Transient), ("dead-letter", "MaxDeliveryCountExceeded"));
    assert!(transient.ends && transient.longest() == secs(7));
}

#[test]
fn each_way_to_fail_has_its_end() {
    let plan =
        plan(DeadLetterBackoff::new([secs(1)]).poison_after(4).park_after_redrives(2).park_exhausted());
    assert_eq!(end(&plan, Case::Transient), ("park", "MaxDeliveryCountExceeded"));
    assert_eq!(course(&plan, Case::Transient).cases, [Case::Transient, Case::Throttled, Case::Panic]);
    assert_eq!(course(&plan, Case::Permanent).cases, [Case::Permanent, Case::Rejected]);
    assert_eq!(end(&plan, Case::Permanent), ("dead-letter", "NonRetryableError"));
    assert_eq!(end(&plan, Case::Expired), ("dead-letter", "Expired"));
    assert_eq!(end(&plan, Case::Redriven(2)), ("park", "NonRetryableError"));
    assert_eq!(end(&plan, Case::Poison(5)), ("dead-letter", "PoisonMessage"));
    // Without a bound none is invented; a panic and a throttled error may have a way of their own.
    let other = DeadLetterBackoff::new([secs(1)])
        .panics(redrive_core::ErrorClass::Permanent)
        .throttled([secs(5), secs(5)]);
    let other = self::plan(other.expired(Expired::Discard));
    assert_eq!(course(&other, Case::Throttled).longest(), secs(10));
    assert_eq!(end(&other, Case::Panic), ("dead-letter", "NonRetryableError"));
    assert_eq!(end(&other, Case::Expired), ("discard", "Expired"));
}

#[test]
fn without_layers_nothing_is_retried() {
    let plan = on(Facts::new("test")).handler(fails).explain();
    assert_eq!(plan.routes[0].courses.len(), 1);
    assert_eq!(end(&plan, Case::Panic), ("dead-letter", "Undecided"));
    assert!(plan.findings.is_empty(), "{plan}");
}

#[test]
fn a_classifier_of_the_service_is_not_asked_about_errors_that_never_happened() {
    let strict = DeadLetterBackoff::new([secs(1)])
        .classifier(|_: &(dyn std::error::Error + 'static)| redrive_core::ErrorClass::Permanent);
    assert_eq!(course(&plan(strict), Case::Transient).steps.len(), 2);
}

#[test]
fn chance_is_shown_by_its_ends_and_never_leaves_them() {
    for (jitter, least) in [(Jitter::Full, [0, 0]), (Jitter::Equal, [500, 1000])] {
        let policy = Exponential::from(secs(1)).attempts(3).jitter(jitter);
        let plan = plan(policy);
        let steps = &course(&plan, Case::Transient).steps;
        for (step, (least, most)) in steps.iter().zip([(least[0], 1000), (least[1], 2000)]) {
            assert_eq!(step.wait, Some(Span { least: millis(least), most: millis(most) }));
        }
        assert_eq!(steps[2].begins_after, Span { least: millis(least.iter().sum()), most: secs(3) });
        for id in 0..100 {
            let delivery =
                Delivery::new(Message::new("").with_id(id.to_string()), "orders", std::time::UNIX_EPOCH);
            let wait = policy.next_retry(&delivery).unwrap();
            assert!(millis(least[0]) <= wait && wait <= secs(1));
        }
    }
    // With a deadline chance also decides how many attempts there are.
    let plan = plan(Fixed::from(secs(10)).attempts(9).deadline(secs(30)).jitter(Jitter::Equal));
    assert_eq!(course(&plan, Case::Transient).steps.len(), 7, "{plan}");
}

#[test]
fn retries_without_end_are_cut_and_said() {
    let plan = plan(|_attempt: u32| Some(secs(10)));
    let transient = course(&plan, Case::Transient);
    assert!(!transient.ends);
    assert_eq!(transient.steps.len(), Course::MOST_STEPS as usize);
    let text = plan.to_string();
    assert!(text.contains("without end") && text.contains("… 989 more …"), "{text}");
    assert!(plan.to_mermaid().contains("and so on, without end"));
}

#[test]
fn a_broker_that_retries_in_place_takes_its_own_time_and_counts_its_deliveries() {
    let mut facts = Facts::new("test");
    facts.delays.in_place = Some(InPlace::Linear { shortest: secs(3), longest: secs(60) });
    facts.limits.deliveries = Some(6);
    let plan = on(facts).with_dead_letter_backoff([secs(1), secs(1), secs(60)]).handler(fails).explain();
    let begins: Vec<_> =
        course(&plan, Case::Transient).steps.iter().map(|step| step.begins_after.most.as_secs()).collect();
    // 3 and 6 s by the broker, 60 s by a copy.
    assert_eq!(begins, [0, 3, 9, 69]);
    assert_eq!(plan.limits[1].name, "attempts of one copy");
    // The death of a process counts as a failure: the fifth delivery comes after the four attempts that are allowed.
    assert_eq!(end(&plan, Case::Poison(5)), ("dead-letter", "MaxDeliveryCountExceeded"));
}

#[test]
fn a_place_that_holds_longer_counts_as_long_as_it_holds() {
    let outline = Outline::new(Facts::new("test")).resting(|settlement| match settlement {
        Settlement::Reschedule { .. } => Rest::at("slow").held_for(secs(5)).by(["publish", "ack"]),
        _ => Rest::at("shelf").by(["publish", "ack"]),
    });
    let outline = outline.with(Finding::note("it is slow"));
    let transport = Unconnected::new("orders", move |_: &Needs| outline.clone());
    let plan = Consumer::new(transport).with_dead_letter_backoff([secs(1), secs(2)]).handler(fails).explain();
    let transient = course(&plan, Case::Transient);
    assert_eq!((transient.longest(), transient.operations()), (secs(10), 6));
    assert_eq!(plan.findings, [Finding::note("it is slow")]);
    assert!(plan.starts());
}

#[test]
fn a_wait_of_several_hops_rests_as_often() {
    let mut facts = Facts::new("test");
    facts.delays.hop_durations = Some(vec![secs(10)]);
    let plan = on(facts).with_dead_letter_backoff([secs(35)]).handler(fails).explain();
    let step = &course(&plan, Case::Transient).steps[0];
    assert_eq!(step.rests.iter().map(|rest| rest.times).sum::<u32>(), 4, "{plan}");
    assert_eq!(course(&plan, Case::Transient).longest(), secs(35));
}

#[test]
fn what_the_broker_cannot_honour_is_a_finding() {
    let mut facts = Facts::new("test");
    facts.limits.deliveries = Some(5);
    facts.limits.hold = Some(secs(60));
    let preset = DeadLetterBackoff::new([secs(1)]).poison_after(9);
    let consumer =
        on(facts).longest_handling(secs(45)).concurrency(1).prefetch(2).with_dead_letter_backoff(preset);
    let plan = consumer.handler(fails).explain();
    assert!(!plan.starts());
    let severities: Vec<_> = plan.findings.iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Refused, Severity::Warning], "{plan}");
    let hold = plan.limits.iter().find(|limit| limit.name == "time until settled").unwrap();
    assert_eq!((hold.asked, hold.allowed), (Some(Amount::Time(secs(90))), Some(Amount::Time(secs(60)))));
}

#[test]
fn routes_with_stages_of_their_own_are_shown_apart() {
    let refund = fails.with_dead_letter_backoff([secs(60)]);
    let router = Router::by_kind()
        .route("placed", fails)
        .route("cancelled", refund)
        .unknown(UnknownKey::Park)
        .unwrap();
    let consumer = on(Facts::new("test")).with_dead_letter_backoff([secs(1), secs(2)]);
    let plan = consumer.handler(router).explain();
    let shown: Vec<_> =
        plan.routes.iter().map(|route| (route.route.as_str(), route.courses[0].longest())).collect();
    assert_eq!(shown, [("kind `cancelled`", secs(60)), ("kind `placed`", secs(3))]);
    assert!(plan.to_string().contains("# Messages with kind `cancelled`"));
}

#[test]
fn stages_of_the_service_decide_and_see_the_message_that_is_explained() {
    let only_ours = stage::admit(|delivery: &Delivery| match delivery.message().headers().get("tenant") {
        Some(_) => std::ops::ControlFlow::Continue(()),
        None => std::ops::ControlFlow::Break(Disposition::Park(Failure::custom("WrongTenant", "not ours"))),
    });
    let runner: Runner<Unconnected> =
        on(Facts::new("test")).stage(only_ours).with_dead_letter_backoff([secs(1)]).handler(fails);
    assert_eq!(end(&runner.explain(), Case::Transient), ("park", "WrongTenant"));
    let ours = runner.explain_message(&Message::new("").with_header("tenant", "us"));
    assert_eq!(course(&ours, Case::Transient).steps.len(), 2);
}

#[test]
fn a_stage_that_panics_is_undecided_as_it_is_when_it_runs() {
    let panics = stage::resolve(|_: &Delivery, _: Outcome| -> Outcome { panic!("as the test wants it") });
    let plan = on(Facts::new("test")).stage(panics).handler(fails).explain();
    assert_eq!(end(&plan, Case::Transient), ("dead-letter", "Undecided"));
}

#[test]
fn layers_that_are_no_stages_are_said_to_be_left_out() {
    let layer = redrive_consumer::RateLimit::new(10, secs(1));
    let plan = on(Facts::new("test")).layer(layer).with_dead_letter_backoff(NoRetry).handler(fails).explain();
    let [finding] = &plan.findings[..] else { panic!("not one: {plan}") };
    assert!(finding.text.starts_with("1 tower layer is not in this plan"), "{finding:?}");
    assert!(!finding.text.contains("  "), "a gap in the sentence: {finding:?}");
}

#[test]
fn headers_are_measured_at_their_largest() {
    let asked = |attempts, budget| {
        let consumer = on(Facts::new("test")).header_budget(budget);
        let plan = consumer
            .with_dead_letter_backoff(Fixed::from(secs(1)).attempts(attempts))
            .handler(fails)
            .explain();
        let limit = plan.limits.iter().find(|limit| limit.name == "redrive's headers").unwrap().clone();
        let (Some(Amount::Bytes(asked)), Some(Amount::Bytes(allowed))) = (limit.asked, limit.allowed) else {
            panic!("{limit:?}")
        };
        assert!(asked <= allowed && allowed == budget, "{limit:?}");
        asked
    };
    assert!(asked(1, 4096) > redrive_core::MAX_ERROR_BYTES, "the text is as long as it can be");
    assert!(asked(9, 4096) > asked(1, 4096), "and so is the history");
    assert!(asked(9, 1024) > 200);
}

#[test]
fn no_line_is_longer_than_the_page() {
    let preset = DeadLetterBackoff::new(Exponential::from(secs(1)).attempts(40).jitter(Jitter::Full));
    let text = plan(preset).to_string();
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= 100, "{longest}: {text}");
    assert!(text.starts_with("Retry plan of `orders` (test; no broker was asked)\n"));
}

#[test]
fn what_a_name_holds_does_not_break_the_diagram() {
    let transport = Unconnected::new("a\"b#c`d;<e>", |_: &Needs| Outline::new(Facts::new("test")));
    let plan = Consumer::new(transport).with_dead_letter_backoff([secs(1)]).handler(fails).explain();
    let diagram = plan.to_mermaid();
    assert!(diagram.contains("a#34;b#35;cd#59;#60;e#62;"), "{diagram}");
}

#[cfg(feature = "json")]
#[test]
fn as_json_times_are_milliseconds() {
    let plan: serde_json::Value = serde_json::from_str(&plan([secs(1)]).to_json()).unwrap();
    let course = &plan["routes"][0]["courses"][0];
    assert_eq!(course["steps"][0]["wait"], serde_json::json!({"least_ms": 1000, "most_ms": 1000}));
    assert_eq!(course["cases"][0], "transient");
    assert_eq!(plan["limits"][0]["asked"]["times"], 10);
}

#[tokio::test]
async fn what_is_unconnected_can_only_be_explained() {
    let consumer = on(Facts::new("test")).handler(fails);
    assert!(consumer.preflight().await.unwrap_err().to_string().contains("use `connect`"));
    assert!(consumer.run().await.unwrap_err().to_string().contains("only there to be explained"));
    let publisher = redrive_core::Transport::publisher(&Unconnected::new("q", |_: &Needs| {
        Outline::new(Facts::new("test"))
    }));
    assert!(publisher.publish(Message::new("")).await.is_err());
}

#[test]
#[cfg(feature = "config")]
fn the_settings_of_a_configuration_are_shown() {
    let section = serde_json::json!({
        "MaxConcurrentCalls": 8, "RateLimit": { "Messages": 100, "Per": 1, "Burst": 10 }, "Grace": 60, "LongestHandling": "5m",
        "GiveUpAfter": "10m", "Ledger": "/var/lib/orders",
    });
    let shown = |section| {
        let options = redrive_consumer::ConsumerOptions::from_deserializer(section).unwrap();
        let plan = on(Facts::new("test")).configured(options).handler(fails).explain().to_string();
        plan.lines()
            .skip_while(|line| *line != "Settings")
            .skip(1)
            .take(7)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let expected = [
        "  handled at once         8",
        "  in flight               16",
        "  rate limit              1 every 10ms, up to 10 at once",
        "  longest handling        5m",
        "  grace at shutdown       1m",
        "  gives up after          10m",
        "  ledger                  /var/lib/orders",
    ];
    assert_eq!(shown(section), expected);
    let defaults = ["16", "32", "none", "not known", "30s", "never", "none"];
    for (line, value) in shown(serde_json::json!({})).iter().zip(defaults) {
        assert_eq!(line[26..], *value);
    }
}
