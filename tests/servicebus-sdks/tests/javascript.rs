//! Microsoft's JavaScript client against the emulator, when asked for.

use redrive_servicebus_sdks::{install, suite};

/// So many scenarios there are at least: a suite that finds none of its files would hold, too.
const AT_LEAST: usize = 43;

#[tokio::test(flavor = "multi_thread")]
async fn javascript_accepts_the_emulator() {
    let name = "JavaScript @azure/service-bus";
    if !suite::all_is_asked_for() && suite::chosen().is_empty() {
        return suite::not_run(name, "only `cargo xtask test --servicebus-sdks` does");
    }
    match install::javascript() {
        Ok(client) => suite::must_hold(&client, &[], AT_LEAST).await,
        Err(why) => suite::not_run(name, &format!("{why:#}")),
    }
}
