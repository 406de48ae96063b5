//! Nobody can send to a dead-letter queue of Service Bus: what is edited there goes to a parking queue first.

use crate::common::{Cli, Shop};

/// Parks what `edit` selects, edits it there, and sends it back from there.
pub(crate) async fn edited_on_the_parking_queue(shop: &Shop, cli: &Cli, edit: &[&str]) {
    let secret = cli.path("secret").display().to_string();
    cli.write(
        "config.toml",
        &format!(
            "[contexts.azure]\nbroker = \"servicebus\"\nsecret = {{ file = {secret:?} }}\n\
             parking-queues = {{ orders = \"orders-parking\" }}\n"
        ),
    );
    let config = cli.path("config.toml").display().to_string();
    let context = ["--config", &config, "--context", "azure"];
    let ok = async |arguments: &[&str]| cli.ok(&[&context[..], arguments].concat()).await;

    ok(&["park", "orders", "error~stock", "--yes"]).await;
    shop.has_shelved(2).await;
    let edited = ok(&[edit, &["--shelf", "parking", "--yes", "--reason", "a typing error"]].concat()).await;
    assert!(edited.out.contains("3 of 3 edited"), "{}\n{}", edited.out, edited.err);
    let again = ok(&[edit, &["--shelf", "parking", "--yes"]].concat()).await;
    assert!(again.err.contains("changes 0 of 3"), "{}", again.err);

    let again = "redrive redrive orders --shelf parking FILTER";
    assert!(edited.out.contains(again), "{}\n{}", edited.out, edited.err);
    let service = shop.repaired().await;
    let redrive = ["redrive", "orders", "header.checked:true", "--shelf", "parking"];
    ok(&[&redrive[..], &["--yes", "--canary-wait", "1s"]].concat()).await;
    service.handled(3).await;
    service.stop().await;
    let shelves = ok(&["--json", "shelves", "orders"]).await;
    let shelves: serde_json::Value = serde_json::from_str(&shelves.out).expect("JSON");
    let counts = shelves.as_array().expect("shelves").iter().map(|shelf| shelf["count"].as_u64());
    assert_eq!(counts.collect::<Vec<_>>(), [Some(2), Some(0)], "{shelves}");
}
