//! The task of whoever is on call, by the command line alone: orders fail; find why, send the group back, see the shelf empty. On
//! RabbitMQ, on the emulators of RabbitMQ and Service Bus, and on the in-process broker of a service.

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod edits;
mod export;
#[cfg(target_os = "linux")]
mod full_disk;
mod looking;
mod parking;
mod running;
#[cfg(unix)]
mod serving;
mod subscribers;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod undo;

use std::collections::HashSet;

use common::{Cli, Shop};
use redrive_brokers::Version;
use subscribers::one_subscriber;

/// Tests of one shop.
macro_rules! tests {
    ($shop:expr; $($(#[$attribute:meta])* $name:ident: $run:path,)*) => {
        $(
            $(#[$attribute])*
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                $run(&$shop.await).await;
            }
        )*
    };
}

/// Tests on RabbitMQ itself: the task.
macro_rules! on_rabbitmq {
    ($version:expr) => {
        use super::*;

        tests! { Shop::fanout($version);
            a_redrive_reaches_one_subscriber: one_subscriber,
        }

        tests! { Shop::rabbitmq($version);
            find_explain_and_redrive: the_task,
            #[cfg(unix)]
            find_explain_and_redrive_on_the_page: terminal::the_page,
        }
    };
}

/// Tests on its emulator: the task, and what can go wrong with it.
macro_rules! on_rabbitmq_emulator {
    ($version:expr) => {
        use super::super::*;

        tests! { Shop::rabbitmq_emulator($version);
            a_run_stops_when_the_same_failure_comes_back: running::stops,
            a_run_that_achieved_nothing_does_not_read_as_success: running::does_not_read_as_success,
            large_and_binary_bodies_are_shown_and_come_back: looking::bodies,
            what_others_write_is_compared_exactly_and_believed_within_reason: looking::foreign,
            #[cfg(unix)]
            an_edit_shows_its_progress: edits::an_edit_shows_its_progress,
            #[cfg(unix)]
            an_edit_that_is_told_to_end_goes_on: edits::an_edit_that_is_told_to_end_goes_on,
            #[cfg(unix)]
            an_edit_judges_nothing_beside_a_dead_one: edits::an_edit_judges_nothing_beside_a_dead_one,
            many_are_edited_by_a_program: many_are_edited,
            find_explain_and_redrive: the_task,
            #[cfg(unix)]
            find_explain_and_redrive_on_the_page: terminal::the_page,
            looking_changes_nothing: looking::looking,
            a_refused_password_is_named_by_its_place: looking::refused_password,
            a_typed_secret_counts_before_the_environment: looking::typed_secret,
            a_queue_that_is_missing_is_named: looking::unknown,
            a_run_is_controlled_from_another_process: running::control,
            a_run_that_waits_says_why: running::waits,
            a_discard_goes_on_without_what_vanished: running::a_discard_goes_on,
            what_another_client_holds_is_not_passed_over: running::beside_a_consumer,
            a_run_needs_no_parking_queue: running::without_a_parking_queue,
            a_message_that_cannot_be_carried_stops_no_other: export::what_no_broker_carries_stops_no_other,
            #[cfg(unix)]
            an_undo_restores_nothing_that_another_client_reads: undo::while_another_client_reads,
            the_options_of_a_service_are_explained: service,
        }
    };
}

mod v3_10 {
    on_rabbitmq!(Version::V3_10);
}

mod v4_3 {
    on_rabbitmq!(Version::V4_3);
}

mod rabbitmq_emulator {
    mod as_3_10 {
        on_rabbitmq_emulator!(redrive_rabbitmq_emulator::Version::V3_10);
    }

    mod as_4_3 {
        on_rabbitmq_emulator!(redrive_rabbitmq_emulator::Version::V4_3);
    }

    #[cfg(unix)]
    #[tokio::test(flavor = "multi_thread")]
    async fn a_look_that_is_interrupted_gives_back_what_it_read() {
        let shop = super::Shop::rabbitmq_emulator(redrive_rabbitmq_emulator::Version::V4_3).await;
        super::looking::interrupted(&shop).await;
    }

    #[cfg(unix)]
    #[tokio::test(flavor = "multi_thread")]
    async fn an_edit_goes_on_when_its_broker_is_back() {
        let (shop, _folder) = super::Shop::durable_rabbitmq_emulator().await;
        super::edits::an_edit_goes_on_when_its_broker_is_back(&shop).await;
    }
}

mod servicebus {
    use super::*;

    tests! { Shop::subscriptions();
        a_redrive_reaches_one_subscriber: one_subscriber,
    }

    tests! { Shop::servicebus();
        a_run_stops_when_the_same_failure_comes_back: running::stops,
        many_are_edited_by_a_program: many_are_edited,
        find_explain_and_redrive: the_task,
        looking_changes_nothing: looking::looking,
        a_run_is_controlled_from_another_process: running::control,
        the_options_of_a_service_are_explained: service,
    }
}

#[cfg(unix)]
mod memory {
    use super::*;

    tests! { Shop::memory();
        #[cfg(target_os = "linux")]
        a_run_goes_on_when_its_disk_has_room_again: full_disk::a_run_goes_on_when_there_is_room,
        a_killed_edit_goes_on_with_the_same_command: edits::a_killed_edit_goes_on,
        find_explain_and_redrive: the_task,
        find_explain_and_redrive_on_the_page: terminal::the_page,
        a_page_that_is_told_to_end_leaves_the_terminal_as_it_was: terminal::told_to_end,
        looking_changes_nothing: looking::looking,
        a_run_is_controlled_from_another_process: running::control,
        a_run_that_achieved_nothing_does_not_read_as_success: running::does_not_read_as_success,
        a_run_that_is_told_to_end_ends_after_its_step: running::told_to_end,
        the_service_says_which_queues_it_has: looking::queues,
        a_discard_that_was_killed_within_a_step_is_undone: undo::of_a_killed_discard,
        two_at_once_put_messages_back_once: undo::two_at_once,
        two_pages_on_one_host_have_two_sessions: serving::two_pages_on_one_host,
    }

    tests! { Shop::small_memory();
        an_undo_on_a_full_shelf_is_tried_again: undo::on_a_full_shelf,
    }
}

async fn the_task(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &shop.queue;

    let shelves = cli.ok(&["shelves", queue]).await;
    assert!(shelves.out.contains("dead-letter  5"), "{}", shelves.out);
    let groups = cli.json(&["groups", queue]).await;
    let names: Vec<_> =
        groups["groups"].as_array().unwrap().iter().map(|group| (&group["name"], &group["count"])).collect();
    assert_eq!(format!("{names:?}"), r#"[(String("g1"), Number(3)), (String("g2"), Number(2))]"#);
    assert_eq!(groups["groups"][0]["text"], "order <number>: no answer from the stock");

    let shown = cli.ok(&["show", queue, "--group", "g1"]).await;
    assert!(
        shown.out.contains("no answer from the stock") && shown.out.contains("NonRetryableError"),
        "{}",
        shown.out
    );
    let by_name = cli.ok(&["show", queue, "g1"]).await;
    assert!(by_name.out.contains("no answer from the stock"), "a name is no filter: {}", by_name.out);
    // The message asks for a red terminal, and does not get it.
    assert!(!shown.out.contains('\u{1b}'), "{:?}", shown.out);

    // Nobody can be asked.
    let refused = cli.run(&["redrive", queue, "g1"]).await;
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("Pass --yes"), "{}", refused.err);
    shop.has_shelved(5).await;
    // Nothing is assumed.
    assert_eq!(cli.run(&["discard", queue, "--yes"]).await.code, 2);
    // The whole shelf would be more than the group.
    assert_eq!(cli.run(&["--read-only", "redrive", queue, "g1", "--yes"]).await.code, 2);

    // The stock answers again.
    let service = shop.repaired().await;
    // Where its consumer reports it, nobody waits longer for the canary.
    let wait = if shop.has_reports() { "1h" } else { "1s" };
    let done = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", wait]).await;
    assert_eq!(done.code, 0, "{}\n{}", done.out, done.err);
    assert!(done.out.contains("3 of 3 done"), "{}", done.out);
    assert_eq!(
        done.out.contains("were handled, as their consumer reported"),
        shop.has_reports(),
        "{}",
        done.out
    );
    service.handled(3).await;
    shop.has_shelved(2).await;

    // One order is mended by hand and sent back.
    let listed = cli.json(&["browse", queue]).await;
    let handle = listed[0]["handle"].as_str().unwrap();
    let editor = r#"sed -i 's/"headers": {}/"headers": {"checked": true}/'"#;
    let by_id = format!("id:{}", listed[0]["properties"]["id"].as_str().expect("an id"));
    assert!(cli.ok(&["show", queue, &by_id]).await.out.contains(handle), "the only one that matches");
    let edited = cli.with("EDITOR", editor).run(&["edit", queue, &by_id, "--yes"]).await;
    assert_eq!(edited.code, 0, "{}\n{}", edited.out, edited.err);
    assert!(edited.out.contains("checked"), "{}", edited.out);
    service.handled(4).await;
    shop.has_shelved(1).await;
    // Not changed, not done.
    let handle = cli.json(&["browse", queue]).await[0]["handle"].as_str().unwrap().to_owned();
    let unchanged = cli.with("EDITOR", "true").run(&["edit", queue, &handle, "--yes"]).await;
    assert!(unchanged.code == 1 && unchanged.err.contains("was not edited"), "{}", unchanged.err);

    // What nobody needs is discarded, and was exported before.
    let discarded = cli.run(&["discard", queue, "g2", "--yes", "--reason", "test orders"]).await;
    assert_eq!(discarded.code, 0, "{}\n{}", discarded.out, discarded.err);
    running::says_undo(shop, &cli, &discarded);
    shop.has_shelved(0).await;
    assert_eq!(cli.originals(), 5);
    let ok = cli.ok(&["check", queue, "--warn", "0", "--critical", "0"]).await;
    assert!(ok.out.starts_with("OK - "), "{}", ok.out);
    let audit = cli.audit();
    let counts = audit.iter().map(|record| (record["action"].as_str(), record["counts"]["done"].as_u64()));
    let counts: Vec<_> = counts.map(|(action, done)| (action.unwrap(), done.unwrap())).collect();
    assert_eq!(counts, [("redrive", 3), ("edit", 1), ("discard", 1)]);
    assert_eq!(audit[2]["reason"], "test orders");
    let runs = cli.json(&["runs", "list"]).await;
    assert_eq!(runs.as_array().unwrap().len(), 2);
    running::undo(shop, &cli, runs[0]["run"].as_str().unwrap()).await;
    service.stop().await;
    shop.tidy_up().await;
}

/// Edits that may not be made, or that change nothing.
async fn wrong_edits(cli: &Cli, queue: &str) {
    for (arguments, code, said) in [
        (&["error~stock", "--jq", ".properties.id = \"order-9\""][..], 1, "--sensitive"),
        (&["error~stock", "--jq", ".headers[\"redrive-attempt\"] = 0"], 1, "redrive-attempt"),
        (&["error~stock", "--jq", ".body"], 1, "cannot read the edited text"),
        (
            &["error~stock", "--jq", ".body = = 1"],
            2,
            "the program of --jq is wrong: expected term at character 9",
        ),
        (&["error~stock", "--jq", "., ."], 2, "more than one message"),
        (&["error~stock", "--timeout", "20s", "--jq", "def f: f; f"], 1, "a loop in it that does not end"),
        (&["error~stock", "--jq", "."], 0, "changes 0 of 3"),
        (&["--jq", ".body = 1"], 2, "which messages?"),
        (&["error~stock"], 2, "3 messages match, and one is meant"),
        (&["id:order-9"], 2, "0 of 5 messages match on the dead-letter shelf of"),
        (&["dead-letter/00"], 2, "is not on the dead-letter shelf of"),
        (&[], 2, "which message?"),
    ] {
        let answer = cli.run(&[&["edit", queue, "--yes"], arguments].concat()).await;
        assert_eq!(answer.code, code, "{arguments:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    }
}

/// All messages of a group are mended by one program, kept, and sent back by the plan that it makes.
async fn many_are_edited(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let edit =
        ["edit", queue, "error~stock", "--jq", r#".headers.checked = true | .body |= sub("order"; "0rder")"#];
    let nobody = cli.run(&edit).await;
    assert!(nobody.code == 2 && nobody.err.contains("Pass --yes"), "{}", nobody.err);
    assert!(nobody.out.contains("+header checked: true"), "what it would change: {}", nobody.out);
    let dry = cli.ok(&[&["--read-only"][..], &edit, &["--dry-run"]].concat()).await;
    assert_eq!(dry.out, nobody.out);
    assert!(dry.err.contains("changes 3 of 3 messages; nothing was changed"), "{}", dry.err);
    let edited = cli.run(&[&edit[..], &["--yes", "--reason", "a typing error"]].concat()).await;
    if !shop.takes_restored() {
        assert_eq!(edited.code, 1, "{}", edited.out);
        assert!(
            edited.err.contains("lets nobody store an edit in the dead-letter queue of `orders`"),
            "{}",
            edited.err
        );
        assert!(edited.err.contains("`redrive park orders`") && cli.originals() == 0, "{}", edited.err);
        return parking::edited_on_the_parking_queue(shop, &cli, &edit).await;
    }
    assert_eq!(edited.code, 0, "{}\n{}", edited.out, edited.err);
    assert!(
        edited.out.contains("+header checked: true") && edited.out.contains("3 of 3 edited"),
        "{}",
        edited.out
    );
    shop.has_shelved(5).await;
    assert_eq!(cli.originals(), 3);
    let shelf = cli.json(&["browse", queue, "header.checked:true"]).await;
    assert_eq!(shelf.as_array().unwrap().len(), 3, "{shelf}");
    let story = shelf[0]["story"]["error"].as_str().unwrap_or_default();
    assert!(story.ends_with("no answer from the stock"), "the story is kept: {}", shelf[0]);
    let again = cli.ok(&[&edit[..], &["--yes"]].concat()).await;
    assert!(again.err.contains("changes 0 of 3"), "{}", again.err);

    let plan = edited.out.trim().rsplit(' ').next().expect("a plan");
    let service = shop.repaired().await;
    let applied = cli.run(&["apply", plan, "--yes", "--canary-wait", "1h"]).await;
    assert_eq!(applied.code, 0, "{}\n{}", applied.out, applied.err);
    service.handled(3).await;
    shop.has_shelved(2).await;
    let audit = cli.audit();
    assert_eq!((&audit[0]["action"], &audit[0]["reason"]), (&"edit".into(), &"a typing error".into()));
    service.stop().await;
    shop.tidy_up().await;
}

async fn service(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    cli.write("service.toml", "[orders]\nMaxDeliveryCount = 3\nRetry = { Base = 1, Factor = 10 }\n");
    cli.write("wrong.json", r#"{"orders":{"Retry":{"Base":"soon"}}}"#);
    let file = cli.path("service.toml").display().to_string();
    let explained = cli.ok(&["explain", queue, "--options", &file, "--section", "orders"]).await;
    assert!(explained.out.contains("At most 3 attempts, 11s of waiting"), "{}", explained.out);
    let preflight = cli.run(&["preflight", queue, "--options", &file, "--section", "orders"]).await;
    assert_eq!(preflight.code, 0, "{}{}", preflight.out, preflight.err);
    // What the library declares is what the commands assume.
    for said in [&explained.out, &preflight.out] {
        assert!(!said.contains("classic") && !said.contains("does not count deliveries"), "{said}");
    }
    let topology = cli.json(&["topology", queue, "--options", &file, "--section", "orders"]).await;
    let queues = topology["queues"].as_array().unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    assert!(names.contains(&&*format!("{queue}--retry-10000ms")), "{names:?}");
    let types = queues.iter().map(|queue| &queue["arguments"]["x-queue-type"]).collect::<HashSet<_>>();
    assert_eq!(types, HashSet::from([&"quorum".into()]));
    let wrong = cli.path("wrong.json").display().to_string();
    let wrong = cli.run(&["explain", queue, "--options", &wrong, "--section", "orders"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("Retry.Base"), "{}", wrong.err);

    export::exported(&cli, queue).await;
    shop.tidy_up().await;
}

/// Nobody listens there: an error that says where, and what to look at.
#[tokio::test]
async fn a_broker_that_cannot_be_reached_is_named() {
    let shop = Shop::servicebus().await;
    let cli = Cli::new(&shop);
    for arguments in [&["shelves", "orders"][..], &["redrive", "orders", "--all", "--yes"]] {
        let broker = ["--broker", "amqp://guest@127.0.0.1:9", "--timeout", "5s"];
        let refused = cli.run(&[&broker[..], arguments].concat()).await;
        assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
        assert!(
            refused.err.contains("127.0.0.1:9") && refused.err.contains("is it running"),
            "{}",
            refused.err
        );
    }
}
