//! Reading a history back, whatever somebody else wrote into its headers.

use crate::arbitrary::{headers, message, now, value};
use proptest::prelude::*;
use redrive_core::{Count, Delivery, FailureHistory, Message, header_names as names};

proptest! {
    #[test]
    fn reading_never_panics(headers in headers()) {
        let message = Message::from_parts(Default::default(), headers, Default::default());
        let delivery = Delivery::new(message, "orders", now());
        let _ = (delivery.attempt(), delivery.broker_delivery_count(), delivery.history().unreadable());
        prop_assert!(delivery.attempt() >= 1 && delivery.broker_delivery_count() >= 1);
    }

    #[test]
    fn a_count_is_what_an_integer_says_or_the_highest(value in value()) {
        let message = Message::new("").with_header(names::ATTEMPT, value.clone());
        let history = FailureHistory::read(&message);
        match value.to_integer() {
            Some(said) if said >= 0 => prop_assert_eq!(i128::from(history.failures()), said.min(u32::MAX.into())),
            _ => {
                prop_assert_eq!(history.attempt, Count::Unreadable);
                prop_assert_eq!(history.failures(), u32::MAX);
                prop_assert_eq!(history.unreadable(), vec![names::ATTEMPT]);
            }
        }
    }

    #[test]
    fn foreign_headers_tell_no_story(message in message()) {
        let mut message = message;
        message.headers_mut().retain(|name, _| !name.starts_with(names::PREFIX));
        prop_assert_eq!(FailureHistory::read(&message), FailureHistory::default());
    }
}
