use std::time::UNIX_EPOCH;

use redrive_core::transport::{DeliveryBuilder, Origin};
use redrive_core::{Message, header_names};

use proptest::prelude::*;

use super::*;

fn key(id: &str) -> Key {
    Key::of(&Delivery::new(Message::new("").with_id(id), "q", UNIX_EPOCH))
}

fn read(lines: &[&str]) -> Result<LedgerState, String> {
    let mut text = format!("{TITLE}\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    LedgerState::read(&text)
}

#[test]
fn what_began_and_never_ended_is_counted() {
    let state = read(&["+ 0 a", "+ 0 b", "- 0 a", "+ 0 c"]).unwrap();
    assert_eq!((state.deaths(&key("a")), state.deaths(&key("b")), state.deaths(&key("c"))), (0, 1, 1));
    assert_eq!(state.counted(), 2);
}

#[test]
fn what_is_given_back_keeps_its_count_and_gets_no_other() {
    let state = read(&["! 2 0 a", "+ 0 a", "< 0 a", "+ 0 b", "< 0 b"]).unwrap();
    assert_eq!((state.deaths(&key("a")), state.deaths(&key("b")), state.counted()), (2, 0, 1));
    assert_eq!(state.write(), format!("{TITLE}\n! 2 0 a\n"));
}

#[test]
fn every_process_that_dies_counts_and_an_end_clears() {
    let mut state = LedgerState::default();
    for deaths in 0..3 {
        assert_eq!(state.deaths(&key("a")), deaths);
        state.begin(&key("a"));
        state = LedgerState::read(&state.write()).unwrap();
    }
    state.begin(&key("a"));
    state.end(&key("a"));
    assert_eq!((state.deaths(&key("a")), state.counted()), (0, 0));
    assert_eq!(state.write(), format!("{TITLE}\n"));
}

#[test]
fn a_copy_is_another_message() {
    let copy = Message::new("").with_id("a").with_header(header_names::HOP, 1_i64);
    let copy = Key::of(&Delivery::new(copy, "q", UNIX_EPOCH));
    assert_eq!(read(&["+ 0 a"]).unwrap().deaths(&copy), 0);
}

#[test]
fn an_id_that_is_handled_twice_at_once_dies_once() {
    let mut state = LedgerState::default();
    state.begin(&key("a"));
    state.begin(&key("a"));
    assert_eq!(LedgerState::read(&state.write()).unwrap().deaths(&key("a")), 1);
    state.end(&key("a"));
    assert_eq!(
        LedgerState::read(&state.write()).unwrap().deaths(&key("a")),
        1,
        "the other one is still at it"
    );
}

#[test]
fn the_end_of_the_file_may_be_missing() {
    assert_eq!(LedgerState::read("").unwrap(), LedgerState::default());
    assert_eq!(LedgerState::read("redrive le").unwrap(), LedgerState::default());
    let state = LedgerState::read(&format!("{TITLE}\n+ 0 a\n- 0 ")).unwrap();
    assert_eq!(state.deaths(&key("a")), 1);
}

#[test]
fn what_redrive_does_not_write_is_no_ledger() {
    assert!(LedgerState::read("dear diary\n").unwrap_err().contains("no ledger of redrive"));
    assert!(LedgerState::read("dear diary").is_err());
    for line in ["", "+", "+ a", "+ 0 ", "! 0 0 a", "! x 0 a", "* 0 a", "+ 0 a b"] {
        assert!(read(&["+ 0 a", line]).unwrap_err().contains("line 3"), "{line:?}");
    }
}

#[test]
fn a_message_without_an_id_is_known_by_its_content() {
    let counting = Origin::new("q", "", "").with_counting_headers(&["count"]);
    let counted = |body: &'static str, tenant: &str, times: i64| {
        let message = Message::new(body).with_header("tenant", tenant).with_header("count", times);
        DeliveryBuilder::new(message, counting.clone(), UNIX_EPOCH).build()
    };
    let nameless = |body, tenant| counted(body, tenant, 1);
    let mut state = LedgerState::default();
    state.begin(&Key::of(&nameless("a", "blue")));
    let state = LedgerState::read(&state.write()).unwrap();
    assert_eq!(state.deaths(&Key::of(&counted("a", "blue", 2))), 1);
    for other in [nameless("b", "blue"), nameless("a", "green")] {
        assert_eq!(state.deaths(&Key::of(&other)), 0);
    }
    let looks_like_one = Key::of(&counted("a", "blue", 2)).0.replacen("0 ", "", 1);
    assert_eq!(state.deaths(&key(&looks_like_one)), 0, "an id is no hash");
}

#[test]
fn of_those_that_never_come_again_the_oldest_are_forgotten() {
    let mut state = LedgerState::default();
    for number in 0..=MOST_COUNTED {
        state.begin(&key(&number.to_string()));
    }
    let state = LedgerState::read(&state.write()).unwrap();
    assert_eq!(state.counted(), MOST_COUNTED);
    assert_eq!((state.deaths(&key("0")), state.deaths(&key("1"))), (0, 1));
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(ids in prop::collection::vec(("\\PC{1,20}", any::<bool>()), 0..30)) {
        let mut state = LedgerState::default();
        let mut text = format!("{TITLE}\n");
        for (id, ends) in &ids {
            text.push_str(&state.begin(&key(id)));
            if *ends {
                text.push_str(&state.end(&key(id)));
            }
        }
        let (from_lines, from_book) = (LedgerState::read(&text).unwrap(), LedgerState::read(&state.write()).unwrap());
        for (id, _) in &ids {
            prop_assert_eq!(from_lines.deaths(&key(id)), from_book.deaths(&key(id)));
        }
        prop_assert_eq!(from_lines.counted(), from_book.counted());
    }

    #[test]
    fn no_text_panics(text in "\\PC*|(redrive ledger 1\n)([-+!] [0-9]{1,3} [a-z ]{0,5}\n){0,9}") {
        let _ = LedgerState::read(&text);
    }
}
