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

    // What nobody needs is discarded, and was exported before.
    let discarded = cli.run(&["discard", queue, "g2", "--yes", "--reason", "test orders"]).await;
    assert_eq!(discarded.code, 0, "{}\n{}", discarded.out, discarded.err);
    assert_eq!(shop.shelved().await, 0);
    assert_eq!(cli.originals(), 5);
    let audit = cli.audit();
    assert_eq!(audit.len(), 2);
    assert_eq!(
        (&audit[1]["action"], &audit[1]["reason"], &audit[1]["counts"]["done"]),
        (&"discard".into(), &"test orders".into(), &2.into())
    );
    assert_eq!(
        cli.ok(&["check", queue, "--warn", "0", "--critical", "0"]).await.out.split(' ').next(),
        Some("OK")
    );
    assert_eq!(cli.json(&["runs", "list"]).await.as_array().unwrap().len(), 2);
    service.stop().await;
    shop.tidy_up().await;
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
