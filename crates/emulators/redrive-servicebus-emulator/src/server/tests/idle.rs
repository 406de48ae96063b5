use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn hub_that_detaches() -> Arc<SharedState> {
    let shared = Arc::into_inner(shared()).unwrap();
    Arc::new(shared.detaching_idle_links(Some(10 * MINUTE)))
}

impl Client {
    fn put_forward(&mut self, by: Duration) -> Vec<Said> {
        self.shared.put_forward(by).expect("a short step");
        self.hear()
    }
}

fn detached(said: &[Said]) -> Vec<(u32, String)> {
    said.iter()
        .filter_map(|(performative, _)| match performative {
            Performative::Detach(detach) => Some((detach.handle, detach.error.clone()?.condition)),
            _ => None,
        })
        .collect()
}

fn forced(handle: u32) -> (u32, String) {
    (handle, "amqp:link:detach-forced".to_owned())
}

#[test]
fn links_that_are_used_stay_and_the_others_are_detached() {
    let mut client = Client::connect(&hub_that_detaches());
    client.attach_sender(0, "orders");
    client.attach_receiver(1, "orders");
    client.attach_receiver(2, "orders");
    assert!(detached(&client.put_forward(9 * MINUTE)).is_empty());
    client.send(0, &message("a"), None);
    client.credit(1, 0, 1, false);
    assert_eq!(detached(&client.put_forward(MINUTE)), [forced(2)], "nothing came or went by it");
    assert_eq!(detached(&client.put_forward(9 * MINUTE)), [forced(0), forced(1)], "credit alone is no use");
}

#[test]
fn settling_is_a_use() {
    let mut client = Client::connect(&hub_that_detaches());
    client.attach_sender(0, "orders");
    client.attach_receiver(1, "orders");
    client.send(0, &message("a"), None);
    client.credit(1, 0, 1, false);
    client.put_forward(9 * MINUTE);
    client.settle(1, 1, DeliveryState::Released);
    assert_eq!(detached(&client.put_forward(MINUTE)), [forced(0)]);
}

#[test]
fn links_for_requests_stay() {
    let mut client = Client::connect(&hub_that_detaches());
    client.attach_sender(0, "orders/$management");
    client.attach_receiver(1, "orders/$management");
    client.attach_sender(2, "$cbs");
    assert!(detached(&client.put_forward(60 * MINUTE)).is_empty());
}

#[test]
fn by_itself_no_link_is_idle() {
    let mut client = Client::connect(&shared());
    client.attach_sender(0, "orders");
    assert!(detached(&client.put_forward(600 * MINUTE)).is_empty());
}
