//! Microsoft's Python client against the emulator: the fast part in every run of the tests, all of it when asked for.

use redrive_servicebus_sdks::{install, suite};

/// So many scenarios there are at least: a suite that finds none of its files would hold, too.
const AT_LEAST: usize = 80;

#[tokio::test(flavor = "multi_thread")]
async fn python_accepts_the_emulator() {
    let client = match install::python() {
        Ok(client) => client,
        Err(why) => return suite::not_run("Python azure-servicebus", &format!("{why:#}")),
    };
    let arguments: &[&str] = if suite::all_is_asked_for() { &[] } else { &["--fast"] };
    suite::must_hold(&client, arguments, AT_LEAST).await;
}
