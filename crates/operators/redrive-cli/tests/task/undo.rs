//! Discards are undone, and something goes wrong with it.

use std::time::SystemTime;

use redrive::ops::{EntryState, JournalFolder, JournalHeader, Operator, Plan, PlanAction, RunOptions};
use redrive::shelves::{EntryHandle, Selection};
use redrive::{Message, Shelf};
use reqwest::StatusCode;
use reqwest::header::{COOKIE, ORIGIN};
use serde_json::Value;

use crate::common::{Cli, Page, Shop};
use crate::terminal::Terminal;

/// Until there is room, nothing is restored, and no message is in doubt. An answer that says less leaves one in doubt.
pub(crate) async fn on_a_full_shelf(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    cli.ok(&["discard", queue, "error~customer", "--yes"]).await;
    let run = cli.last_run().expect("a run");
    for order in [5, 6] {
        shop.publish(Message::new("\"order 0\"").with_id(format!("order-{order}"))).await;
    }
    shop.fail_all(2).await;
    shop.has_shelved(5).await;
    for _ in 0..3 {
        let full = cli.run(&["undo", &run, "--yes"]).await;
        assert_eq!(full.code, 1, "{}\n{}", full.out, full.err);
        assert!(
            full.out.contains("2 can be restored") && full.err.contains("is full"),
            "{}{}",
            full.out,
            full.err
        );
        assert!(!full.out.contains("may be restored"), "{}", full.out);
    }
    cli.ok(&["discard", queue, "id:order-5", "--yes"]).await;
    cli.ok(&["discard", queue, "id:order-6", "--yes"]).await;

    shop.set_writable(false);
    let unwritable = cli.run(&["undo", &run, "--yes"]).await;
    assert_eq!(unwritable.code, 1, "{}\n{}", unwritable.out, unwritable.err);
    shop.set_writable(true);
    // The process died before it noted the broker's answer.
    let journal = cli.state().join("runs").join(format!("{run}.undone"));
    let notes = std::fs::read_to_string(&journal).expect("the undo has a journal");
    let (before, answer) = notes.trim_end().rsplit_once('\n').expect("several lines");
    assert!(answer.contains("not-stored"), "{answer}");
    std::fs::write(&journal, format!("{before}\n")).expect("written");
    let rest = cli.ok(&["undo", &run, "--yes"]).await;
    // The shelf tells that nothing was stored.
    assert!(
        rest.out.contains("over 1 message, or got no answer: 0 on the shelf by their content, 1 not"),
        "{}",
        rest.out
    );
    assert!(rest.out.contains("2 of 2 restored"), "{}", rest.out);
    shop.has_shelved(5).await;
}

