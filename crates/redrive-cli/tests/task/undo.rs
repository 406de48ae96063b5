//! Discards are undone, and something goes wrong with it.

use redrive::Message;

use crate::common::{Cli, Shop};

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
