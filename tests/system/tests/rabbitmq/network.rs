//! Dead, slow, half-open and refused connections: work resumes as soon as possible, and no message is lost.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use redrive::rabbitmq::{Options, RabbitMq};
use redrive::{millis, secs};
use redrive_brokers::{Proxy, broker, report};
use redrive_system_tests::rabbit::Rabbit;
use redrive_system_tests::service::{Service, good, publish};
use redrive_system_tests::tcp_proxy::TcpProxy;
use redrive_system_tests::{Combination, fate, on_both_versions, within};

on_both_versions!(
    900;
    silent_connections_that_wake_up,
    silent_connections_when_new_ones_work,
    connections_cut_under_load,
    connections_that_are_slow,
    a_broker_that_refuses_connections_for_a_while,
);

/// A machine that stands still for seconds must not lose its connection while it is making it.
const HEARTBEAT: Duration = Duration::from_secs(6);
/// A connection is dead after two heartbeats without a sign of life; then come connecting and the first message. Most of it
/// is for a machine that is busy with other tests; the operating system alone would notice after a quarter of an hour.
const NOTICED_WITHIN: Duration = Duration::from_secs(12 + 240);
/// Attempts to connect are 10 s apart at most.
const TRIED_AGAIN_WITHIN: Duration = Duration::from_secs(10 + 240);
/// Connecting over a slow network takes seconds even on an idle machine.
const CONNECTED_WITHIN: Duration = Duration::from_secs(120);

async fn silent_connections_that_wake_up(on: Combination) {
    let scene = Scene::set(on, "wakes-up").await;
    let proxy = Proxy::start(scene.broker).await.unwrap();
    let mut service = scene.service(proxy.addr()).await;
    let mut ids = publish(&scene.operator, 0, 100).await;
    service.handled(30).await;

    proxy.freeze();
    ids.extend(publish(&scene.operator, 100, 100).await);
    // Long enough for both sides to give the connection up.
    tokio::time::sleep(3 * HEARTBEAT).await;
    let before = service.handled_now();
    proxy.thaw();
    let thawed = Instant::now();
    let resumed = service.handled(before + 1).await - thawed;
    assert!(resumed < TRIED_AGAIN_WITHIN, "resumed {resumed:?} after the thaw");
    scene.end(service, &ids, &format!("silent for {:?}, resumed {resumed:.1?} after", 3 * HEARTBEAT)).await;
}

async fn silent_connections_when_new_ones_work(on: Combination) {
    let scene = Scene::set(on, "half-open").await;
    let (old_way, new_way) =
        (Proxy::start(scene.broker).await.unwrap(), Proxy::start(scene.broker).await.unwrap());
    let tcp_proxy = TcpProxy::start(old_way.addr()).await;
    let mut service = scene.service(tcp_proxy.addr()).await;
    let mut ids = publish(&scene.operator, 0, 100).await;
    service.handled(30).await;

    tcp_proxy.lead_to(new_way.addr());
    old_way.freeze();
    let frozen = Instant::now();
    ids.extend(publish(&scene.operator, 100, 100).await);
    // What was handed out before the silence is in flight still, and handled without the network.
    let in_flight = service.handled_now() + 2 * redrive::Consumer::<RabbitMq>::DEFAULT_CONCURRENCY;
    let resumed = service.handled(in_flight.min(good(&ids))).await - frozen;
    assert!(resumed < NOTICED_WITHIN, "resumed {resumed:?} after the connection fell silent");
    scene.end(service, &ids, &format!("half-open for good, on new ones after {resumed:.1?}")).await;
}

async fn connections_cut_under_load(on: Combination) {
    let scene = Scene::set(on, "cut").await;
    let proxy = Proxy::start(scene.broker).await.unwrap();
    let mut service = scene.service(proxy.addr()).await;
    let ids = publish(&scene.operator, 0, 400).await;
    let most = good(&ids);
    let mut slowest = Duration::ZERO;
    for handled in [50, 150, 250] {
        service.handled(handled).await;
        proxy.cut();
        let cut = Instant::now();
        let in_flight = service.handled_now() + 2 * redrive::Consumer::<RabbitMq>::DEFAULT_CONCURRENCY;
        slowest = slowest.max(service.handled(in_flight.min(most)).await - cut);
    }
    assert!(slowest < NOTICED_WITHIN, "resumed {slowest:?} after a cut");
    scene.end(service, &ids, &format!("cut 3 times, resumed {slowest:.1?} after at most")).await;
}

