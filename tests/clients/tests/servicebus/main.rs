//! Microsoft's clients against the emulator of Service Bus, in several versions: the fast part of the newest Python client and a
//! few scenarios of the oldest in every run of the tests, everything when asked for.

use redrive_clients::ServiceBus;
use redrive_clients::install::{self, Client};
use redrive_clients::suite;

/// The minimum number of scenarios: a suite that finds none of its files would hold, too.
const AT_LEAST_IN_PYTHON: usize = 70;
const AT_LEAST_IN_JAVASCRIPT: usize = 38;

/// What each run of the tests asks of the oldest version: together they hear every performative.
const FEW: &[&str] = &[
    "a_message_of_many_frames_arrives_whole",
    "a_receiver_goes_on_after_its_link_is_detached",
    "a_session_is_received_alone_and_in_order",
    "an_unknown_queue_is_not_found",
    "sync_sends_receives_and_settles_in_each_way",
];

/// A test of each version: all its scenarios when everything is asked for, otherwise those of `every run`.
macro_rules! versions {
    ($($name:ident: $install:path, $version:literal, at least $at_least:ident, every run $every_run:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            hold(stringify!($name), || $install($version), $at_least, $every_run).await;
        }
    )*};
}

versions! {
    python_7_15_0: install::azure_python, "7.15.0", at least AT_LEAST_IN_PYTHON, every run Some(&["--fast"]);
    python_7_14_2: install::azure_python, "7.14.2", at least AT_LEAST_IN_PYTHON, every run None;
    python_7_13_0: install::azure_python, "7.13.0", at least AT_LEAST_IN_PYTHON, every run None;
    python_7_12_3: install::azure_python, "7.12.3", at least AT_LEAST_IN_PYTHON, every run None;
    python_7_11_4: install::azure_python, "7.11.4", at least AT_LEAST_IN_PYTHON, every run Some(FEW);
    javascript_7_9_5: install::azure_javascript, "7.9.5", at least AT_LEAST_IN_JAVASCRIPT, every run None;
    javascript_7_9_3: install::azure_javascript, "7.9.3", at least AT_LEAST_IN_JAVASCRIPT, every run None;
    javascript_7_8_1: install::azure_javascript, "7.8.1", at least AT_LEAST_IN_JAVASCRIPT, every run None;
    javascript_7_5_1: install::azure_javascript, "7.5.1", at least AT_LEAST_IN_JAVASCRIPT, every run None;
}

async fn hold(
    name: &str,
    install: impl FnOnce() -> anyhow::Result<Client>,
    at_least: usize,
    every_run: Option<&[&str]>,
) {
    let all = suite::all_is_asked_for();
    if !all && every_run.is_none() && suite::chosen().is_empty() {
        return suite::not_run(ServiceBus, name, "only `cargo xtask test --servicebus-sdks` does");
    }
    match install() {
        Err(why) => suite::not_run(ServiceBus, name, &format!("{why:#}")),
        Ok(client) if all => suite::must_hold(ServiceBus, &client, &[], at_least).await,
        Ok(client) => {
            suite::must_hold(ServiceBus, &client, every_run.unwrap_or_default(), FEW.len()).await;
        }
    }
}
