//! A typical file, and the errors of invalid files.

use std::time::Duration;

use super::*;
use crate::broker::Broker;

/// Has the structure of the file that the official emulator ships.
const FILE: &str = r#"{
  "UserConfig": {
    "Namespaces": [{
      "Name": "sbemulatorns",
      "Queues": [{
        "Name": "queue.1",
        "Properties": {
          "DeadLetteringOnMessageExpiration": true,
          "DefaultMessageTimeToLive": "PT1H",
          "DuplicateDetectionHistoryTimeWindow": "PT20S",
          "ForwardDeadLetteredMessagesTo": "",
          "ForwardTo": "",
          "LockDuration": "PT30S",
          "MaxDeliveryCount": 5,
          "RequiresDuplicateDetection": true,
          "RequiresSession": true
        }
      }],
      "Topics": [{
        "Name": "topic.1",
        "Properties": { "DefaultMessageTimeToLive": "PT30M", "RequiresDuplicateDetection": false },
        "Subscriptions": [{
          "Name": "subscription.1",
          "Properties": { "ForwardTo": "queue.1" },
          "Rules": [{
            "Name": "one",
            "Properties": {
              "FilterType": "Correlation",
              "CorrelationFilter": {
                "ContentType": "application/text", "Label": "subject1",
                "Properties": { "prop": "value", "count": 3, "yes": true }
              }
            }
          }, {
            "Name": "two",
            "Properties": {
              "FilterType": "Sql",
              "SqlFilter": { "SqlExpression": "sys.MessageId = '123' AND userProp1 = 'value1'" },
              "Action": { "SqlExpression": "SET sys.To = 'Entity'" }
            }
          }]
        }, { "Name": "subscription.2" }]
      }]
    }],
    "Logging": { "Type": "File" }
  }
}"#;

fn queue(properties: &str) -> Result<Config, ConfigError> {
    Config::parse(&format!(
        r#"{{"UserConfig": {{"Namespaces": [{{"Queues": [{{"Name": "q", "Properties": {{{properties}}}}}]}}]}}}}"#
    ))
}

#[test]
fn a_file_of_the_official_emulator_works_unchanged() {
    let config = Config::parse(FILE).expect("a configuration");
    assert_eq!(config.unknown_keys, Vec::<String>::new());
    let queue = &config.namespace.queues[0];
    assert_eq!(queue.name, "queue.1");
    assert_eq!(queue.settings.lock_duration, Duration::from_secs(30));
    assert_eq!(queue.settings.max_delivery_count, 5);
    assert_eq!(queue.settings.default_time_to_live, Some(Duration::from_secs(3600)));
    assert_eq!(queue.settings.duplicate_detection, Some(Duration::from_secs(20)));
    assert!(queue.settings.requires_session && queue.settings.dead_letter_on_expiration);
    assert_eq!(queue.settings.forward_to, None);
    let topic = &config.namespace.topics[0];
    assert_eq!(topic.settings.default_time_to_live, Some(Duration::from_secs(1800)));
    let rules: Vec<_> = topic.subscriptions[0].rules.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(rules, ["one", "two"]);
    assert_eq!(topic.subscriptions[1].rules[0].name, "$Default");
    assert!(Broker::new(&config.namespace, 1).is_ok());
}

#[test]
fn what_the_file_leaves_out_is_as_in_the_official_emulator() {
    let settings = &queue("").expect("a configuration").namespace.queues[0].settings;
    assert_eq!(settings.max_delivery_count, 3);
    assert_eq!(settings.default_time_to_live, Some(Duration::from_secs(3600)));
    assert_eq!(settings.lock_duration, Duration::from_secs(60));
    assert_eq!(settings.duplicate_detection, None);
}

