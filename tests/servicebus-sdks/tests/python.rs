//! Microsoft's Python client against the emulator, in several versions: the fast part of the newest and a few scenarios of the
//! oldest in every run of the tests, everything when asked for.

use redrive_servicebus_sdks::{install, suite};

/// The minimum number of scenarios: a suite that finds none of its files would hold, too.
const AT_LEAST: usize = 70;

/// What each run of the tests asks of the oldest version: together they hear every performative.
const FEW: &[&str] = &[
    "a_message_of_many_frames_arrives_whole",
    "a_receiver_goes_on_after_its_link_is_detached",
    "a_session_is_received_alone_and_in_order",
    "an_unknown_queue_is_not_found",
    "sync_sends_receives_and_settles_in_each_way",
];

macro_rules! versions {
    ($($name:ident: $version:literal, $every_run:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            hold($version, $every_run).await;
        }
    )*};
}

versions! {
    python_7_15_0: "7.15.0", Some(&["--fast"]);
    python_7_14_2: "7.14.2", None;
    python_7_13_0: "7.13.0", None;
    python_7_12_3: "7.12.3", None;
    python_7_11_4: "7.11.4", Some(FEW);
}

/// Runs all scenarios of this version when everything is asked for, otherwise those of `every_run`.
async fn hold(version: &str, every_run: Option<&[&str]>) {
    let name = format!("Python azure-servicebus {version}");
    let all = suite::all_is_asked_for();
    if !all && every_run.is_none() && suite::chosen().is_empty() {
        return suite::not_run(&name, "only `cargo xtask test --servicebus-sdks` does");
    }
    match install::python(version) {
        Err(why) => suite::not_run(&name, &format!("{why:#}")),
        Ok(client) if all => suite::must_hold(&client, &[], AT_LEAST).await,
        Ok(client) => suite::must_hold(&client, every_run.unwrap_or_default(), FEW.len()).await,
    }
}
