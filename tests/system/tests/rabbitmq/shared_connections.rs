//! Many consumers on two connections: a fault of one consumer does not affect the others, and a lost connection loses no message of
//! any of them.

use std::net::SocketAddr;

use futures::future::join_all;
use redrive::prelude::*;
use redrive::rabbitmq::{Connections, Options};
use redrive_brokers::Proxy;
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::service::{Service, good, publish};
use redrive_system_tests::{Combination, fate, on_one_combination};

const CONSUMERS: usize = 20;

/// Twenty queues, the operators' connections to them, and a way to the broker that can be cut.
struct Scene {
    queues: Vec<String>,
    on: Combination,
    url: String,
    proxy: Proxy,
    operators: Vec<RabbitMq>,
}

impl Scene {
    async fn new(on: Combination, what: &str) -> Self {
        let url = redrive_brokers::broker(on.version).url;
        let proxy = Proxy::start(address(&url)).await.expect("a port");
        let queues: Vec<_> = (0..CONSUMERS).map(|number| on.unique(&format!("{what}-{number}"))).collect();
        let connections = Connections::connect(&url).await.expect("connected");
        let operators =
            join_all(queues.iter().map(|queue| options(on, queue).connect_over(&connections))).await;
        let operators = operators.into_iter().map(|operator| operator.expect("connected")).collect();
        Self { queues, on, url, proxy, operators }
    }

    /// Consumers that share two connections through the proxy.
    async fn consumers(&self) -> (Connections, Vec<Service>) {
        let address = address(&self.url).to_string();
        let url = self.url.replace(&address, &self.proxy.addr().to_string());
        let connections = Connections::connect(&url).await.expect("connected");
        let mut services = Vec::new();
        for queue in &self.queues {
            let transport = options(self.on, queue).connect_over(&connections).await.expect("connected");
            services.push(Service::run(transport));
        }
        (connections, services)
    }

    /// Publishes this many messages to each queue; gives back the ids, the same for all.
    async fn publish(&self, first: usize, count: usize) -> Vec<String> {
        let each = join_all(self.operators.iter().map(|operator| publish(operator, first, count))).await;
        each.into_iter().next().expect("there are queues")
    }

    async fn tidy_up(self) {
        let rabbit = Rabbit::connect(&self.url).await;
        for queue in &self.queues {
            let own = ["", "--dead-letters", "--parking-lot"].map(|suffix| format!("{queue}{suffix}"));
            rabbit.delete(fate::rungs(queue).chain(own)).await;
        }
        rabbit.close().await;
    }
}

fn options(on: Combination, queue: &str) -> Options {
    // No broker is killed here.
    let options = on.options(queue).retry_queue_type(on.queue_type).new_queue_wait(millis(300));
    // The operators, which know no policy, declare the same delay queues.
    fate::WAITS.into_iter().fold(options, Options::wait)
}

fn address(url: &str) -> SocketAddr {
    let host = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    host.parse().expect("the broker's address is an IP address and a port")
}

/// Each message of each queue comes to the end that it must come to, whichever consumer had it in flight when the two
/// connections were cut.
async fn a_cut_loses_nothing_for_any_of_them(on: Combination) {
    let scene = Scene::new(on, "cut").await;
    let (connections, mut services) = scene.consumers().await;
    let mut ids = scene.publish(0, 30).await;
    for cut in 1..=3 {
        join_all(services.iter_mut().map(|service| service.handled(good(&ids) / 2))).await;
        scene.proxy.cut();
        ids.extend(scene.publish(30 * cut, 30).await);
    }
    let ends = services.into_iter().zip(&scene.operators);
    join_all(ends.map(|(service, operator)| service.to_the_end(&ids, operator))).await;
    connections.close().await;
    scene.tidy_up().await;
}

/// One is stopped, the queue of another is deleted: the others do not notice.
async fn the_end_of_one_is_not_the_end_of_the_others(on: Combination) {
    let scene = Scene::new(on, "end").await;
    let (connections, mut services) = scene.consumers().await;
    let ids = scene.publish(0, 10).await;
    let (stopped, robbed) = (services.remove(0), services.remove(0));
    // Ends in order, and closes its transport.
    let (_, report) = stopped.to_the_end(&ids, &scene.operators[0]).await;
    assert_eq!(report.lost, 0, "{report:?}");
    let rabbit = Rabbit::connect(&scene.url).await;
    rabbit.delete([scene.queues[1].clone()]).await;
    let more = scene.publish(10, 10).await;
    let all: Vec<_> = ids.iter().chain(&more).cloned().collect();
    let ends = services.into_iter().zip(&scene.operators[2..]);
    for (_, report) in join_all(ends.map(|(service, operator)| service.to_the_end(&all, operator))).await {
        assert_eq!(report.lost, 0, "{report:?}");
    }
    // Declared again under its consumer, which takes what came since.
    robbed.to_the_end(&more, &scene.operators[1]).await;
    connections.close().await;
    rabbit.close().await;
    scene.tidy_up().await;
}

mod v3_10 {
    use super::*;
    on_one_combination!(V3_10, Classic, 900; a_cut_loses_nothing_for_any_of_them, the_end_of_one_is_not_the_end_of_the_others);
}

mod v4_3 {
    use super::*;
    on_one_combination!(V4_3, Quorum, 900; a_cut_loses_nothing_for_any_of_them, the_end_of_one_is_not_the_end_of_the_others);
}