#[test]
fn a_key_that_is_not_known_is_told_with_its_path() {
    let config = queue(r#""LockDuration": "PT1M", "Colour": {"a": 1}"#).expect("a configuration");
    assert_eq!(config.unknown_keys, ["UserConfig.Namespaces[0].Queues[0].Properties.Colour"]);
}

#[test]
fn a_value_that_is_wrong_is_refused_with_its_path() {
    for (properties, key, reason) in [
        (r#""LockDuration": "1 minute""#, "LockDuration", "ISO 8601"),
        (r#""LockDuration": "PT6M""#, "LockDuration", "5 minutes"),
        (r#""LockDuration": "PT0S""#, "LockDuration", "longer than nothing"),
        (r#""MaxDeliveryCount": 0"#, "MaxDeliveryCount", "at least 1"),
        (r#""MaxDeliveryCount": 2001"#, "MaxDeliveryCount", "2000"),
        (r#""MaxDeliveryCount": "three""#, "MaxDeliveryCount", "no whole number"),
        (r#""MaxDeliveryCount": "-1""#, "MaxDeliveryCount", "no whole number from 0 to 4294967295"),
        (r#""MaxDeliveryCount": []"#, "MaxDeliveryCount", "invalid type"),
        (
            r#""DuplicateDetectionHistoryTimeWindow": "P7DT1S""#,
            "DuplicateDetectionHistoryTimeWindow",
            "7 days (P7D)",
        ),
        (
            r#""DuplicateDetectionHistoryTimeWindow": "PT19S""#,
            "DuplicateDetectionHistoryTimeWindow",
            "20 seconds (PT20S)",
        ),
        (r#""DefaultMessageTimeToLive": "PT0S""#, "DefaultMessageTimeToLive", "longer than nothing"),
        (r#""MaxMessageSizeInKilobytes": 102401"#, "MaxMessageSizeInKilobytes", "102400"),
        (r#""MaxSizeInMegabytes": 0"#, "MaxSizeInMegabytes", "at least 1"),
        (r#""RequiresSession": "yes""#, "RequiresSession", "neither true nor false"),
    ] {
        let error = queue(properties).expect_err(properties);
        assert_eq!(error.path, format!("UserConfig.Namespaces[0].Queues[0].Properties.{key}"));
        assert!(error.reason.contains(reason), "{error}");
    }
}

#[test]
fn the_largest_values_that_azure_allows_are_taken() {
    let properties = r#""LockDuration": "PT5M", "MaxDeliveryCount": 2000, "RequiresDuplicateDetection": true,
        "DuplicateDetectionHistoryTimeWindow": "P7D", "MaxMessageSizeInKilobytes": 102400"#;
    let config = queue(properties).expect("a configuration");
    assert!(Broker::new(&config.namespace, 1).is_ok());
}

#[test]
fn a_filter_that_is_wrong_is_refused_with_its_path() {
    let rules = "UserConfig.Namespaces[0].Topics[0].Subscriptions[0].Rules";
    for (from, to, path) in [
        ("sys.MessageId = '123'", "sys.MessageId =", "[1].Properties.SqlFilter.SqlExpression"),
        ("SET sys.To", "PUT sys.To", "[1].Properties.Action.SqlExpression"),
        (r#""prop": "value""#, r#""prop": []"#, "[0].Properties.CorrelationFilter.Properties.prop"),
        (r#""SqlFilter""#, r#""Filter""#, "[1].Properties.SqlFilter.SqlExpression"),
        (r#""FilterType": "Sql""#, r#""FilterType": "Other""#, "[1].Properties.FilterType"),
    ] {
        let error = Config::parse(&FILE.replace(from, to)).expect_err(to);
        assert_eq!(error.path, format!("{rules}{path}"), "{error}");
    }
}

#[test]
fn a_file_is_read_as_dotnet_reads_it() {
    let text = r#"// the queues of the shop
    {
        "userConfig": { "NAMESPACES": [{
            "Name": null,
            "queues": [{
                "name": 7, /* a number */
                "Properties": {
                    "maxDeliveryCount": "5", "RequiresSession": "True", "LOCKDURATION": " PT30S ",
                    "DefaultMessageTimeToLive": null, "MaxSizeInMegabytes": "2", "ForwardTo": null,
                },
            }, { "Name": "plain", "Properties": null }],
            "Topics": [{
                "Name": "events", "Subscriptions": [
                    { "Name": "all", "Rules": null },
                    { "Name": "some", "rules": [{ "name": "one", "properties": {
                        "filterType": "SQL", "sqlFilter": { "sqlExpression": "a = '// no comment'" }, "Action": null,
                    } }] },
                ],
            }],
        }], "Logging": null },
    } // the end
    "#;
    let config = Config::parse(&format!("\u{feff}{text}")).expect("a configuration");
    assert_eq!(config.unknown_keys, Vec::<String>::new());
    let queue = &config.namespace.queues[0];
    assert_eq!((queue.name.as_str(), queue.settings.max_delivery_count), ("7", 5));
    assert!(queue.settings.requires_session);
    assert_eq!(queue.settings.lock_duration, Duration::from_secs(30));
    assert_eq!(queue.settings.default_time_to_live, Some(Duration::from_secs(3600)));
    assert_eq!(queue.settings.max_size, 2 << 20);
    assert_eq!(config.namespace.queues[1].settings.max_delivery_count, 3);
    let subscriptions = &config.namespace.topics[0].subscriptions;
    assert_eq!(subscriptions[0].rules[0].name, "$Default");
    assert_eq!(subscriptions[1].rules[0].name, "one");
}

#[test]
fn the_place_of_an_error_is_named() {
    let error = Config::parse("{\n  \"UserConfig\": {\n    \"Namespaces\": [}\n").expect_err("no JSON");
    assert!(error.path.starts_with("line 3, column "), "{error}");
    let twice = queue(r#""LockDuration": "PT1M", "lockduration": "PT2M""#).expect_err("which of the two?");
    assert!(twice.to_string().contains("duplicate field `LockDuration`"), "{twice}");
    let unnamed = Config::parse(r#"{"UserConfig": {"Namespaces": [{"Queues": [{"Name": null}]}]}}"#);
    let unnamed = unnamed.expect_err("no name");
    assert_eq!(unnamed.path, "UserConfig.Namespaces[0].Queues[0]");
    assert!(unnamed.reason.contains("Name"), "{unnamed}");
}

#[test]
fn text_and_number_stay_apart_in_a_property_of_a_filter() {
    let text = FILE.replace(r#""count": 3"#, r#""Count": "3""#);
    assert!(Config::parse(&text).is_ok());
    let error = Config::parse(&FILE.replace(r#""count": 3"#, r#""count": null"#)).expect_err("no value");
    assert!(error.path.ends_with("CorrelationFilter.Properties.count"), "{error}");
}

#[test]
fn what_is_no_configuration_is_refused() {
    for text in
        ["", "{}", "[]", r#"{"UserConfig": {}}"#, r#"{"UserConfig": {"Namespaces": []}}"#, "{", "nothing"]
    {
        assert!(Config::parse(text).is_err(), "{text}");
    }
    assert!(Config::parse(&format!("{FILE} and more")).is_err());
}

#[test]
fn a_time_to_live_for_ever_is_none() {
    let config =
        queue(r#""DefaultMessageTimeToLive": "P10675199DT2H48M5.4775807S""#).expect("a configuration");
    assert_eq!(config.namespace.queues[0].settings.default_time_to_live, None);
}