/// While one command puts messages back, another one is refused with the name of the first; a second click waits for the first one.
pub(crate) async fn two_at_once(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let file = cli.path("orders.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    let run = cli.last_run().expect("a run");
    let (undo, import) = (["undo", &run, "--yes"], ["import", queue, &file, "--yes"]);
    let page = Page::start(&cli, &[queue]).await;
    let login = reqwest::get(&page.url).await.expect("an answer");
    let cookie = login.headers()["set-cookie"].to_str().expect("text").split(';').next().expect("a cookie");
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
    let click = async || {
        let click = client.post(page.at("/run")).header(COOKIE, cookie).header(ORIGIN, page.at(""));
        click.form(&[("id", &*run), ("ask", "undo")]).send().await.expect("an answer")
    };

    let folder = JournalFolder::open(cli.state().join("runs")).expect("a folder");
    let first = "redrive undo r1";
    let lock = folder.lock(cli.broker(), queue, Shelf::DeadLetter, first).expect("locked");
    for second in [&undo[..], &import] {
        let refused = cli.run(second).await;
        assert_eq!(refused.code, 1, "{}\n{}", refused.out, refused.err);
        assert!(refused.err.contains(first), "{}", refused.err);
    }
    let refused = click().await;
    assert_eq!(refused.status(), StatusCode::BAD_GATEWAY);
    let said = refused.text().await.expect("text");
    assert!(said.contains(first), "{said}");
    shop.has_shelved(0).await;
    drop(lock);

    let (one, other) = tokio::join!(click(), click());
    assert_eq!([one.status(), other.status()], [StatusCode::SEE_OTHER; 2]);
    shop.has_shelved(5).await;
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    tokio::join!(cli.run(&import), cli.run(&import));
    shop.has_shelved(5).await;
    page.stop().await;
}

/// What left the shelf comes back once, and what is still there stays.
pub(crate) async fn of_a_killed_discard(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    for is_broker_lost in [false, true] {
        let run = killed_discard(shop, &cli, is_broker_lost).await;
        let undone = cli.ok(&["undo", &run, "--yes"]).await;
        for said in [
            "5 were being discarded when the run was killed or lost its broker: 2 are not on the shelf, 3 are on it and stay\n",
            "2 messages of `orders` discarded; 2 can be restored\n",
            "2 of 2 restored\n",
        ] {
            assert!(undone.out.contains(said), "{said}: {}", undone.out);
        }
        shop.has_shelved(5).await;
        let again = cli.ok(&["undo", &run, "--yes"]).await;
        assert!(again.out.contains("3 were being discarded"), "{}", again.out);
        assert!(again.out.contains("2 messages of `orders` discarded; 0 can be restored"), "{}", again.out);
        shop.has_shelved(5).await;
        let resumed = cli.run(&["runs", "resume", &run, "--send-uncertain-again", "--yes"]).await;
        assert_eq!(resumed.code, 2, "{}", resumed.err);
        assert!(resumed.err.contains("this discard was undone"), "{}", resumed.err);
    }
}

/// A message that another client reads seems gone; when it is restored it would be there twice.
pub(crate) async fn while_another_client_reads(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let run = killed_discard(shop, &cli, false).await;
    let (reader, _connection) = shop.hold_first().await;
    let mut terminal = Terminal::start(&cli, &["undo", &run]);
    terminal.shows(&["3 are not on the shelf, 2 are on it and stay", "type the number of messages, 3"]).await;
    reader.close(200, "done".into()).await.expect("closed");
    shop.has_shelved(3).await;
    terminal.press("3\r").await;
    terminal.shows(&["1 of the messages that were not on the shelf are on it now"]).await;
    shop.has_shelved(3).await;
    cli.ok(&["undo", &run, "--yes"]).await;
    shop.has_shelved(5).await;
    shop.tidy_up().await;
}

/// A discard of all that was killed when two were removed, before it noted that, or that lost its broker then. Returns its run.
async fn killed_discard(shop: &Shop, cli: &Cli, is_broker_lost: bool) -> String {
    let queue = &*shop.queue;
    let planned = cli.json(&["plan", queue, "--all", "--action", "discard"]).await;
    let saved = cli.state().join("plans").join(format!("{}.json", planned["id"].as_str().expect("an id")));
    let saved: Value = serde_json::from_slice(&std::fs::read(saved).expect("a plan")).expect("JSON");
    let plan: Plan = serde_json::from_value(saved["plan"].clone()).expect("a plan");
    let handles: Vec<_> = plan.entries().iter().map(|entry| entry.handle.clone()).collect();
    let (broker, now) = (saved["broker"].as_str().expect("a broker"), SystemTime::now());
    let header = JournalHeader::new(broker, Operator::new("ada", "ops-1", now), RunOptions::new(), plan);
    let run = header.run.clone();
    let originals = cli.state().join("originals").join(format!("{run}.jsonl"));
    cli.ok(&["export", queue, "--output", &originals.display().to_string()]).await;
    let folder = JournalFolder::open(cli.state().join("runs")).expect("a folder");
    let (mut journal, _lock) = folder.begin(header).expect("begun");
    journal.intent(PlanAction::Discard, &handles, now).expect("written");
    if is_broker_lost {
        let uncertain = |handle: &EntryHandle| (handle.clone(), EntryState::Uncertain("lost".to_owned()));
        journal.results(&handles.iter().map(uncertain).collect::<Vec<_>>()).expect("written");
    }
    let removed = Selection::handles(handles.into_iter().take(2));
    let _ = shop.shelves().await.discard(Shelf::DeadLetter, &removed).await.expect("removed");
    shop.has_shelved(3).await;
    run
}
