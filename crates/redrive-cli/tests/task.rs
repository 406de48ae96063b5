//! The task of whoever is on call, by the command line alone: orders fail; find why, send the group back, see the shelf empty. On
//! RabbitMQ, and on the emulator of Service Bus.

mod common;

use common::{Cli, Shop};
use redrive_brokers::Version;

mod v3_10 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_explain_and_redrive() {
        the_task(&Shop::rabbitmq(Version::V3_10).await).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn looking_changes_nothing() {
        looking(&Shop::rabbitmq(Version::V3_10).await).await;
    }
}

mod v4_3 {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_explain_and_redrive() {
        the_task(&Shop::rabbitmq(Version::V4_3).await).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn looking_changes_nothing() {
        looking(&Shop::rabbitmq(Version::V4_3).await).await;
    }
}

mod servicebus {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn find_explain_and_redrive() {
        the_task(&Shop::servicebus().await).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn looking_changes_nothing() {
        looking(&Shop::servicebus().await).await;
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
    assert_eq!(shop.shelved().await, 5);
    // Nothing is assumed.
    assert_eq!(cli.run(&["discard", queue, "--yes"]).await.code, 2);
    // The whole shelf would be more than the group.
    assert_eq!(cli.run(&["--read-only", "redrive", queue, "g1", "--yes"]).await.code, 2);

    // The stock answers again.
    let service = shop.repaired();
    let done = cli.run(&["redrive", queue, "g1", "--yes", "--canary", "1", "--canary-wait", "1s"]).await;
    assert_eq!(done.code, 0, "{}\n{}", done.out, done.err);
    assert!(done.out.contains("3 of 3 done"), "{}", done.out);
    service.handled(3).await;
    assert_eq!(shop.shelved().await, 2, "the other group stays");

    // One order is mended by hand and sent back.
    let listed = cli.json(&["browse", queue]).await;
    let handle = listed[0]["handle"].as_str().unwrap();
    let editor = r#"sed -i 's/"headers": {}/"headers": {"checked": true}/'"#;
    let edited = cli.with("EDITOR", editor).run(&["edit", queue, handle, "--yes"]).await;
    assert_eq!(edited.code, 0, "{}\n{}", edited.out, edited.err);
    assert!(edited.out.contains("checked"), "{}", edited.out);
    service.handled(4).await;
    assert_eq!(shop.shelved().await, 1);
    // Not changed, not done.
    let handle = cli.json(&["browse", queue]).await[0]["handle"].as_str().unwrap().to_owned();
    let unchanged = cli.with("EDITOR", "true").run(&["edit", queue, &handle, "--yes"]).await;
    assert!(unchanged.code == 1 && unchanged.err.contains("as it was"), "{}", unchanged.err);

    // What nobody needs is discarded, and was exported before.
    let discarded = cli.run(&["discard", queue, "g2", "--yes", "--reason", "test orders"]).await;
    assert_eq!(discarded.code, 0, "{}\n{}", discarded.out, discarded.err);
    assert_eq!(shop.shelved().await, 0);
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
    assert_eq!(shop.shelved().await, 1);
    let again = cli.ok(&["undo", run, "--yes"]).await;
    assert!(again.out.contains("0 can be restored"), "{}", again.out);
    assert_eq!(shop.shelved().await, 1, "it is restored once");
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
    let after = shop.shelf().await;
    assert_eq!(before, after);

    let wrong = cli.run(&["browse", queue, "age>soon"]).await;
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert_eq!(cli.run(&["show", queue, "dead-letter/00"]).await.code, 1);
    let missing = cli.run(&["redrive", queue, "g9", "--yes"]).await;
    assert!(missing.code == 2 && missing.err.contains("g9 is not known"), "{}", missing.err);
    shop.tidy_up().await;
}
