//! Reads one section from every source, and checks the text of every refusal.

use std::collections::HashMap;

use redrive_core::{
    Delivery, Disposition, ErrorClass, ErrorClassifier, Message, Reason, Stage, millis, mins, secs,
};
use serde::de::value::{Error as ValueError, MapDeserializer};
use serde_json::{Value, json};

use super::*;

fn read(section: Value) -> Result<ConsumerOptions, OptionsError> {
    ConsumerOptions::from_deserializer(section)
}

fn refused(section: Value) -> (String, String) {
    let OptionsError { path, reason, .. } = read(section).unwrap_err();
    (path, reason)
}

#[test]
fn a_section_by_the_known_names_is_taken() {
    let options = read(json!({
        "MaxConcurrentCalls": 5, "MaxDeliveryCount": 3, "MaxWaitTime": 5, "PrefetchCount": 20, "AutoComplete": false,
        "Retry": { "Policy": "Linear", "Base": "5s", "Step": 10, "Cap": "12s" },
        "PermanentPatterns": ["No Such Item"],
    }))
    .unwrap();
    assert_eq!((options.concurrency, options.prefetch, options.max_wait_time), (5, Some(20), Some(secs(5))));
    let needs = options.preset.needs();
    assert_eq!((needs.attempts, Vec::from_iter(needs.waits)), (Some(3), vec![secs(5), secs(12)]));
    let delivery = Delivery::new(Message::new(""), "orders", std::time::UNIX_EPOCH);
    let outcome = options.preset.resolve(&delivery, Err("no such item: unicorn".into()));
    let Ok(Disposition::DeadLetter(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.reason(), &Reason::NonRetryableError);
    let class = options.patterns.classify(&std::io::Error::other("No such item"));
    assert_eq!(class, ErrorClass::Permanent);
}

#[test]
fn an_existing_section_is_read_as_it_is() {
    let secret =
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0";
    let options = read(json!({
        "ConnectionString": secret, "QueueName": "shop/orders", "ReceiveMode": "PeekLock", "AutoComplete": false,
        "MaxWaitTime": "00:00:05", "Retry": { "Base": "00:00:01.5", "Cap": "1.02:03:04" },
    }))
    .unwrap();
    assert_eq!(options.queue_name.as_deref(), Some("shop/orders"));
    assert_eq!(options.connection_string.as_ref().map(ConnectionString::expose), Some(secret));
    assert!(!format!("{options:?}").contains("c2VjcmV0"), "a secret is not shown");
    assert_eq!(options.max_wait_time, Some(secs(5)));
    assert_eq!(options.preset.needs().waits.first(), Some(&millis(1500)));

    let (path, reason) = refused(json!({ "ReceiveMode": "receive_and_delete" }));
    assert!(path == "ReceiveMode" && reason.contains("would lose it"), "{path}: {reason}");
    assert_eq!(refused(json!({ "ReceiveMode": "Peek" })).0, "ReceiveMode");
    assert_eq!(refused(json!({ "QueueName": " " })).0, "QueueName");
}

#[test]
fn times_of_dotnet_are_read() {
    let wait = |text: &str| read(json!({ "Grace": text })).map(|options| options.grace);
    for (text, time) in [
        ("00:00:05", secs(5)),
        ("1.02:03:04", secs(86_400 + 2 * 3600 + 3 * 60 + 4)),
        ("00:00:00.0500000", millis(50)),
        ("01:30", secs(5400)),
        ("23:59:59", secs(86_399)),
    ] {
        assert_eq!(wait(text), Ok(Some(time)), "{text}");
    }
    for text in [
        "24:00:00",
        "00:60:00",
        "00:00:60",
        "-00:00:05",
        "1.:00:05",
        "00:00:05.",
        ":00:05",
        "00:00:05:00",
        "99999999.00:00:00",
    ] {
        assert_eq!(wait(text).unwrap_err().path, "Grace", "{text}");
    }
}

#[test]
fn all_of_the_preset_has_keys() {
    let options = read(json!({
        "PoisonAfter": 4, "ParkAfterRedrives": "2", "ParkExhausted": true, "Expired": "discard", "Panics": "Permanent",
        "Throttled": { "MaxDeliveryCount": 20, "Retry": { "Policy": "Fixed", "Base": "90s" } },
        "RateLimit": { "Messages": 100, "Per": 1, "Burst": 10 },
        "Grace": 60, "LongestHandling": "5m", "HeaderBudget": 2048, "Remember": 0, "Ledger": "/var/lib/shop/orders.ledger",
    }))
    .unwrap();
    let text = format!("{:?}", options.preset);
    for part in ["allowed: 4", "redrives: 2", "exhausted: true", "expired: Discard", "panics: Permanent"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let needs = options.preset.needs();
    assert!(needs.waits.contains(&secs(90)), "{needs:?}");
    assert!(options.rate_limit.is_some());
    assert_eq!((options.grace, options.longest_handling), (Some(secs(60)), Some(mins(5))));
    assert_eq!((options.header_budget, options.remember), (Some(2048), Some(0)));
    for (section, path) in [
        (json!({ "PoisonAfter": 0 }), "PoisonAfter"),
        (json!({ "Expired": "never" }), "Expired"),
        (json!({ "Throttled": { "Retry": { "Base": "10s", "Cap": 1 } } }), "Throttled.Retry.Cap"),
        (json!({ "Throttled": { "MaxDeliveryCount": 0 } }), "Throttled.MaxDeliveryCount"),
        (json!({ "RateLimit": { "Per": 1 } }), "RateLimit.Messages"),
        (json!({ "RateLimit": { "Messages": 5, "Per": 0 } }), "RateLimit.Per"),
        (json!({ "RateLimit": { "Messages": 5, "Per": 1, "Burst": 0 } }), "RateLimit.Burst"),
        (json!({ "Rate": 1 }), ""),
    ] {
        assert_eq!(refused(section).0, path);
    }
}

#[test]
fn what_a_section_leaves_out_has_the_defaults_of_redrive() {
    for empty in [json!({}), json!({ "Retry": {}, "AutoComplete": "false" })] {
        let options = read(empty).unwrap();
        assert_eq!((options.concurrency, options.prefetch, options.max_wait_time), (16, None, None));
        assert_eq!(
            options.preset.needs(),
            DeadLetterBackoff::new(redrive_core::Exponential::default()).needs()
        );
    }
}

#[test]
fn names_and_numbers_may_be_written_as_environment_variables_are() {
    let variables = [
        ("MAX_CONCURRENT_CALLS", "5"),
        ("max-delivery-count", "3"),
        ("MaxWaitTime", "1m 30s"),
        ("autocomplete", "False"),
        ("GIVE_UP_AFTER", "30m"),
    ];
    let section = MapDeserializer::<_, ValueError>::new(variables.into_iter());
    let options = ConsumerOptions::from_deserializer(section).unwrap();
    assert_eq!((options.concurrency, options.max_wait_time), (5, Some(secs(90))));
    assert_eq!(options.give_up_after, Some(mins(30)));
    assert_eq!(options.preset.needs().attempts, Some(3));
    let section = MapDeserializer::<_, ValueError>::new(HashMap::from([("MaxWaitTime", "2.5")]).into_iter());
    assert_eq!(ConsumerOptions::deserialize(section).unwrap().max_wait_time, Some(millis(2500)));
}

#[test]
fn every_policy_can_be_named() {
    let four = |retry: Value| {
        let options = read(json!({ "MaxDeliveryCount": 4, "Retry": retry })).unwrap();
        Vec::from_iter(options.preset.needs().waits)
    };
    assert_eq!(four(json!({ "Base": 1 })), [secs(1), secs(2), secs(4)]);
    assert_eq!(
        four(json!({ "Policy": "exponential", "Base": 1, "Factor": "3", "Cap": 5 })),
        [secs(1), secs(3), secs(5)]
    );
    assert_eq!(four(json!({ "Policy": "FIBONACCI", "Base": 1, "Cap": 1 })), [secs(1)]);
    assert_eq!(four(json!({ "Policy": "Linear", "Base": 1, "Step": 0.5 })), [secs(1), millis(1500), secs(2)]);
    assert_eq!(four(json!({ "Policy": "Fixed", "Base": "2m" })), [mins(2)]);
    assert_eq!(four(json!({ "Base": 1, "Deadline": 3 })), [secs(1), secs(2)]);
    assert!(four(json!({ "Policy": "Fixed", "Base": 4, "Jitter": "Equal" })).contains(&secs(2)));
    let schedule = |waits: &Value| {
        let needs = read(json!({ "Retry": { "Waits": waits } })).unwrap().preset.needs();
        (Vec::from_iter(needs.waits), needs.attempts)
    };
    assert_eq!(schedule(&json!([1, "10s", 60])), (vec![secs(1), secs(10), secs(60)], Some(4)));
    assert_eq!(schedule(&json!([])), (vec![], Some(1)));
    // As variables of the environment have them.
    assert_eq!(schedule(&json!("1, 10s,1m 30s")), (vec![secs(1), secs(10), secs(90)], Some(4)));
    for one in [json!("5"), json!(5), json!(5.0), json!("5s")] {
        assert_eq!(schedule(&one), (vec![secs(5)], Some(2)), "{one}");
    }
}

#[test]
fn the_recommended_values_are_valid() {
    let critical = json!({ "MaxDeliveryCount": 5, "Retry": { "Base": 10, "Factor": 4, "Cap": "15m", "Jitter": "Equal" } });
    let ordinary = json!({ "MaxDeliveryCount": 3, "Retry": { "Base": 1, "Jitter": "Equal" } });
    for (section, longest) in [(critical, secs(640)), (ordinary, secs(2))] {
        assert_eq!(read(section).unwrap().preset.needs().waits.last(), Some(&longest));
    }
}

#[test]
fn one_delivery_is_no_retry() {
    let options = read(json!({ "MaxDeliveryCount": 1, "Retry": { "Base": 1 } })).unwrap();
    let needs = options.preset.needs();
    assert_eq!((needs.attempts, needs.waits.len()), (Some(1), 0));
}

#[test]
fn nothing_is_fetched_ahead_with_a_prefetch_of_zero() {
    let prefetch = |section| read(section).unwrap().prefetch;
    assert_eq!(prefetch(json!({ "PrefetchCount": 0, "MaxConcurrentCalls": 5 })), Some(5));
    assert_eq!(prefetch(json!({ "PrefetchCount": 0 })), Some(16));
    assert_eq!(prefetch(json!({ "PrefetchCount": 5, "MaxConcurrentCalls": 5 })), Some(5));
}

#[test]
fn what_contradicts_itself_is_refused_at_its_path() {
    for (section, path, said) in [
        (json!({ "AutoComplete": true }), "AutoComplete", "only `false`"),
        (json!({ "MaxConcurrentCalls": 0 }), "MaxConcurrentCalls", "at least 1"),
        (json!({ "MaxDeliveryCount": 0 }), "MaxDeliveryCount", "1 for no retry"),
        (json!({ "MaxWaitTime": 0 }), "MaxWaitTime", "without a pause"),
        (json!({ "GiveUpAfter": 0 }), "GiveUpAfter", "at least 1 second"),
        (json!({ "PrefetchCount": 4, "MaxConcurrentCalls": 5 }), "PrefetchCount", "at least 5, or 0"),
        (json!({ "PrefetchCount": 15 }), "PrefetchCount", "at least 16"),
        (json!({ "PermanentPatterns": ["x", " "] }), "PermanentPatterns[1]", "every error"),
        (
            json!({ "Retry": { "Base": "10s", "Cap": 5 } }),
            "Retry.Cap",
            "5s is shorter than the first wait, 10s",
        ),
        (json!({ "Retry": { "Cap": 0.01 } }), "Retry.Cap", "50ms"),
        (json!({ "Retry": { "Base": 10, "Deadline": 5 } }), "Retry.Deadline", "shorter than the first wait"),
        (json!({ "Retry": { "Factor": 0.5 } }), "Retry.Factor", "at least 1"),
        (json!({ "Retry": { "Policy": "Fixed", "Cap": 5 } }), "Retry.Cap", "`Fixed` has no such setting"),
        (json!({ "Retry": { "Step": 5 } }), "Retry.Step", "`Exponential` has no such setting"),
        (
            json!({ "Retry": { "Policy": "Linear", "Factor": 2 } }),
            "Retry.Factor",
            "`Linear` has no such setting",
        ),
        (
            json!({ "Retry": { "Waits": [1], "Jitter": "Full" } }),
            "Retry.Waits",
            "`Retry.Jitter` has no meaning",
        ),
        (json!({ "MaxDeliveryCount": 3, "Retry": { "Waits": [1] } }), "MaxDeliveryCount", "give it 2"),
    ] {
        let (at, reason) = refused(section.clone());
        assert_eq!(at, path, "{section}");
        assert!(reason.contains(said), "{section}: {reason}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_at_its_path() {
    for (section, path, said) in [
        (json!({ "MaxConcurrentCalls": "many" }), "MaxConcurrentCalls", "`many` is not a whole number"),
        (json!({ "MaxConcurrentCalls": -1 }), "MaxConcurrentCalls", "`-1` is not a whole number"),
        (json!({ "MaxConcurrentCalls": 1.5 }), "MaxConcurrentCalls", "`1.5` is not a whole number"),
        (json!({ "PrefetchCount": 4_294_967_296_u64 }), "PrefetchCount", "from 0 to 4294967295"),
        (json!({ "MaxWaitTime": "soon" }), "MaxWaitTime", "such as `30s`"),
        (json!({ "MaxWaitTime": -1 }), "MaxWaitTime", "`-1` is not a time"),
        (json!({ "MaxWaitTime": "inf" }), "MaxWaitTime", "`inf` is not a time"),
        (json!({ "AutoComplete": 1 }), "AutoComplete", "`true` or `false`"),
        (json!({ "PermanentPatterns": "x" }), "PermanentPatterns", "expected a sequence"),
        (
            json!({ "Retry": { "Policy": "Random" } }),
            "Retry.Policy",
            "one of `Exponential`, `Fibonacci`, `Linear`, `Fixed`",
        ),
        (json!({ "Retry": { "Waits": [1, "x"] } }), "Retry.Waits[1]", "`x` is not a time"),
        (json!({ "Retry": { "Waits": "1, x" } }), "Retry.Waits", "`x` is not a time"),
        (json!({ "Retry": { "Waits": true } }), "Retry.Waits", "a text with commas"),
        (json!({ "Retry": { "Factor": "inf" } }), "Retry.Factor", "`inf` is not a number"),
        (json!({ "retry": { "factor": "x" } }), "retry.factor", "`x` is not a number"),
        (json!({ "Retry": { "Wait": 1 } }), "Retry", "unknown field `Wait`, expected one of `Policy`"),
        (json!({ "MaxRetries": 3 }), "", "unknown field `MaxRetries`, expected one of `MaxConcurrentCalls`"),
        (json!({ "MaxWaitTime": 5, "max_wait_time": 6 }), "", "`MaxWaitTime` is there twice"),
        (json!(7), "", "a section with any of the keys"),
    ] {
        let (at, reason) = refused(section.clone());
        assert_eq!(at, path, "{section}: {reason}");
        assert!(reason.contains(said), "{section}: {reason}");
    }
}

#[test]
fn the_error_of_another_format_has_the_path_too() {
    let error = serde_json::from_value::<ConsumerOptions>(json!({ "Retry": { "Factor": 0.5 } })).unwrap_err();
    assert!(error.to_string().starts_with("Retry.Factor: with a factor of 0.5"), "{error}");
}
