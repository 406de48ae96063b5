//! Discards are undone, and something goes wrong with it.

use redrive::ops::JournalFolder;
use redrive::{Message, Shelf};
use reqwest::StatusCode;
use reqwest::header::{COOKIE, ORIGIN};

use crate::common::{Cli, Page, Shop};

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
        assert!(!full.out.contains("were being restored"), "{}", full.out);
    }
    cli.ok(&["discard", queue, "id:order-5", "--yes"]).await;
    cli.ok(&["discard", queue, "id:order-6", "--yes"]).await;

    shop.set_writable(false);
    assert_eq!(cli.run(&["undo", &run, "--yes"]).await.code, 1);
    shop.set_writable(true);
    let rest = cli.ok(&["undo", &run, "--yes"]).await;
    assert!(
        rest.out.contains("1 were being restored") && rest.out.contains("1 of 1 restored"),
        "{}",
        rest.out
    );
    shop.has_shelved(4).await;
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
