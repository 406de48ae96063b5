use std::collections::VecDeque;

use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::frames::{CopyChannel, OwnChannels};

fn written(id: &str) -> Written {
    Written { header: Bytes::copy_from_slice(id.as_bytes()), body: Bytes::from_static(b"body") }
}

fn begun(ids: &[&str]) -> Unconfirmed {
    let mut unconfirmed = Unconfirmed::default();
    unconfirmed.begin(ids.iter().map(|id| written(id)).collect());
    unconfirmed
}

fn shown(answers: &[Answer]) -> String {
    let letter = |answer: &Answer| match answer {
        Answer::Stored => 's',
        Answer::Returned(_) => 'r',
        Answer::Refused => 'n',
    };
    answers.iter().map(letter).collect()
}

impl Unconfirmed {
    fn back(&mut self, id: &str) {
        self.came_back(id.as_bytes(), b"body", "NO_ROUTE");
    }
}

#[test]
fn each_gets_its_own_answer_however_they_are_confirmed() {
    let mut one = begun(&["a", "b", "c", "d"]);
    one.confirm(2, false, true);
    one.back("c");
    one.confirm(1, false, false);
    assert_eq!(one.missing, 2);
    one.confirm(4, true, true);
    assert_eq!((one.missing, &*shown(&one.answers())), (0, "nsrs"));
    // The numbers go on in the next batch.
    one.begin(vec![written("e"), written("f")]);
    one.confirm(4, true, true);
    assert_eq!(one.missing, 2, "that was for the batch before");
    one.confirm(6, true, true);
    assert_eq!((one.missing, &*shown(&one.answers())), (0, "ss"));
}

#[test]
fn what_came_back_is_known_by_its_content() {
    let mut twins = begun(&["twin", "a", "twin"]);
    twins.back("twin");
    twins.confirm(3, true, true);
    assert_eq!(shown(&twins.answers()), "rss", "one of two equal ones was stored");
    let mut changed = begun(&["a", "b", "c"]);
    changed.confirm(1, false, true);
    changed.back("changed on its way");
    changed.confirm(3, true, true);
    assert_eq!(shown(&changed.answers()), "srr");
}

#[test]
fn a_message_that_came_back_was_not_refused() {
    let mut one = begun(&["a"]);
    one.back("a");
    one.confirm(1, false, false);
    assert_eq!(shown(&one.answers()), "r");
}

#[test]
fn numbers_that_nobody_waits_for_are_ignored() {
    let mut one = begun(&["a"]);
    one.confirm(0, true, true);
    one.confirm(2, true, true);
    assert_eq!(one.missing, 1);
    one.confirm(1, true, true);
    one.confirm(1, true, true);
    assert_eq!(one.missing, 0);
}

#[tokio::test]
async fn the_caller_hears_of_the_last_answer_and_of_the_end() {
    let channels = OwnChannels::default();
    let copies = CopyChannel::new(channels.register(1));
    let confirms = channels.confirms_of(1).expect("taken");
    let mut publishing = std::pin::pin!(copies.publish(vec![written("a"), written("b")], VecDeque::new()));
    assert!(publishing.as_mut().now_or_never().is_none());
    confirms.confirm(1, false, true);
    confirms.wake();
    assert!(publishing.as_mut().now_or_never().is_none());
    confirms.confirm(2, false, true);
    confirms.wake();
    assert_eq!(publishing.now_or_never().expect("answered").expect("stored").len(), 2);

    let mut publishing = std::pin::pin!(copies.publish(vec![written("c")], VecDeque::new()));
    assert!(publishing.as_mut().now_or_never().is_none());
    channels.broker_ends(1, Ended::ByTheBroker(406, "PRECONDITION_FAILED - too large".into()));
    assert!(publishing.as_mut().now_or_never().is_none(), "the library does not know it yet");
    channels.is_over(1);
    let error = publishing.now_or_never().expect("ended").expect_err("not known");
    assert_eq!(crate::error::refusal(&error), Some((406, "PRECONDITION_FAILED - too large".into())));
    assert!(copies.publish(vec![written("d")], VecDeque::new()).now_or_never().expect("at once").is_err());
}

proptest! {
    /// A broker that stores, refuses or returns each message, and confirms in any groups.
    #[test]
    fn every_message_gets_the_answer_that_the_broker_gave(
        fates in proptest::collection::vec(0..3_u8, 1..60), groups in proptest::collection::vec(1..9_usize, 60),
        batches in 1..4_u64,
    ) {
        let mut unconfirmed = Unconfirmed::default();
        for batch in 0..batches {
            let ids: Vec<_> = (0..fates.len()).map(|at| at.to_string()).collect();
            unconfirmed.begin(ids.iter().map(|id| written(id)).collect());
            let mut at = 0;
            for group in &groups {
                let until = (at + group).min(fates.len());
                // A group of one fate, as the broker confirms it.
                let until = (at..until).find(|next| (fates[*next] == 1) != (fates[at.min(fates.len() - 1)] == 1)).unwrap_or(until);
                if at == until {
                    break;
                }
                (at..until).filter(|next| fates[*next] == 2).for_each(|next| unconfirmed.back(&ids[next]));
                let tag = batch * fates.len() as u64 + until as u64;
                unconfirmed.confirm(tag, until - at > 1, fates[at] != 1);
                at = until;
            }
            while at < fates.len() {
                if fates[at] == 2 {
                    unconfirmed.back(&ids[at]);
                }
                at += 1;
                unconfirmed.confirm(batch * fates.len() as u64 + at as u64, false, fates[at - 1] != 1);
            }
            prop_assert_eq!(unconfirmed.missing, 0);
            let expected: String = fates.iter().map(|fate| ['s', 'n', 'r'][usize::from(*fate)]).collect();
            prop_assert_eq!(shown(&unconfirmed.answers()), expected);
        }
    }
}
