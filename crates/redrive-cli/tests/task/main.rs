//! The task of whoever is on call, by the command line alone: orders fail; find why, send the group back, see the shelf empty. On
//! RabbitMQ, on the emulators of RabbitMQ and Service Bus, and on the in-process broker of a service.

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
mod edits;
#[cfg(target_os = "linux")]
mod full_disk;
mod parking;
mod subscribers;
#[cfg(unix)]
mod terminal;

use std::process::Stdio;

use common::{Cli, Shop};
use redrive::Message;
use redrive_brokers::Version;
use subscribers::one_subscriber;
use tokio::io::{AsyncBufReadExt as _, BufReader};

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
            a_run_stops_when_the_same_failure_comes_back: stops,
            large_and_binary_bodies_are_shown_and_come_back: bodies,
            #[cfg(unix)]
            an_edit_shows_its_progress: edits::an_edit_shows_its_progress,
            #[cfg(unix)]
            an_edit_that_is_told_to_end_goes_on: edits::an_edit_that_is_told_to_end_goes_on,
            many_are_edited_by_a_program: many_are_edited,
            find_explain_and_redrive: the_task,
            #[cfg(unix)]
            find_explain_and_redrive_on_the_page: terminal::the_page,
            looking_changes_nothing: looking,
            a_queue_that_is_missing_is_named: unknown,
            a_run_is_controlled_from_another_process: control,
            a_run_that_waits_says_why: waits,
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
        a_run_stops_when_the_same_failure_comes_back: stops,
        many_are_edited_by_a_program: many_are_edited,
        find_explain_and_redrive: the_task,
        looking_changes_nothing: looking,
        a_run_is_controlled_from_another_process: control,
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
        looking_changes_nothing: looking,
        a_run_is_controlled_from_another_process: control,
        the_service_says_which_queues_it_has: queues,
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
    let service = shop.repaired();
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
    let edited = cli.with("EDITOR", editor).run(&["edit", queue, handle, "--yes"]).await;
    assert_eq!(edited.code, 0, "{}\n{}", edited.out, edited.err);
    assert!(edited.out.contains("checked"), "{}", edited.out);
    service.handled(4).await;
    shop.has_shelved(1).await;
    // Not changed, not done.
    let handle = cli.json(&["browse", queue]).await[0]["handle"].as_str().unwrap().to_owned();
    let unchanged = cli.with("EDITOR", "true").run(&["edit", queue, &handle, "--yes"]).await;
    assert!(unchanged.code == 1 && unchanged.err.contains("as it was"), "{}", unchanged.err);

    // What nobody needs is discarded, and was exported before.
    let discarded = cli.run(&["discard", queue, "g2", "--yes", "--reason", "test orders"]).await;
    assert_eq!(discarded.code, 0, "{}\n{}", discarded.out, discarded.err);
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
    undo(shop, &cli, runs[0]["run"].as_str().unwrap()).await;
    service.stop().await;
    shop.tidy_up().await;
}

/// Brings the discarded message back once, and discards it again.
async fn undo(shop: &Shop, cli: &Cli, run: &str) {
    let undone = cli.run(&["undo", run, "--yes"]).await;
    if !shop.takes_restored() {
        assert_eq!(undone.code, 1, "{}", undone.out);
        assert!(undone.err.contains("lets nobody send to the dead-letter queue"), "{}", undone.err);
        return;
    }
    assert_eq!(undone.code, 0, "{}\n{}", undone.out, undone.err);
    let audit = cli.audit();
    let noted = audit.last().expect("a record");
    assert_eq!((&noted["action"], &noted["run_id"]), (&"undo".into(), &run.into()));
    shop.has_shelved(1).await;
    let again = cli.ok(&["undo", run, "--yes"]).await;
    assert!(again.out.contains("0 can be restored"), "{}", again.out);
    shop.has_shelved(1).await;
    assert_eq!(cli.run(&["discard", &shop.queue, "g2", "--yes"]).await.code, 0);
    assert_eq!(cli.run(&["undo", "r", "--yes"]).await.code, 2, "several runs begin so");
}