async fn connections_that_are_slow(on: Combination) {
    let scene = Scene::set(on, "slow").await;
    let proxy = Proxy::start(scene.broker).await.unwrap();
    proxy.delay(millis(300));
    let began = Instant::now();
    let options = scene.options().heartbeat(secs(60)).connect_timeout(CONNECTED_WITHIN);
    let service = Service::run(options.connect(&scene.way_through(proxy.addr())).await.unwrap());
    let ids = publish(&scene.operator, 0, 30).await;
    scene
        .end(service, &ids, &format!("slow by 300 ms each way, started {:.1?} before", began.elapsed()))
        .await;
}

async fn a_broker_that_refuses_connections_for_a_while(on: Combination) {
    let scene = Scene::set(on, "refused").await;
    let proxy = Proxy::start(scene.broker).await.unwrap();
    // However fast it is, and however late the fault comes, there is something left to be handled.
    let transport =
        scene.options().heartbeat(secs(30)).connect(&scene.way_through(proxy.addr())).await.unwrap();
    let mut service = Service::run_held(transport);
    let ids = publish(&scene.operator, 0, 200).await;
    service.let_handle(30).await;

    proxy.refuse(true);
    proxy.cut();
    service.interrupted().await;
    service.let_all_end();
    let refused = Instant::now();
    within(TRIED_AGAIN_WITHIN, "several attempts to connect", proxy.refused(3)).await;
    let refused = refused.elapsed();
    let before = service.handled_now();
    assert!(before < good(&ids), "the messages were handled before anything was refused");
    proxy.refuse(false);
    let open = Instant::now();
    let resumed = service.handled(before + 1).await - open;
    assert!(resumed < TRIED_AGAIN_WITHIN, "resumed {resumed:?} after connections were welcome again");
    scene.end(service, &ids, &format!("refused for {refused:.1?}, resumed {resumed:.1?} after")).await;
}

/// A queue, and somebody with a good connection to it.
struct Scene {
    on: Combination,
    queue: String,
    url: String,
    broker: SocketAddr,
    operator: RabbitMq,
}

impl Scene {
    async fn set(on: Combination, what: &str) -> Self {
        let url = broker(on.version).url;
        let (_, rest) = url.split_once('@').expect("the URL has credentials");
        let broker = rest.split('/').next().unwrap().parse().expect("the URL has an address and a port");
        let queue = on.unique(what);
        let operator = on.options(&queue).connect(&url).await.unwrap();
        Self { on, queue, url, broker, operator }
    }

    /// A consumer that reaches the broker through `address` only.
    async fn service(&self, address: SocketAddr) -> Service {
        Service::run(self.options().connect(&self.way_through(address)).await.unwrap())
    }

    fn options(&self) -> Options {
        self.on.options(&self.queue).heartbeat(HEARTBEAT)
    }

    fn way_through(&self, address: SocketAddr) -> String {
        let url = self.url.replacen(&self.broker.to_string(), &address.to_string(), 1);
        assert_ne!(url, self.url);
        url
    }

    /// Waits until all messages ended, and reports.
    async fn end(&self, service: Service, ids: &[String], figures: &str) {
        let began = Instant::now();
        let (again, said) = service.to_the_end(ids, &self.operator).await;
        report(&format!(
            "connections on {}: {figures}; {} messages, 0 lost, {again} ended more than once, {} deduplicated, the \
             rest took {:.1?}",
            self.on,
            ids.len(),
            said.deduplicated,
            began.elapsed()
        ));
        let rungs = fate::WAITS.map(|wait| format!("{}--retry-{}ms", self.queue, wait.as_millis()));
        let shelves = ["", "--dead-letters", "--parking-lot"].map(|end| format!("{}{end}", self.queue));
        Rabbit::connect(&self.url).await.delete(rungs.into_iter().chain(shelves)).await;
    }
}
