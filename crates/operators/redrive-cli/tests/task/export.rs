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

/// A message with a kind that AMQP cannot carry stops none of those behind it, in an import and in an undo.
pub(crate) async fn what_no_broker_carries_stops_no_other(shop: &Shop) {
    shop.fail().await;
    let cli = Cli::new(shop);
    let queue = &*shop.queue;
    let file = cli.path("orders.jsonl");
    let name = file.display().to_string();
    cli.ok(&["export", queue, "--output", &name]).await;
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    let run = cli.last_run().expect("a run");
    let with_long_kind = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).expect("lines");
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut line: serde_json::Value = serde_json::from_str(&lines[1]).expect("JSON");
        line["properties"]["kind"] = "k".repeat(300).into();
        lines[1] = line.to_string();
        std::fs::write(path, format!("{}\n", lines.join("\n"))).expect("written");
        line["handle"].as_str().expect("a handle").to_owned()
    };
    let handle = with_long_kind(&file);
    for (put_back, left) in [(4, 5), (0, 1)] {
        let import = cli.run(&["import", queue, &name, "--yes"]).await;
        assert_eq!(import.code, 3, "{}{}", import.out, import.err);
        assert!(import.out.contains(&format!("{put_back} of {left} put back")), "{}", import.out);
        assert!(import.err.contains(&format!("line 2 ({handle}): ")), "{}", import.err);
        assert!(import.err.contains("1 message not put back"), "{}", import.err);
        shop.has_shelved(4).await;
    }
    cli.ok(&["discard", queue, "--all", "--yes"]).await;
    let originals = cli.state().join("originals").join(format!("{run}.jsonl"));
    let handle = with_long_kind(&originals);
    for (restored, left) in [(4, 5), (0, 1)] {
        let undo = cli.run(&["undo", &run, "--yes"]).await;
        assert_eq!(undo.code, 3, "{}{}", undo.out, undo.err);
        assert!(undo.out.contains(&format!("{restored} of {left} restored")), "{}", undo.out);
        assert!(undo.err.contains(&format!("{handle}: ")) && undo.err.contains("originals"), "{}", undo.err);
        shop.has_shelved(4).await;
    }
}

/// The exporter shows the shelf, and logs no error from its start to its end.
pub(crate) async fn exported(cli: &Cli, queue: &str) {
    let log = cli.path("exporter.log");
    let mut exporter = cli.command(&["-v", "exporter", queue, "--listen", "127.0.0.1:0"]);
    exporter.stderr(std::fs::File::create(&log).expect("a file"));
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
    #[cfg(unix)]
    exporter.terminate().await;
    #[cfg(not(unix))]
    exporter.stop().await;
    let log = std::fs::read_to_string(log).expect("text");
    let errors: Vec<_> = log.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}