async fn looking(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &shop.queue;
    let before = shop.shelf().await;
    for _ in 0..5 {
        cli.ok(&["shelves", queue]).await;
        cli.ok(&["groups", queue]).await;
        cli.ok(&["browse", queue, "--limit", "2"]).await;
        cli.ok(&["show", queue, "--group", "g2"]).await;
        cli.ok(&["export", queue]).await;
        cli.ok(&["plan", queue, "--group", "g1"]).await;
        assert_eq!(cli.run(&["check", queue, "--warn", "4"]).await.code, 1);
    }
    where_says(&cli, queue).await;
    handles(&cli, queue).await;
    wrong_edits(&cli, queue).await;
    let after = shop.shelf().await;
    assert_eq!(before, after);
    export_and_import(shop, &cli).await;

    let wrong = cli.run(&["browse", queue, "age>soon"]).await;
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert_eq!(cli.run(&["show", queue, "dead-letter/00"]).await.code, 1);
    let missing = cli.run(&["redrive", queue, "g9", "--yes"]).await;
    assert!(missing.code == 2 && missing.err.contains("g9 is not known"), "{}", missing.err);
    shop.tidy_up().await;
}

/// Edits that may not be made, or that change nothing.
async fn wrong_edits(cli: &Cli, queue: &str) {
    for (arguments, code, said) in [
        (&["error~stock", "--jq", ".properties.id = \"order-9\""][..], 1, "--sensitive"),
        (&["error~stock", "--jq", ".headers[\"redrive-attempt\"] = 0"], 1, "redrive-attempt"),
        (&["error~stock", "--jq", ".body"], 1, "cannot be read"),
        (
            &["error~stock", "--jq", ".body = = 1"],
            2,
            "the program of --jq is wrong: expected term at character 9",
        ),
        (&["error~stock", "--jq", "., ."], 2, "more than one message"),
        (&["error~stock", "--timeout", "3s", "--jq", "def f: f; f"], 1, "a loop in it that does not end"),
        (&["error~stock", "--jq", "."], 0, "changes 0 of 3"),
        (&["--jq", ".body = 1"], 2, "which messages?"),
        (&["g1"], 2, "is not the handle of an entry"),
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
        assert!(edited.err.contains("lets nobody send to `orders/$DeadLetterQueue`"), "{}", edited.err);
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
    let service = shop.repaired();
    let applied = cli.run(&["apply", plan, "--yes", "--canary-wait", "1h"]).await;
    assert_eq!(applied.code, 0, "{}\n{}", applied.out, applied.err);
    service.handled(3).await;
    shop.has_shelved(2).await;
    let audit = cli.audit();
    assert_eq!((&audit[0]["action"], &audit[0]["reason"]), (&"edit".into(), &"a typing error".into()));
    service.stop().await;
    shop.tidy_up().await;
}

/// Programs of jq select, and one that is wrong, or never ends, or eats memory, does no harm.
async fn where_says(cli: &Cli, queue: &str) {
    let selected = cli.json(&["browse", queue, "--where", r#".id == "order-1" or .attempt > 9"#]).await;
    assert_eq!(selected.as_array().unwrap().len(), 1, "{selected}");
    let planned =
        cli.json(&["plan", queue, "error~stock", "--where", r#".body | contains("order 2")"#]).await;
    assert_eq!(planned["entries"].as_array().unwrap().len(), 1, "{planned}");
    for (program, code, said) in [
        (".id ==", 2, "expected"),
        ("system(\"ls\")", 2, "unknown filter `system`"),
        (".id", 2, "it says a string, and not true or false"),
        ("error(.id)", 2, "--where fails for every message"),
        (".headers.nothing", 0, ""),
        (
            "if .id == \"order-1\" then error(.id) else .properties.id == \"order-2\" end",
            0,
            "--where failed for 1 messages",
        ),
        ("env | has(\"REDRIVE_BROKER\") or has(\"PATH\") | not", 0, ""),
        ("def f: f; f", 1, "--where"),
        ("[range(infinite)] | true", 1, "--where"),
    ] {
        let answer = cli.run(&["--timeout", "3s", "browse", queue, "--where", program]).await;
        assert_eq!(answer.code, code, "{program}: {}", answer.err);
        assert!(answer.err.contains(said), "{program}: {}", answer.err);
    }
}

/// A handle is a selection: of this entry, and of nothing else.
async fn handles(cli: &Cli, queue: &str) {
    let listed = cli.json(&["browse", queue]).await;
    let handle = |place: usize| listed[place]["handle"].as_str().expect("a handle");
    let browsed = cli.json(&["browse", queue, handle(1), handle(3)]).await;
    assert_eq!([&browsed[0]["handle"], &browsed[1]["handle"]], [handle(1), handle(3)]);
    let planned = cli.json(&["plan", queue, handle(2)]).await;
    assert_eq!(planned["entries"].as_array().expect("entries").len(), 1, "{planned}");
    let edited = cli.ok(&["edit", queue, handle(1), "--jq", ".", "--yes"]).await;
    assert!(edited.err.contains("changes 0 of 1"), "{}", edited.err);
    let elsewhere = handle(0).replace("dead-letter", "parking");
    let missing = format!("{}0", handle(0));
    for (arguments, said) in [
        (&["redrive", queue, &elsewhere, "--yes"][..], "pass --shelf parking"),
        (&["redrive", queue, "--handle", &elsewhere, "--yes"], "pass --shelf parking"),
        (&["discard", queue, &missing, "--yes"], "is not on the dead-letter shelf"),
        (&["browse", queue, &missing], "is not on the dead-letter shelf"),
        (&["plan", queue], "which messages?"),
        (&["show", queue], "--group (-g)"),
    ] {
        let answer = cli.run(arguments).await;
        assert_eq!(answer.code, 2, "{arguments:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(said), "{arguments:?}: {}", answer.err);
    }
    assert_eq!(cli.json(&["plan", queue, "--all"]).await["entries"].as_array().expect("entries").len(), 5);
    let many = cli.run(&["apply", "p"]).await;
    assert!(many.code == 2 && many.err.contains("p") && many.err.contains(", "), "{}", many.err);
}

/// What was exported and discarded is put back once.
async fn export_and_import(shop: &Shop, cli: &Cli) {
    let queue = &shop.queue;
    let file = cli.path("orders.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    let twice = cli.run(&["export", queue, "--output", &file]).await;
    assert!(twice.code == 1 && twice.err.contains("never overwrites"), "{}", twice.err);
    let before = shop.shelf().await;
    let there = cli.ok(&["import", queue, &file, "--yes"]).await;
    assert!(there.out.contains("5 are on the shelf already"), "{}", there.out);
    assert_eq!(shop.shelf().await, before);
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    let import = cli.run(&["import", queue, &file, "--yes"]).await;
    if !shop.takes_restored() {
        assert_eq!(import.code, 1, "{}", import.err);
        return;
    }
    assert_eq!(import.code, 0, "{}", import.err);
    assert_eq!(shop.shelf().await, before);
    let again = cli.ok(&["import", queue, &file, "--yes"]).await;
    assert!(again.out.contains("0 were not put back before"), "{}", again.out);
    shop.has_shelved(5).await;
    let other = cli.run(&["import", "bills", &file, "--yes"]).await;
    assert!(other.code == 2 && other.err.contains("--from-other-queues"), "{}", other.err);
}

/// Nobody consumes: the run sends its canary, and is then paused, given a rate, resumed and aborted by other processes.
async fn control(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let options = ["--yes", "--canary", "1", "--canary-wait", "1h", "--ignore-work-queue"];
    let mut run =
        cli.command(&[&["redrive", queue, "--all"], &options[..]].concat()).spawn().expect("it runs");
    // The count of the shelf would not tell: a run holds what it reads.
    while cli.json(&["runs", "list"]).await[0]["done"] != 1 {
        assert!(run.try_wait().unwrap().is_none(), "it waits for its canary");
    }
    let id = cli.last_run().expect("a run");
    let shelves = cli.ok(&["shelves", queue]).await;
    assert!(
        shelves.out.contains("dead-letter  4") && shelves.err.contains(&id),
        "{}{}",
        shelves.out,
        shelves.err
    );
    assert_eq!(cli.run(&["check", queue, "--warn", "3"]).await.code, 1, "what a run holds is there");
    cli.ok(&["runs", "rate", &id, "50"]).await;
    cli.ok(&["runs", "pause", &id]).await;
    cli.ok(&["runs", "resume", &id]).await;
    let listed = cli.ok(&["runs", "list"]).await;
    assert!(listed.out.contains("it goes on"), "{}", listed.out);
    // Two operators at once: the second one is refused.
    let second = cli.run(&["redrive", queue, "--all", "--yes"]).await;
    assert!(second.code == 1 && second.err.contains(&id), "{}", second.err);
    // The same from another machine, which has no file of the first one: where the broker can keep it out.
    if !shop.has_leases() {
        let edit = cli.run(&["edit", queue, "order", "--jq", ".headers.checked = true", "--yes"]).await;
        assert!(edit.code == 1 && edit.err.contains(&id), "{}", edit.err);
    } else {
        let elsewhere = Cli::new(shop).run(&["redrive", queue, "--all", "--yes"]).await;
        assert_eq!(elsewhere.code, 3, "{}", elsewhere.err);
        assert!(elsewhere.err.contains("another run works on the dead-letter shelf"), "{}", elsewhere.err);
    }
    cli.ok(&["runs", "abort", &id]).await;
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), run.wait()).await;
    assert_eq!(ended.expect("in time").expect("it ended").code(), Some(3));
    shop.has_shelved(4).await;
    assert_eq!(cli.run(&["runs", "pause", &id]).await.code, 2, "it has ended");
    assert_eq!(cli.audit()[0]["counts"]["done"], 1);
    shop.tidy_up().await;
}

/// Nobody consumes, and nobody looks at a progress bar.
async fn waits(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let mut command = cli.command(&["redrive", &shop.queue, "--all", "--yes"]);
    let mut run = command.stderr(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(run.stderr.take().expect("a pipe")).lines();
    let said = async {
        while !lines.next_line().await.expect("read").expect("it waits").contains("--ignore-work-queue") {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), said).await.expect("it says why it waits");
    cli.ok(&["runs", "abort", &cli.last_run().expect("a run")]).await;
    assert_eq!(run.wait().await.expect("it ended").code(), Some(3));
    shop.has_shelved(5).await;
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
    let topology = cli.json(&["topology", queue, "--options", &file, "--section", "orders"]).await;
    let queues = topology["queues"].as_array().unwrap();
    let names: Vec<_> = queues.iter().map(|queue| queue["name"].as_str().unwrap()).collect();
    assert!(names.contains(&&*format!("{queue}--retry-10000ms")), "{names:?}");
    let wrong = cli.path("wrong.json").display().to_string();
    let wrong = cli.run(&["explain", queue, "--options", &wrong, "--section", "orders"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("Retry.Base"), "{}", wrong.err);

    exported(&cli, queue).await;
    shop.tidy_up().await;
}

async fn exported(cli: &Cli, queue: &str) {
    let exporter = cli.command(&["exporter", queue, "--listen", "127.0.0.1:0"]);
    let exporter = common::Page::of(exporter).await;
    let seen = async {
        loop {
            let page = reqwest::get(&exporter.url).await.expect("an answer").text().await.expect("text");
            if page.contains("shelf=\"dead-letter\"} 5") {
                break;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), seen).await.expect("the count of the shelf");
    exporter.stop().await;
}

/// Nobody needs to know the names of the queues, nor a secret; what is wrong is said.
#[cfg(unix)]
async fn queues(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let shelves = cli.ok(&["shelves"]).await;
    assert!(shelves.out.contains("orders") && shelves.out.contains("dead-letter  5"), "{}", shelves.out);
    assert_eq!(cli.run(&["check", "--warn", "4"]).await.code, 1);
    exported(&cli, "orders").await;
    let missing = cli.run(&["shelves", "order"]).await;
    assert!(missing.code == 1 && missing.err.contains("it serves `orders`"), "{}", missing.err);
    cli.write("service.toml", "MaxDeliveryCount = 3\nRetry = { Base = 1, Factor = 10 }\n");
    let file = cli.path("service.toml").display().to_string();
    let explained = cli.ok(&["explain", "orders", "--options", &file]).await;
    assert!(explained.out.contains("At most 3 attempts, 11s of waiting"), "{}", explained.out);
    let preflight = cli.run(&["preflight", "orders", "--options", &file]).await;
    assert!(preflight.code == 2 && preflight.err.contains("redrive explain"), "{}", preflight.err);
    let nowhere = cli.run(&["--broker", "unix:/nowhere/redrive.sock", "shelves", "orders"]).await;
    assert!(nowhere.code == 1 && nowhere.err.contains("no service listens at /nowhere"), "{}", nowhere.err);
    let missing = cli.run(&["shelves", "order", "orders"]).await;
    assert!(missing.code == 1 && missing.out.contains("dead-letter  5"), "{}{}", missing.out, missing.err);
    contexts(&cli).await;
    let relative = cli.run(&["--broker", "unix:redrive.sock", "shelves", "orders"]).await;
    assert!(relative.code == 2 && relative.err.contains("must be absolute"), "{}", relative.err);
}

/// What is typed counts before the environment, and a wrong context concerns only who uses it.
#[cfg(unix)]
async fn contexts(cli: &Cli) {
    let broker = cli.broker();
    cli.write(
        "config.toml",
        &format!("[contexts.shop]\nbroker = {broker:?}\n[contexts.wrong]\nbroker = \"unix:x.sock\"\n"),
    );
    let config = cli.path("config.toml").display().to_string();
    let config = ["--config", &*config];
    let run = async |cli: &Cli, arguments: &[&str]| cli.run(&[&config[..], arguments].concat()).await;
    assert_eq!(run(cli, &["-c", "shop", "shelves", "orders"]).await.code, 0);
    let wrong = run(cli, &["-c", "wrong", "shelves", "orders"]).await;
    assert!(wrong.code == 2 && wrong.err.contains("must be absolute"), "{}", wrong.err);
    let listed = run(cli, &["context", "list"]).await;
    assert!(
        listed.code == 0 && listed.out.contains("shop") && listed.out.contains("wrong"),
        "{}",
        listed.out
    );
    assert!(
        listed.err.contains("`wrong` cannot be used") && listed.err.contains("must be absolute"),
        "{}",
        listed.err
    );

    let chosen = cli.with("REDRIVE_CONTEXT", "wrong");
    assert_eq!(run(&chosen, &["shelves", "orders"]).await.code, 2, "before the broker of the environment");
    assert_eq!(run(&chosen, &["shelves", "orders", "--broker", broker]).await.code, 0);
    assert_eq!(run(&chosen, &["--broker", broker, "shelves", "orders"]).await.code, 0);
    assert_eq!(run(&chosen, &["--broker", "servicebus", "-c", "shop", "shelves", "orders"]).await.code, 0);
}

/// A queue that the broker does not have keeps silent about none that it has.
async fn unknown(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let shelves = cli.run(&["shelves", "nosuch", &shop.queue]).await;
    assert_eq!(shelves.code, 1, "{}", shelves.err);
    assert!(shelves.out.contains("dead-letter  5"), "{}", shelves.out);
    for said in ["the broker has no queue `nosuch", "virtual host"] {
        assert!(shelves.err.contains(said), "{}", shelves.err);
    }
    assert!(!shelves.err.contains("Topology") && !shelves.err.contains("AMQP"), "{}", shelves.err);
    let browse = cli.run(&["browse", "nosuch"]).await;
    assert!(browse.code == 1 && browse.err.contains("the broker has no queue `nosuch"), "{}", browse.err);
}

/// The cause is not repaired: the canary comes back, and the others are not sent. Then it breaks again in the middle.
async fn stops(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let service = shop.service_that(|text| Err(format!("order {}: no answer from the stock", &text[7..8])));
    let stopped = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", "1h"]).await;
    assert_eq!(stopped.code, 2, "g1 of no list: {}", stopped.err);
    cli.ok(&["groups", queue]).await;
    let stopped = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", "1h"]).await;
    println!("{}{}", stopped.out, stopped.err);
    assert_eq!(stopped.code, 3, "{}\n{}", stopped.out, stopped.err);
    assert!(stopped.err.contains("stopped: the same failure came back"), "{}", stopped.err);
    assert!(stopped.out.contains("1 of 3 done") && stopped.out.contains("2  had no turn"), "{}", stopped.out);
    shop.has_shelved(5).await;
    service.stop().await;

    // The stock answers the first ones only.
    for order in 10..22 {
        shop.publish(Message::new("\"order 0\"").with_id(format!("order-{order}"))).await;
    }
    shop.fail_all(12).await;
    shop.has_shelved(17).await;
    let served = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let service =
        shop.service_that(move |_| match served.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0..3 => Ok(()),
            _ => Err("order 0: no answer from the stock".to_owned()),
        });
    let wait = if shop.has_reports() { "1h" } else { "1s" };
    let options = ["--yes", "--canary", "1", "--canary-wait", wait, "--ramp-step", "1s", "--rate", "2"];
    let halved = cli.run(&[&["redrive", queue, "error~stock"][..], &options].concat()).await;
    println!("{}{}", halved.out, halved.err);
    assert_eq!(halved.code, 3, "{}\n{}", halved.out, halved.err);
    assert!(halved.err.contains("stopped: the same failure came back"), "{}", halved.err);
    assert!(halved.out.contains("had no turn"), "{}", halved.out);
    service.stop().await;
    shop.tidy_up().await;
}

/// A body of ten megabytes, and one that is no text.
async fn bodies(shop: &Shop) {
    const LARGE: usize = 10 << 20;
    let service = shop.service_that(|_| Err("too much".to_owned()));
    for (id, body) in [("large", vec![b'x'; LARGE]), ("binary", vec![0, 0x1b, b'[', b'2', b'J', 0xff])] {
        shop.publish(Message::new(body).with_id(id)).await;
    }
    service.handled(2).await;
    service.stop().await;
    shop.has_shelved(2).await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let before = shop.shelf().await;
    cli.ok(&["groups", queue]).await;
    let handle = async |id| {
        let found = cli.json(&["browse", queue, &format!("id:{id}")]).await;
        found[0]["handle"].as_str().expect("a handle").to_owned()
    };
    let binary = cli.ok(&["show", queue, &handle("binary").await]).await;
    assert!(!binary.out.contains('\u{1b}'), "{:?}", binary.out);
    let large = cli.ok(&["show", queue, &handle("large").await]).await;
    assert!(large.out.len() < 1 << 20, "{} bytes are shown", large.out.len());
    let file = cli.path("bodies.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    shop.has_shelved(0).await;
    cli.ok(&["import", queue, &file, "--yes"]).await;
    shop.has_shelved(2).await;
    assert!(shop.shelf().await == before, "what came back is not what was exported");
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
