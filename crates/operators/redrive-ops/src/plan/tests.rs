use std::time::{Duration, UNIX_EPOCH};

use redrive_core::shelves::EntryHandle;
use redrive_core::{Message, header_names as names};

use super::*;

fn entry(number: u32, message: Message) -> Shelved {
    Shelved::new(EntryHandle::new(Shelf::DeadLetter, number.to_string()), message)
}

fn plan(action: PlanAction, shelf: Shelf, entries: &[Shelved], options: &PlanOptions) -> Plan {
    Plan::new(action, shelf, entries, options, UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

fn redrive(entries: &[Shelved]) -> Plan {
    plan(PlanAction::Redrive, Shelf::DeadLetter, entries, &PlanOptions::new("orders"))
}

#[test]
fn what_was_redriven_too_often_is_parked_and_comes_last() {
    let redriven = |number, times: i64| entry(number, Message::new("").with_header(names::REDRIVES, times));
    let plan = redrive(&[redriven(1, 3), redriven(2, 2), redriven(3, -1), redriven(4, 0)]);
    let targets: Vec<_> =
        plan.entries().iter().map(|entry| (entry.handle.entry(), entry.target.action())).collect();
    let (back, parked) = (PlanAction::Redrive, PlanAction::Park);
    // A count that cannot be read is no reason to send back forever.
    assert_eq!(targets, [("2", back), ("4", back), ("1", parked), ("3", parked)]);
    assert_eq!((plan.count(back), plan.count(parked)), (2, 2));
}

#[test]
fn what_is_parked_and_was_redriven_too_often_stays_for_a_person() {
    let message = Message::new("").with_header(names::REDRIVES, 9_i64);
    let parked = [Shelved::new(EntryHandle::new(Shelf::Parking, "1"), message)];
    let options = PlanOptions::new("orders");
    let why = |action, options: &PlanOptions| {
        plan(action, Shelf::Parking, &parked, options)
            .left_out()
            .iter()
            .map(|entry| entry.why)
            .collect::<Vec<_>>()
    };
    assert_eq!(why(PlanAction::Redrive, &options), [WhyLeftOut::RedrivenTooOften]);
    assert_eq!(why(PlanAction::Redrive, &options.clone().max_redrives(10)), []);
    assert_eq!(why(PlanAction::Park, &options), [WhyLeftOut::ParkedAlready]);
    assert_eq!(why(PlanAction::Discard, &options), []);
}

#[test]
fn what_carries_a_story_that_could_not_be_unpacked_stays_where_it_is() {
    let entries = [entry(1, Message::new("").with_header(names::STORY, r#"{"v":2}"#))];
    for (action, left_out) in [(PlanAction::Redrive, 1), (PlanAction::Park, 1), (PlanAction::Discard, 0)] {
        let plan = plan(action, Shelf::DeadLetter, &entries, &PlanOptions::new("orders"));
        let why: Vec<_> = plan.left_out().iter().map(|entry| entry.why).collect();
        assert_eq!(why, vec![WhyLeftOut::NotReadable; left_out]);
    }
}

#[test]
fn what_cannot_be_planned_is_left_out_with_the_reason() {
    let mut unreadable = entry(2, Message::new(""));
    unreadable.history.read_without = Some("a header".into());
    let other = Shelved::new(EntryHandle::new(Shelf::Parking, "3"), Message::new(""));
    let entries = [
        entry(1, Message::new("")),
        entry(1, Message::new("")),
        unreadable,
        other,
        entry(4, Message::new("")),
    ];
    let options = PlanOptions::new("orders").limit(1);
    let plan = plan(PlanAction::Redrive, Shelf::DeadLetter, &entries, &options);
    let left_out: Vec<_> = plan.left_out().iter().map(|entry| (entry.handle.entry(), entry.why)).collect();
    let expected = [
        ("1", WhyLeftOut::Twice),
        ("2", WhyLeftOut::BeyondLimit),
        ("3", WhyLeftOut::OtherShelf),
        ("4", WhyLeftOut::BeyondLimit),
    ];
    assert_eq!(left_out, expected);
    let plan = redrive(&entries);
    assert_eq!(plan.left_out()[1].why, WhyLeftOut::NotReadable);
    assert_eq!(plan.entries().len(), 2);
}

#[test]
fn an_entry_goes_to_its_owner_and_that_of_another_queue_nowhere() {
    let of = |number, owner, queue: &str| {
        let mut entry = entry(number, Message::new("").with_header(names::SOURCE_QUEUE, queue));
        entry.owner = owner;
        entry
    };
    let entries = [
        of(1, Owner::This, "orders"),
        of(2, Owner::Listed, "bulk"),
        of(3, Owner::Other, "payroll\u{1b}[2J"),
        // On a shelf that nobody shares, the name is not followed.
        of(4, Owner::This, "wages"),
        entry(5, Message::new("")),
    ];
    let options = PlanOptions::new("orders");
    let (orders, bulk) = (Target::Queue("orders".into()), Target::Queue("bulk".into()));
    let redriven = plan(PlanAction::Redrive, Shelf::DeadLetter, &entries, &options);
    let targets: Vec<_> =
        redriven.entries().iter().map(|entry| (&entry.target, entry.names.as_deref())).collect();
    assert_eq!(targets, [(&orders, None), (&bulk, None), (&orders, Some("wages")), (&orders, None)]);
    for action in [PlanAction::Redrive, PlanAction::Park, PlanAction::Discard] {
        let plan = plan(action, Shelf::DeadLetter, &entries, &options);
        let [left_out] = plan.left_out() else { panic!("{action}: {:?}", plan.left_out()) };
        assert_eq!((left_out.handle.entry(), left_out.why), ("3", WhyLeftOut::OtherQueue), "{action}");
        assert_eq!(left_out.failed_in.as_deref(), Some("payroll [2J"));
        assert_eq!(plan.entries().len(), 4);
    }
}

#[test]
fn the_same_entries_have_the_same_digest_and_any_other_another() {
    let base = redrive(&[entry(1, Message::new("a")), entry(2, Message::new("b"))]);
    assert_eq!(base.digest(), redrive(&[entry(1, Message::new("a")), entry(2, Message::new("b"))]).digest());
    let entries = [entry(1, Message::new("a")), entry(2, Message::new("b"))];
    let options = PlanOptions::new("orders");
    let others = [
        redrive(&entries[..1]),
        redrive(&[entry(1, Message::new("a")), entry(2, Message::new("c"))]),
        redrive(&[entry(1, Message::new("a")), entry(3, Message::new("b"))]),
        plan(PlanAction::Park, Shelf::DeadLetter, &entries, &options),
        plan(PlanAction::Discard, Shelf::DeadLetter, &entries, &options),
        plan(PlanAction::Redrive, Shelf::DeadLetter, &entries, &PlanOptions::new("other")),
    ];
    for other in others {
        assert_ne!(base.digest(), other.digest());
        assert_ne!(base.id(), other.id());
    }
}

#[test]
fn a_plan_that_was_changed_is_refused() {
    let plan = redrive(&[entry(1, Message::new("a")), entry(2, Message::new("b"))]);
    let stored = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
    let changes = [
        ("\"action\":\"redrive\"", "\"action\":\"discard\"", "digest"),
        ("dead-letter/2", "dead-letter/3", "digest"),
        ("dead-letter/2", "dead-letter/1", "twice"),
        ("dead-letter/2", "parking/2", "another shelf"),
        ("{\"queue\":\"orders\"}", "{\"queue\":\"payroll\"}", "digest"),
        ("\"v\":1", "\"v\":2", "version 2"),
    ];
    for (from, to, error) in changes {
        let changed = stored.replace(from, to);
        assert_ne!(changed, stored, "{from}");
        let said = serde_json::from_str::<Plan>(&changed).unwrap_err().to_string();
        assert!(said.contains(error), "{said}");
    }
}

#[test]
fn samples_have_no_secret_that_another_program_wrote() {
    let secret = "cannot connect to amqp://u:hunter2@h/";
    let message = Message::new("").with_header(names::REASON, "Broken").with_header(names::ERROR, secret);
    let entries = [entry(1, message.with_id("amqp://u:hunter2@h/"))];
    let plan = redrive(&entries);
    assert_eq!(plan.samples()[0].text.as_deref(), Some("cannot connect to amqp://u:***@h/"));
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"));
}

#[test]
fn samples_are_of_different_groups_and_have_no_control_characters() {
    let failed = |number: u32, text: &str| {
        let message = Message::new("").with_header(names::REASON, "Broken").with_header(names::ERROR, text);
        entry(number, message.with_id("\u{1b}[31m"))
    };
    let words = ["a", "a", "b", "c", "d\u{7}", "e", "f"];
    let entries: Vec<_> = words.iter().zip(1..).map(|(word, number)| failed(number, word)).collect();
    let plan = redrive(&entries);
    let texts: Vec<_> = plan.samples().iter().map(|sample| sample.text.as_deref().unwrap()).collect();
    assert_eq!(texts, ["a", "b", "c", "d ", "e"]);
    assert_eq!(plan.samples()[0].message_id.as_deref(), Some(" [31m"));
}
