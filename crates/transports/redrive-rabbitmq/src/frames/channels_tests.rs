use futures::FutureExt as _;

use super::*;
use crate::frames::DeliveryQueue;

fn pieces(text: &'static str) -> VecDeque<Bytes> {
    VecDeque::from([Bytes::from_static(text.as_bytes())])
}

fn next(channels: &OwnChannels) -> Option<String> {
    channels.next(None).map(|unit| String::from_utf8_lossy(&unit.pieces[0]).into_owned())
}

#[test]
fn a_number_of_a_channel_is_used_again() {
    let channels = OwnChannels::default();
    let old = channels.register(1);
    let _deliveries = old.take_deliveries(Origin::new("orders", "", ""));
    channels.broker_ends(1, Ended::ByTheBroker(406, "no".into()));
    assert!(channels.deliveries_of(1).is_none());
    channels.is_over(1);
    let new = channels.register(1);
    assert!(channels.confirms_of(1).is_none());
    assert!(old.write(pieces("old")).now_or_never().expect("at once").is_err());
    drop(new.write(pieces("new")));
    assert_eq!(next(&channels).as_deref(), Some("new"));
    assert_eq!(next(&channels), None);
}

#[test]
fn nothing_is_written_on_a_channel_that_one_side_has_ended() {
    for library in [false, true] {
        let channels = OwnChannels::default();
        let (one, other) = (channels.register(1), channels.register(2));
        let before = one.write(pieces("before"));
        drop(other.write(pieces("other")));
        if library {
            channels.library_ends(1);
        } else {
            channels.broker_ends(1, Ended::ByTheBroker(406, "no".into()));
        }
        let after = one.write(pieces("after"));
        for lost in [before.now_or_never(), after.now_or_never()] {
            let error = lost.expect("known").expect_err("not written");
            assert_eq!(crate::error::refusal(&error).is_some(), !library);
        }
        assert_eq!(next(&channels).as_deref(), Some("other"));
        assert_eq!(next(&channels), None);
    }
}

#[test]
fn what_is_written_is_known() {
    let channels = OwnChannels::default();
    let one = channels.register(1);
    let mut writing = one.write(pieces("one")).boxed();
    assert!((&mut writing).now_or_never().is_none());
    let unit = channels.next(Some(1)).expect("it waits");
    unit.written.send(()).expect("somebody waits");
    assert!(writing.now_or_never().expect("written").is_ok());
}

/// The library closes a channel whose batch took too long. It takes a late confirm for a fault of the connection.
#[test]
fn late_confirms_of_a_channel_that_the_library_ends_are_still_taken() {
    let channels = OwnChannels::default();
    let _confirms = channels.register(1).take_confirms();
    channels.library_ends(1);
    assert!(channels.confirms_of(1).is_some());
    channels.is_over(1);
    assert!(channels.confirms_of(1).is_none());
}

/// As with confirms: the library ends its connection if a channel is closed that it takes for open.
#[test]
fn who_waits_for_a_message_hears_of_the_end_of_the_channel_once_the_library_has_answered() {
    let channels = OwnChannels::default();
    let deliveries = DeliveryQueue::new(channels.register(1), Origin::new("orders", "", ""));
    let mut getting = deliveries.get("orders", false).boxed();
    assert!((&mut getting).now_or_never().is_none());
    assert!(next(&channels).is_some_and(|frame| frame.contains("orders")));
    channels.broker_ends(1, Ended::ByTheBroker(404, "gone".into()));
    assert!((&mut getting).now_or_never().is_none());
    channels.is_over(1);
    let error = getting.now_or_never().expect("known").expect_err("no message");
    assert_eq!(crate::error::refusal(&error), Some((404, "gone".into())));
    let late = deliveries.get("orders", false).now_or_never().expect("at once");
    assert!(late.is_err());
}

#[test]
fn nothing_waits_on_a_connection_that_has_ended() {
    let channels = OwnChannels::default();
    let before = channels.register(1);
    channels.connection_ends(Ended::ByTheBroker(320, "shut down".into()));
    assert!(before.write(pieces("late")).now_or_never().expect("at once").is_err());
    channels.connection_has_ended(Ended::default());
    let after = channels.register(2);
    for channel in [before, after] {
        let error = channel.write(pieces("late")).now_or_never().expect("at once").expect_err("not written");
        assert_eq!(crate::error::refusal(&error), Some((320, "shut down".into())));
    }
    assert_eq!(next(&channels), None);
}
