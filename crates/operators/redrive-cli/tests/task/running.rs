//! Runs: undone, controlled from another process, waiting, and stopped by what comes back.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::common::{Cli, Output, Page, Shop};
use redrive::Message;

/// Brings the discarded message back once, and discards it again.
pub(crate) async fn undo(shop: &Shop, cli: &Cli, run: &str) {
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

/// A discard says how it is undone, where it can be.
pub(crate) fn says_undo(shop: &Shop, cli: &Cli, discarded: &Output) {
    let undo = format!("to bring them back: redrive undo {}\n", cli.last_run().expect("a run"));
    assert_eq!(discarded.err.ends_with(&undo), shop.takes_restored(), "{}", discarded.err);
    let brought_back = "removed; the originals are kept, `redrive undo` brings them back";
    assert_eq!(discarded.out.contains(brought_back), shop.takes_restored(), "{}", discarded.out);
    assert_ne!(discarded.out.contains("removed for good"), shop.takes_restored(), "{}", discarded.out);
}

/// Nobody consumes: the run sends its canary, and is then paused, given a rate, resumed and aborted by other processes.
pub(crate) async fn control(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let options = ["--yes", "--canary", "1", "--canary-wait", "1h", "--ignore-work-queue"];
    let mut run =
        cli.command(&[&["redrive", queue, "--all"], &options[..]].concat()).spawn().expect("it runs");
    waits_for_its_canary(&cli, &mut run).await;
    let id = cli.last_run().expect("a run");
    let shelves = cli.ok(&["shelves", queue]).await;
    // RabbitMQ does not tell how many it holds.
    let shown = ["dead-letter  4", "dead-letter  at least 4"];
    assert!(shown.iter().any(|shown| shelves.out.contains(shown)), "{}", shelves.out);
    assert!(shelves.err.contains(&id), "{}", shelves.err);
    assert_eq!(cli.run(&["check", queue, "--warn", "3"]).await.code, 1, "what a run holds is there");
    cli.ok(&["runs", "rate", &id, "50"]).await;
    cli.ok(&["runs", "pause", &id]).await;
    cli.ok(&["runs", "resume", &id]).await;
    let listed = cli.ok(&["runs", "list"]).await;
    assert!(listed.out.contains("it is running"), "{}", listed.out);
    // The journal of one that is about to begin hides no other.
    std::fs::write(cli.state().join("runs").join("0.jsonl"), "").expect("written");
    let listed = cli.ok(&["runs", "list"]).await;
    assert!(listed.out.contains("it is running") && listed.out.contains("about to begin"), "{}", listed.out);
    let listed = cli.json(&["runs", "list"]).await;
    assert_eq!(listed[1]["run"], "0");
    assert!(listed[1]["error"].as_str().is_some_and(|error| error.contains("no header")), "{listed}");
    // Two operators at once: the second one is refused.
    let second = cli.run(&["redrive", queue, "--all", "--yes"]).await;
    assert!(second.code == 1 && second.err.contains(&id), "{}", second.err);
    // The same from another machine, which has no file of the first one: where the broker can keep it out.
    if !shop.has_leases() {
        let edit = cli.run(&["edit", queue, "order", "--jq", ".headers.checked = true", "--yes"]).await;
        assert!(edit.code == 1 && edit.err.contains(&id), "{}", edit.err);
    } else {
        let elsewhere = Cli::new(shop).run(&["redrive", queue, "--all", "--yes"]).await;
        assert_eq!(elsewhere.code, 1, "{}", elsewhere.err);
        let refused = "nothing was changed: another run works on the dead-letter shelf";
        assert!(elsewhere.err.contains(refused), "{}", elsewhere.err);
    }
    cli.ok(&["runs", "abort", &id]).await;
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), run.wait()).await;
    assert_eq!(ended.expect("in time").expect("it ended").code(), Some(3));
    shop.has_shelved(4).await;
    assert_eq!(cli.run(&["runs", "pause", &id]).await.code, 2, "it has ended");
    assert_eq!(cli.audit()[0]["counts"]["done"], 1);
    shop.tidy_up().await;
}

/// Waits until the run has sent its one canary. The count of the shelf would not tell: a run holds what it reads.
async fn waits_for_its_canary(cli: &Cli, run: &mut Child) {
    let sent = async {
        loop {
            let done = cli.json(&["runs", "list"]).await[0]["done"].as_u64();
            assert!(run.try_wait().expect("a process").is_none(), "it has ended");
            if let Some(done @ 1..) = done {
                return done;
            }
        }
    };
    let sent = tokio::time::timeout(std::time::Duration::from_secs(60), sent).await;
    assert_eq!(sent.expect("it sends its canary"), 1, "nothing is sent before the canary is handled");
}

