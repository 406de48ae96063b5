//! Microsoft's JavaScript client against the emulator, in several versions, when asked for.

use redrive_servicebus_sdks::{install, suite};

/// The minimum number of scenarios: a suite that finds none of its files would hold, too.
const AT_LEAST: usize = 38;

macro_rules! versions {
    ($($name:ident: $version:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            hold($version).await;
        }
    )*};
}

versions! {
    javascript_7_9_5: "7.9.5";
    javascript_7_9_3: "7.9.3";
    javascript_7_8_1: "7.8.1";
    javascript_7_5_1: "7.5.1";
}

async fn hold(version: &str) {
    let name = format!("JavaScript @azure/service-bus {version}");
    if !suite::all_is_asked_for() && suite::chosen().is_empty() {
        return suite::not_run(&name, "only `cargo xtask test --servicebus-sdks` does");
    }
    match install::javascript(version) {
        Ok(client) => suite::must_hold(&client, &[], AT_LEAST).await,
        Err(why) => suite::not_run(&name, &format!("{why:#}")),
    }
}
