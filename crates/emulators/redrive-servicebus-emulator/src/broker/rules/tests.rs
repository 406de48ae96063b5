//! Which messages a subscription receives, and how rules change.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::amqp::{Map, Value};

fn red() -> Arc<Message> {
    let mut message = Message::default();
    message.properties.subject = Some("order".into());
    message.properties.correlation_id = "c".into();
    message.application_properties = Map::new().with("color", "red").with("count", 3i32);
    Arc::new(message)
}

fn sql(text: &str) -> Filter {
    Filter::Sql(SqlFilter::new(text).expect("an expression"))
}

fn taken(rules: &[Rule]) -> Vec<Arc<Message>> {
    match copies(rules, &red()) {
        Copies::Of(copies) => copies,
        Copies::Failed(error) => panic!("{error}"),
    }
}

#[test]
fn no_rule_takes_nothing_and_several_that_match_take_one_copy() {
    assert!(taken(&[]).is_empty());
    assert!(taken(&[Rule::new("none", Filter::False)]).is_empty());
    assert_eq!(taken(&[Rule::all(), Rule::new("red", sql("color = 'red'"))]).len(), 1);
}

#[test]
fn each_rule_with_an_action_makes_a_copy_of_its_own() {
    let action =
        Action::new("SET count = count + 1; SET sys.Label = 'new'; REMOVE color").expect("an action");
    let changed = taken(&[Rule::all(), Rule::new("change", Filter::True).with_action(action)]);
    assert_eq!(changed.len(), 2);
    assert_eq!(changed[0], red());
    assert_eq!(changed[1].properties.subject.as_deref(), Some("new"));
    let properties = &changed[1].application_properties;
    assert_eq!(properties.get("count"), Some(&Value::Long(4)));
    assert_eq!(properties.get("color"), None);
    assert_eq!(properties.get("RuleName"), Some(&Value::from("change")));
}

#[test]
fn a_correlation_filter_wants_every_property_equal() {
    let filter = |properties: Map, subject: Option<&str>| {
        let subject = subject.map(str::to_owned);
        [Rule::new("c", Filter::Correlation(Correlation { subject, properties, ..Correlation::default() }))]
    };
    let red = || Map::new().with("color", "red");
    assert_eq!(taken(&filter(red(), Some("order"))).len(), 1);
    assert_eq!(taken(&filter(red().with("count", 3i64), None)).len(), 1);
    assert!(taken(&filter(red(), Some("Order"))).is_empty());
    assert!(taken(&filter(red().with("size", 1i32), None)).is_empty());
}

#[test]
fn a_rule_that_cannot_be_evaluated_is_told() {
    assert!(matches!(copies(&[Rule::new("r", sql("count / 0 = 1"))], &red()), Copies::Failed(_)));
}

#[test]
fn a_rule_reads_back_from_its_request() {
    let correlation = Correlation {
        subject: Some("order".into()),
        properties: Map::new().with("color", "red"),
        ..Correlation::default()
    };
    let parameters = Map::new().with("@a", 1i32);
    let action = Action::new("SET a = 1").expect("an action");
    for rule in [
        Rule::all(),
        Rule::new("never", Filter::False),
        Rule::new("c", Filter::Correlation(correlation)).with_action(action),
        Rule::new("s", Filter::Sql(SqlFilter::with_parameters("a = @a", parameters).expect("an expression"))),
    ] {
        assert_eq!(Rule::from_request(&rule.name, &rule.to_request()), Ok(rule));
    }
    assert_eq!(Rule::from_request("r", &Map::new()), Err(RuleDecodeError::NoFilter));
    let broken = Map::new().with("sql-filter", Map::new().with("expression", "a ="));
    assert!(matches!(Rule::from_request("r", &broken), Err(RuleDecodeError::Filter { .. })));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_of_actions_panic(text in "(SET|REMOVE|;|=|[a-z.'1()+ ]){0,30}") {
        if let Ok(action) = Action::new(&text) {
            let _ = action.apply(&mut Message::clone(&red()));
        }
    }
}
