//! The parser is total; the evaluator agrees with a naive one, and with the documentation of the language.

use proptest::prelude::*;

use super::expression::{Expression, Operator};
use super::*;
use crate::amqp::Value;
use crate::broker::rules::property::{Property, System};

fn sample() -> Message {
    let mut message = Message::default();
    message.properties.subject = Some("Order".into());
    message.properties.message_id = "m-1".into();
    message.application_properties = Map::new()
        .with("color", "red")
        .with("count", 5i32)
        .with("price", 2.5f64)
        .with("urgent", true)
        .with("my key", "k")
        .with("percent", "100%");
    message
}

fn matches(text: &str) -> bool {
    let filter = SqlFilter::new(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    filter.matches(&sample()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn what_is_true_of_a_message_matches() {
    for text in [
        "color = 'red'",
        "COLOR = 'red' and count = 5",
        "user.color <> 'blue' AND count != 6",
        "count > 4 AND count >= 5 AND count < 5.5 AND count <= 5",
        "count + 1 = 6 AND count - 1 = 4 AND count * 2 = 10 AND count / 2 = 2 AND count % 2 = 1",
        "price * 2 = 5",
        "-count = -5",
        "color + '!' = 'red!'",
        "color IN ('blue', 'red')",
        "color NOT IN ('blue', 'green')",
        "color LIKE 'r_d' AND color LIKE '%' AND color LIKE 'r%' AND color LIKE '%d' AND color LIKE '%e%'",
        "color NOT LIKE 'b%'",
        "percent LIKE '100!%' ESCAPE '!' AND NOT color LIKE 'r!%' ESCAPE '!'",
        "size IS NULL AND color IS NOT NULL",
        "EXISTS(color) AND NOT EXISTS(size) AND EXISTS(sys.Label)",
        "urgent AND urgent = TRUE",
        "sys.Label = 'Order' AND sys.subject LIKE 'O%' AND sys.MessageId = 'm-1'",
        "[my key] = 'k' AND \"my key\" = 'k' AND user.[my key] = 'k' AND property('my key') = 'k'",
        "1=1",
        "color = 'blue' OR color = 'red' AND count = 5",
        "NOT (color = 'blue' AND count = 5)",
        "color = 'it''s' OR TRUE",
        "0x10 = 16 AND 1e2 = 100 AND .5 = 0.5",
    ] {
        assert!(matches(text), "{text}");
    }
}

#[test]
fn what_is_false_or_unknown_does_not_match() {
    for text in [
        "color = 'Red'",
        "size = 1",
        "NOT size = 1",
        "size <> 1",
        "size IN (1, 2)",
        "size NOT IN (1, 2)",
        "color NOT IN ('blue', size)",
        "color = 5",
        "NOT color > 5",
        "count LIKE '5'",
        "color LIKE 'red_'",
        "NULL = NULL",
        "size + 1 = 1",
        "color",
    ] {
        assert!(!matches(text), "{text}");
    }
}

#[test]
fn unknown_is_neither_true_nor_false_but_may_not_matter() {
    assert!(matches("size = 1 OR color = 'red'"));
    assert!(matches("color = 'red' OR size = 1"));
    assert!(matches("NOT (size = 1 AND color = 'blue')"));
    assert!(!matches("NOT (size = 1 AND color = 'red')"));
    assert!(!matches("NOT (size = 1 OR color = 'blue')"));
}

#[test]
fn what_is_no_expression_is_refused_with_its_place() {
    for (text, at) in [
        ("", 1),
        ("color =", 8),
        ("color = 'red", 13),
        ("color == 'red'", 8),
        ("(color = 'red'", 15),
        ("color = 'red')", 14),
        ("color IN ()", 11),
        ("color NOT = 'red'", 11),
        ("other.color = 'red'", 7),
        ("sys.Nothing = 1", 13),
        ("a = 99999999999999999999", 25),
        ("a = 1x", 6),
        ("a LIKE 'x' ESCAPE 'yy'", 19),
        ("@ = 1", 2),
        ("a ~ 1", 3),
        ("EXISTS(1)", 8),
    ] {
        match SqlFilter::new(text) {
            Err(SqlError::Syntax { at: found, .. }) => assert_eq!(found, at, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn length_and_depth_are_bounded() {
    assert!(SqlFilter::new(&format!("{}1=1{}", "(".repeat(60), ")".repeat(60))).is_ok());
    for text in [
        format!("{}1=1{}", "(".repeat(100), ")".repeat(100)),
        format!("{}TRUE", "NOT ".repeat(100)),
        format!("{}1 = 1", "-".repeat(100)),
        format!("a = '{}'", "x".repeat(1024)),
    ] {
        assert!(SqlFilter::new(&text).is_err(), "{text}");
    }
    assert!(SqlFilter::new(&format!("a{}", "+a".repeat(500))).is_ok());
}

#[test]
fn what_cannot_be_computed_is_an_error_and_not_a_panic() {
    for text in ["count / 0 = 1", "count % 0 = 1", "9223372036854775807 + count = 0", "@missing = 1"] {
        let filter = SqlFilter::new(text).expect("an expression");
        assert!(filter.matches(&sample()).is_err(), "{text}");
    }
}

#[test]
fn parameters_stand_for_values() {
    let filter = |parameters| SqlFilter::with_parameters("color = @c", parameters).expect("an expression");
    assert_eq!(filter(Map::new().with("@c", "red")).matches(&sample()), Ok(true));
    assert_eq!(filter(Map::new().with("c", "blue")).matches(&sample()), Ok(false));
}

#[test]
fn a_pattern_of_many_percent_signs_takes_no_exponential_time() {
    let (text, pattern) = ("a".repeat(1000), format!("{}b", "%a".repeat(400)));
    assert!(!like::is_like(&text, &pattern, None));
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        proptest::collection::vec(
            prop::sample::select(vec![
                "a",
                "'x'",
                "(",
                ")",
                "AND",
                "OR",
                "NOT",
                "IN",
                "LIKE",
                "ESCAPE",
                "IS",
                "NULL",
                "=",
                "<>",
                "1",
                "1.5e9",
                "-",
                "+",
                "%",
                "/",
                "*",
                ",",
                ".",
                "sys.Label",
                "user.",
                "[",
                "]",
                "\"",
                "'",
                "@p",
                "EXISTS",
                "é",
                "0x",
            ]),
            0..40
        )
        .prop_map(|words| words.join(" ")),
    ]
}

fn any_datum() -> impl Strategy<Value = Datum> {
    prop_oneof![
        Just(Datum::Nothing),
        any::<bool>().prop_map(Datum::Bool),
        (-4i64..4).prop_map(Datum::Long),
        (-4i32..4).prop_map(|halves| Datum::Double(f64::from(halves) / 2.0)),
        "[ab%_']{0,3}".prop_map(Datum::Text),
    ]
}

fn any_property() -> impl Strategy<Value = Property> {
    prop_oneof![
        prop::sample::select(vec!["color", "count", "price", "urgent", "my key", "none"])
            .prop_map(|name| Property::User(name.into())),
        Just(Property::System(System::Subject)),
    ]
}

fn any_expression() -> impl Strategy<Value = Expression> {
    let leaf = prop_oneof![
        any_datum().prop_map(Expression::Literal),
        any_property().prop_map(Expression::Property),
        any_property().prop_map(Expression::Exists),
    ];
    let operators = vec![
        Operator::Or,
        Operator::And,
        Operator::Equal,
        Operator::NotEqual,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::Plus,
        Operator::Minus,
        Operator::Times,
        Operator::Divide,
        Operator::Modulo,
    ];
    leaf.prop_recursive(5, 40, 3, move |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (prop::sample::select(operators.clone()), boxed.clone(), boxed.clone())
                .prop_map(|(operator, left, right)| Expression::Both(operator, left, right)),
            boxed.clone().prop_map(Expression::Not),
            boxed.clone().prop_map(Expression::IsNull),
            (boxed.clone(), prop::collection::vec(inner, 1..4))
                .prop_map(|(inner, items)| Expression::In(inner, items)),
            (boxed.clone(), boxed, prop::option::of(Just('_')))
                .prop_map(|(text, pattern, escape)| Expression::Like { text, pattern, escape }),
        ]
    })
}

/// Evaluates in the simplest way, without short-circuiting.
fn naive(expression: &Expression, on: &Message) -> Result<Option<Value>, ()> {
    let truth = |value: Option<Value>| value.and_then(|value| value.as_bool());
    let boolean = |truth: Option<bool>| Ok(truth.map(Value::Bool));
    match expression {
        Expression::Literal(datum) => Ok(Some(Value::from(datum.clone())).filter(|value| !value.is_null())),
        Expression::Property(property) => Ok(widened(property.of(on))),
        Expression::Parameter(_) | Expression::Minus(_) => Err(()),
        Expression::Not(inner) => boolean(truth(naive(inner, on)?).map(|truth| !truth)),
        Expression::IsNull(inner) => boolean(Some(naive(inner, on)?.is_none())),
        Expression::Exists(property) => boolean(Some(widened(property.of(on)).is_some())),
        Expression::In(inner, items) => {
            let wanted = naive(inner, on)?;
            let found: Vec<_> =
                items.iter().map(|item| naive(item, on).map(|item| equal(&wanted, &item))).collect();
            // Items after the matching one need not be evaluated.
            let before: Vec<_> =
                found.iter().take_while(|found| **found != Ok(Some(true))).cloned().collect();
            if before.contains(&Err(())) {
                return Err(());
            }
            boolean(if before.len() < found.len() {
                Some(true)
            } else if found.contains(&Ok(None)) {
                None
            } else {
                Some(false)
            })
        }
        Expression::Like { text, pattern, escape } => match (naive(text, on)?, naive(pattern, on)?) {
            (Some(Value::String(text)), Some(Value::String(pattern))) => {
                let (text, pattern): (Vec<_>, Vec<_>) = (text.chars().collect(), pattern.chars().collect());
                boolean(Some(naive_like(&text, &pattern, *escape)))
            }
            _ => Ok(None),
        },
        Expression::Both(Operator::And, left, right) => {
            let left = truth(naive(left, on)?);
            if left == Some(false) {
                return boolean(Some(false));
            }
            let right = truth(naive(right, on)?);
            boolean(if right == Some(false) { right } else { left.and(right) })
        }
        Expression::Both(Operator::Or, left, right) => {
            let left = truth(naive(left, on)?);
            if left == Some(true) {
                return boolean(Some(true));
            }
            let right = truth(naive(right, on)?);
            boolean(if right == Some(true) { right } else { left.and(right) })
        }
        Expression::Both(operator, left, right) => {
            naive_operator(*operator, naive(left, on)?, naive(right, on)?)
        }
    }
}

fn naive_operator(
    operator: Operator,
    left: Option<Value>,
    right: Option<Value>,
) -> Result<Option<Value>, ()> {
    let compared = less(&left, &right).zip(less(&right, &left));
    let truth = match operator {
        Operator::Equal => equal(&left, &right),
        Operator::NotEqual => equal(&left, &right).map(|equal| !equal),
        Operator::Less => compared.map(|(less, _)| less),
        Operator::Greater => compared.map(|(_, greater)| greater),
        Operator::LessOrEqual => compared.map(|(_, greater)| !greater),
        Operator::GreaterOrEqual => compared.map(|(less, _)| !less),
        _ => return naive_arithmetic(operator, left, right),
    };
    Ok(truth.map(Value::Bool))
}

fn naive_arithmetic(
    operator: Operator,
    left: Option<Value>,
    right: Option<Value>,
) -> Result<Option<Value>, ()> {
    match (left, right) {
        (Some(Value::Long(a)), Some(Value::Long(b))) => {
            let (a, b) = (i128::from(a), i128::from(b));
            let number = match operator {
                Operator::Plus => a + b,
                Operator::Minus => a - b,
                Operator::Times => a * b,
                _ if b == 0 => return Err(()),
                Operator::Divide => a / b,
                _ => a % b,
            };
            i64::try_from(number).map(|number| Some(Value::Long(number))).map_err(|_| ())
        }
        (Some(Value::String(a)), Some(Value::String(b))) if operator == Operator::Plus => {
            Ok(Some(Value::String(a + &b)))
        }
        (left, right) => Ok(number(&left).zip(number(&right)).map(|(a, b)| {
            Value::Double(match operator {
                Operator::Plus => a + b,
                Operator::Minus => a - b,
                Operator::Times => a * b,
                Operator::Divide => a / b,
                _ => a % b,
            })
        })),
    }
}

fn number(value: &Option<Value>) -> Option<f64> {
    match value {
        Some(Value::Long(number)) => Some(*number as f64),
        Some(Value::Double(number)) => Some(*number),
        _ => None,
    }
}

fn less(left: &Option<Value>, right: &Option<Value>) -> Option<bool> {
    match (left, right) {
        (Some(Value::String(a)), Some(Value::String(b))) => Some(a < b),
        _ => number(left).zip(number(right)).filter(|(a, b)| !a.is_nan() && !b.is_nan()).map(|(a, b)| a < b),
    }
}

fn equal(left: &Option<Value>, right: &Option<Value>) -> Option<bool> {
    match (left, right) {
        (Some(Value::Bool(a)), Some(Value::Bool(b))) => Some(a == b),
        _ => less(left, right).zip(less(right, left)).map(|(less, greater)| !less && !greater),
    }
}

fn widened(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Int(number) => Some(Value::Long(number.into())),
        value => Some(value),
    }
}

fn naive_like(text: &[char], pattern: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [first, second, rest @ ..] if Some(*first) == escape => {
            text.first() == Some(second) && naive_like(&text[1..], rest, escape)
        }
        [first] if Some(*first) == escape => text == [*first],
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| naive_like(&text[skipped..], rest, escape)),
        ['_', rest @ ..] => !text.is_empty() && naive_like(&text[1..], rest, escape),
        [first, rest @ ..] => text.first() == Some(first) && naive_like(&text[1..], rest, escape),
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in any_text()) {
        if let Ok(filter) = SqlFilter::new(&text) {
            let _ = filter.matches(&sample());
        }
    }

    #[test]
    fn the_evaluator_agrees_with_a_naive_one(expression in any_expression()) {
        let found = expression.evaluate(&sample(), &Map::new());
        let found = found.map(Value::from).map_err(|_| ());
        let wanted = naive(&expression, &sample()).map(Option::unwrap_or_default);
        // NaN is not equal to itself.
        prop_assert_eq!(format!("{found:?}"), format!("{wanted:?}"), "{}", expression);
    }

    #[test]
    fn an_expression_that_is_written_out_reads_back(expression in any_expression()) {
        let text = expression.to_string();
        // Longer than 1024 characters.
        let Ok(mut parser) = Parser::new(&text) else { return Ok(()) };
        prop_assert_eq!(parser.expression(), Ok(expression), "{}", text);
    }
}