/// The process of a run that waits is told to end, as a machine that shuts down does it: the run ends as by Ctrl-C.
#[cfg(unix)]
pub(crate) async fn told_to_end(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let options = ["--all", "--yes", "--canary", "1", "--canary-wait", "1h", "--ignore-work-queue"];
    let mut run = cli.command(&[&["redrive", &*shop.queue][..], &options].concat()).spawn().expect("it runs");
    waits_for_its_canary(&cli, &mut run).await;
    crate::common::tell_to_end(&run);
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), run.wait()).await;
    assert_eq!(ended.expect("in time").expect("it ended").code(), Some(3));
    let listed = cli.ok(&["runs", "list"]).await;
    assert!(listed.out.contains("aborted by an operator"), "{}", listed.out);
    shop.has_shelved(4).await;
    shop.tidy_up().await;
}

/// Nobody consumes, and nobody looks at a progress bar.
pub(crate) async fn waits(shop: &Shop) {
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

/// The cause is not repaired: all that was sent came back. Then everything of a plan vanishes. Neither reads as success afterwards.
pub(crate) async fn does_not_read_as_success(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let service = shop.service_that(|text| Err(format!("order {}: no such customer", &text[7..8]))).await;
    let stopped = cli.run(&["redrive", queue, "id:order-3", "--yes", "--canary-wait", "1h"]).await;
    assert_eq!(stopped.code, 3, "{}\n{}", stopped.out, stopped.err);
    let no_invitation = "stopped: the same failure came back. Its cause is still there\n";
    assert!(stopped.err.ends_with(no_invitation), "nothing is left to resume: {}", stopped.err);
    let id = cli.last_run().expect("a run");
    let journal = cli.state().join("runs").join(format!("{id}.jsonl"));
    let before = std::fs::read(&journal).expect("a journal");
    let resumed = cli.run(&["runs", "resume", &id]).await;
    assert_eq!(resumed.code, 3, "{}\n{}", resumed.out, resumed.err);
    assert!(resumed.out.contains("1  came back with the same failure"), "{}", resumed.out);
    assert!(resumed.err.contains("this run has nothing left to do"), "{}", resumed.err);
    assert_eq!(std::fs::read(&journal).expect("a journal"), before, "it changes nothing");
    service.stop().await;

    let planned = cli.json(&["plan", queue, "error~stock"]).await;
    let plan = planned["id"].as_str().expect("an id");
    cli.ok(&["discard", queue, "error~stock", "--yes"]).await;
    let vanished = cli.run(&["apply", plan, "--yes", "--ignore-work-queue"]).await;
    assert_eq!(vanished.code, 3, "{}\n{}", vanished.out, vanished.err);
    let resumed = cli.run(&["runs", "resume", &cli.last_run().expect("a run")]).await;
    assert_eq!(resumed.code, 3, "{}\n{}", resumed.out, resumed.err);

    let listed = cli.ok(&["runs", "list"]).await;
    let history = history(&cli, queue).await;
    for said in [&listed.out, &history] {
        assert!(said.contains("stopped: the same failure came back; 1 came back"), "{said}");
        assert!(said.contains("over: 3 not found"), "{said}");
    }
    shop.tidy_up().await;
}

/// What vanished since the plan is reported, and the rest is removed.
pub(crate) async fn a_discard_goes_on(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let planned = cli.json(&["plan", queue, "--all", "--action", "discard"]).await;
    cli.ok(&["discard", queue, "id:order-3", "--yes"]).await;
    let applied = cli.run(&["apply", planned["id"].as_str().expect("an id"), "--yes"]).await;
    assert_eq!(applied.code, 3, "{}\n{}", applied.out, applied.err);
    assert!(
        applied.out.contains("4 of 5 done") && applied.out.contains("1  were not found"),
        "{}",
        applied.out
    );
    assert!(applied.err.contains("4 originals in "), "{}", applied.err);
    shop.has_shelved(0).await;
    cli.ok(&["undo", &cli.last_run().expect("a run"), "--yes"]).await;
    shop.has_shelved(4).await;
    shop.tidy_up().await;
}

/// A client consumes the shelf and holds messages: what is not seen is not judged, and not passed over in silence.
pub(crate) async fn beside_a_consumer(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let file = cli.path("orders.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    let (reader, _connection) = shop.consume_shelf(2).await;
    shop.has_shelved(3).await;
    let not_all = "was read: a client consumes the shelf: messages that it holds are not seen";
    let groups = cli.ok(&["groups", queue]).await;
    assert!(groups.err.contains(not_all), "{}", groups.err);
    let groups = cli.json(&["groups", queue]).await;
    assert!(groups["not_read"].as_str().expect("a text").contains("a client consumes"), "{groups}");
    let shelves = cli.ok(&["shelves", queue]).await;
    assert!(shelves.out.contains("at least 3"), "{}", shelves.out);
    assert!(shelves.err.contains("may have more messages: a client consumes"), "{}", shelves.err);
    let shelves = cli.json(&["shelves", queue]).await;
    assert!(shelves[0]["not_counted"].as_str().expect("a text").contains("a client consumes"), "{shelves}");
    assert!(shelves[0]["oldest"].is_null() && shelves[1]["not_counted"].is_null(), "{shelves}");
    let check = cli.ok(&["check", queue, "--warn", "3", "--critical", "5"]).await;
    let said = format!("OK - {queue} dead-letter: at least 3 (a client consumes");
    assert!(check.out.starts_with(&said), "{}", check.out);
    let page = on_page(&cli, queue, "/").await;
    assert!(page.contains("at least 3") && page.contains("a client consumes the shelf"), "{page}");
    assert_eq!(page.matches("title=\"\">-</time>").count(), 2, "since when is not known: {page}");
    let planned = cli.ok(&["plan", queue, "--all", "--action", "discard"]).await;
    assert!(planned.out.contains("not all of the shelf was read: a client consumes"), "{}", planned.out);
    let import = cli.run(&["import", queue, &file, "--yes"]).await;
    assert_eq!(import.code, 1, "{}\n{}", import.out, import.err);
    assert!(
        import
            .err
            .contains("nothing was put back: the dead-letter shelf may have messages that cannot be seen")
    );
    reader.close(200, "done".into()).await.expect("closed");
    shop.has_shelved(5).await;
    let import = cli.ok(&["import", queue, &file, "--yes"]).await;
    assert!(import.out.contains("0 to put back, 5 are on the shelf already"), "{}", import.out);
    assert!(cli.json(&["groups", queue]).await["not_read"].is_null());
    shop.has_shelved(5).await;
    shop.tidy_up().await;
}

/// The list of runs on the page.
async fn history(cli: &Cli, queue: &str) -> String {
    on_page(cli, queue, "/runs").await
}

async fn on_page(cli: &Cli, queue: &str, path: &str) -> String {
    let page = Page::start(cli, &[queue]).await;
    let login = reqwest::get(&page.url).await.expect("an answer");
    let cookie = login.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a cookie");
    let client = reqwest::Client::new();
    let listed = client.get(page.at(path)).header("cookie", cookie).send().await.expect("an answer");
    let text = listed.text().await.expect("text");
    page.stop().await;
    text
}

/// The cause is not repaired: the canary comes back, and the others are not sent. Then it breaks again in the middle.
pub(crate) async fn stops(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let service =
        shop.service_that(|text| Err(format!("order {}: no answer from the stock", &text[7..8]))).await;
    let stopped = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", "1h"]).await;
    assert_eq!(stopped.code, 2, "g1 of no list: {}", stopped.err);
    cli.ok(&["groups", queue]).await;
    let stopped = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", "1h"]).await;
    println!("{}{}", stopped.out, stopped.err);
    assert_eq!(stopped.code, 3, "{}\n{}", stopped.out, stopped.err);
    let advice = "Its cause is still there: repair it, then continue with `redrive runs resume";
    assert!(stopped.err.contains("stopped: the same failure came back"), "{}", stopped.err);
    assert!(stopped.err.contains(advice), "{}", stopped.err);
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
    let service = shop
        .service_that(move |_| match served.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0..3 => Ok(()),
            _ => Err("order 0: no answer from the stock".to_owned()),
        })
        .await;
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

/// A service without redrive has a dead-letter queue, and no parking queue.
pub(crate) async fn without_a_parking_queue(shop: &Shop) {
    shop.fail().await;
    shop.delete_parking_queue().await;
    let cli = Cli::new(shop);
    let run =
        cli.ok(&["redrive", &shop.queue, "--all", "--yes", "--ignore-work-queue", "--canary", "0"]).await;
    assert!(run.out.contains("5 of 5"), "{}{}", run.out, run.err);
    shop.has_shelved(0).await;
}
