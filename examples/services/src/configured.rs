//! A consumer whose options stand in a file, and in environment variables, which win over the file:
//!
//! ```console
//! $ cargo run --package services -- configured
//! $ SHOP__ORDERS__MAX_DELIVERY_COUNT=5 cargo run --package services -- configured
//! ```

use config::{Config, ConfigError, Environment, File, FileFormat};
use redrive::ConsumerOptions;
use redrive::memory::MemoryBroker;
use redrive::prelude::*;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Settings {
    orders: ConsumerOptions,
}

/// Names are in one form in all sources, `max_delivery_count`: `config` merges by them, and turns those of variables into lower case.
fn settings(environment: Environment) -> Result<Settings, ConfigError> {
    let file = File::from_str(include_str!("../settings.toml"), FileFormat::Toml);
    Config::builder().add_source(file).add_source(environment).build()?.try_deserialize()
}

fn environment() -> Environment {
    let separated = Environment::with_prefix("SHOP").separator("__");
    // The one key whose value must be a list: `SHOP__ORDERS__PERMANENT_PATTERNS=no such item,invalid format`.
    separated.try_parsing(true).list_separator(",").with_list_parse_key("orders.permanent_patterns")
}

async fn ship(order: String, Attempt(attempt): Attempt) -> Result<(), BoxError> {
    println!("attempt {attempt}: {order}");
    match order.as_str() {
        "unicorn" => Err("no such item: unicorn".into()),
        "vase" => Err("the carrier does not answer".into()),
        _ => Ok(()),
    }
}

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    consume(broker, settings(environment())?).await
}

async fn consume(broker: &MemoryBroker, settings: Settings) -> Result<(), BoxError> {
    let orders = broker.transport("orders");
    for order in ["lamp", "unicorn", "vase"] {
        orders.publish(Message::new(order).with_id(order)).await?;
    }
    let consumer = Consumer::new(orders).configured(settings.orders).handler(ship);
    let report = consumer.run_until(crate::empty(broker, &["orders"])).await?;
    println!("{report:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables<const N: usize>(variables: [(&str, &str); N]) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        environment().source(Some(variables.collect()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_says_how_often_and_which_errors_are_permanent() -> Result<(), BoxError> {
        let broker = MemoryBroker::new();
        let began = tokio::time::Instant::now();
        consume(&broker, settings(variables([]))?).await?;
        assert_eq!(began.elapsed().as_secs(), 3, "the vase waits for 1 and 2 seconds");
        let failed = broker.shelf("orders", Shelf::DeadLetter);
        assert_eq!(failed.iter().filter_map(Message::id).collect::<Vec<_>>(), ["unicorn", "vase"]);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_variable_wins_over_the_file() -> Result<(), BoxError> {
        let broker = MemoryBroker::new();
        let began = tokio::time::Instant::now();
        let environment =
            variables([("SHOP__ORDERS__MAX_DELIVERY_COUNT", "2"), ("SHOP__ORDERS__RETRY__BASE", "9s")]);
        consume(&broker, settings(environment)?).await?;
        assert_eq!(began.elapsed().as_secs(), 9);
        Ok(())
    }

    #[test]
    fn a_section_is_the_same_in_every_source() -> Result<(), BoxError> {
        let toml = "
            [Orders]
            MaxConcurrentCalls = 5
            MaxDeliveryCount = 3
            MaxWaitTime = '5s'
            AutoComplete = false
            Retry = { Policy = 'Fixed', Base = 1.5 }
            PermanentPatterns = ['no such item', 'conflict']";
        let json = r#"{ "ORDERS": {
            "maxConcurrentCalls": 5, "maxDeliveryCount": 3, "maxWaitTime": 5, "autoComplete": false,
            "retry": { "policy": "fixed", "base": "1s 500ms" },
            "permanentPatterns": ["no such item", "conflict"]
        } }"#;
        let environment = variables([
            ("SHOP__ORDERS__MAX_CONCURRENT_CALLS", "5"),
            ("SHOP__ORDERS__MAX_DELIVERY_COUNT", "3"),
            ("SHOP__ORDERS__MAX_WAIT_TIME", "5"),
            ("SHOP__ORDERS__AUTO_COMPLETE", "False"),
            ("SHOP__ORDERS__RETRY__POLICY", "Fixed"),
            ("SHOP__ORDERS__RETRY__BASE", "1.5"),
            ("SHOP__ORDERS__PERMANENT_PATTERNS", "no such item,conflict"),
        ]);
        let builders = [
            Config::builder().add_source(File::from_str(toml, FileFormat::Toml)),
            Config::builder().add_source(File::from_str(json, FileFormat::Json)),
            Config::builder().add_source(environment),
        ];
        for builder in builders {
            let sections: std::collections::HashMap<String, ConsumerOptions> =
                builder.build()?.try_deserialize()?;
            let options = sections.values().next().ok_or("there is a section")?;
            let shown = format!("{options:?}");
            assert_eq!((options.concurrency, options.max_wait_time), (5, Some(secs(5))), "{shown}");
            assert!(shown.contains("1.5s") && shown.contains("conflict"), "{shown}");
        }
        Ok(())
    }

    #[test]
    fn waits_may_be_a_variable() -> Result<(), BoxError> {
        for (waits, expected) in [("1,5s, 1m", "attempts: Some(4)"), ("5", "attempts: Some(2)")] {
            let environment = variables([("SHOP__ORDERS__RETRY__WAITS", waits)]);
            let Settings { orders } = Config::builder().add_source(environment).build()?.try_deserialize()?;
            let shown =
                format!("{:?}", Consumer::new(MemoryBroker::new().transport("orders")).configured(orders));
            assert!(shown.contains(expected), "{shown}");
        }
        Ok(())
    }

    #[test]
    fn a_consumer_has_what_the_section_says() -> Result<(), BoxError> {
        let settings = settings(variables([("SHOP__ORDERS__MAX_WAIT_TIME", "7s")]))?;
        let consumer = Consumer::new(MemoryBroker::new().transport("orders")).configured(settings.orders);
        let shown = format!("{consumer:?}");
        for set in ["concurrency: 5,", "prefetch: Some(20)", "max_wait_time: Some(7s)", "attempts: Some(3)"] {
            assert!(shown.contains(set), "{set}: {shown}");
        }
        Ok(())
    }

    #[test]
    fn an_error_names_the_key() {
        let wrong = |name, value| settings(variables([(name, value)])).unwrap_err().to_string();
        let contradiction = wrong("SHOP__ORDERS__RETRY__BASE", "2m");
        assert!(contradiction.contains("Retry.Cap: 1m is shorter"), "{contradiction}");
        let no_number = wrong("SHOP__ORDERS__MAX_DELIVERY_COUNT", "many");
        assert!(no_number.contains("orders.max_delivery_count"), "{no_number}");
        let unknown = wrong("SHOP__ORDERS__MAX_RETRIES", "3");
        assert!(unknown.contains("max_retries"), "{unknown}");
    }
}
