//! What is exported comes back with `import`.

use crate::common::{Cli, Shop};

/// What was exported and discarded is put back once.
pub(crate) async fn export_and_import(shop: &Shop, cli: &Cli) {
    let queue = &shop.queue;
    let file = cli.path("orders.jsonl").display().to_string();
    cli.ok(&["export", queue, "--output", &file]).await;
    let twice = cli.run(&["export", queue, "--output", &file]).await;
    assert!(twice.code == 1 && twice.err.contains("never overwrites"), "{}", twice.err);
    let before = shop.shelf().await;
    let there = cli.ok(&["import", queue, &file, "--yes"]).await;
    let said = format!("5 messages in {file}: 0 to put back, 5 are on the shelf already\n");
    assert_eq!(there.out, said);
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
    assert_eq!(again.out, format!("5 messages in {file}: 0 to put back, 5 were put back before\n"));
    shop.has_shelved(5).await;
    let other = cli.run(&["import", "bills", &file, "--yes"]).await;
    assert!(other.code == 2 && other.err.contains("--from-other-queues"), "{}", other.err);
}

pub(crate) async fn exported(cli: &Cli, queue: &str) {
    let exporter = cli.command(&["exporter", queue, "--listen", "127.0.0.1:0"]);
    let exporter = crate::common::Page::of(exporter).await;
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
