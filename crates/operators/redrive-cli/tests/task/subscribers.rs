//! One message goes to several queues, and fails in each.

use redrive::Message;

use crate::common::{Cli, Shop};

/// What one of them redrives, the others do not receive.
pub(crate) async fn one_subscriber(shops: &[Shop]) {
    let event = |id: u32| Message::new(format!("\"order {id}\"")).with_id(format!("order-{id}"));
    shops[0].publish_event(event(1)).await;
    for shop in shops {
        shop.fail_all(1).await;
        shop.has_shelved(1).await;
    }
    let mut services = Vec::new();
    for shop in shops {
        services.push(shop.repaired().await);
    }
    let cli = Cli::new(&shops[1]);
    let redrive = ["redrive", &shops[1].queue, "--all", "--yes", "--canary-wait", "1s"];
    let mut done = cli.run(&redrive).await;
    if !shops[1].has_reports() {
        assert!(done.code == 3 && done.err.contains("retry"), "{}{}", done.out, done.err);
        let secret = cli.path("secret").display().to_string();
        let queues =
            r#""events/Subscriptions/stock" = "stock-retry", "events/subscriptions/bills" = "bills-retry""#;
        let azure = format!(
            "[contexts.azure]\nbroker = \"servicebus\"\nsecret = {{ file = {secret:?} }}\nretry-queues = {{ {queues} }}\n"
        );
        cli.write("config.toml", &azure);
        let config = cli.path("config.toml").display().to_string();
        done = cli.run(&[&["--config", &config, "--context", "azure"], &redrive[..]].concat()).await;
    }
    assert_eq!(done.code, 0, "{}\n{}", done.out, done.err);
    services[1].handled(1).await;
    // Whatever the redrive sent elsewhere would come before this.
    shops[0].publish_event(event(2)).await;
    for (index, (shop, service)) in shops.iter().zip(services).enumerate() {
        let is_redriven = index == 1;
        service.handled(if is_redriven { 2 } else { 1 }).await;
        assert_eq!(service.count(), if is_redriven { 2 } else { 1 }, "{}", shop.queue);
        service.stop().await;
        shop.has_shelved(u64::from(!is_redriven)).await;
        shop.tidy_up().await;
    }
}
