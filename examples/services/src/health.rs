//! A web service with two consumers: it takes orders by HTTP, tells an orchestrator how its consumers are, and Prometheus what they
//! do and what is on the shelves.
//!
//! ```console
//! $ cargo run --package services -- health
//! $ curl --data 'a lamp' localhost:8080/orders
//! $ curl --include localhost:8080/ready
//! $ curl localhost:8080/metrics
//! ```

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use redrive::ConsumersHandle;
use redrive::memory::MemoryBroker;
use redrive::ops::{ShelfExporter, ShelfMetrics};
use redrive::prelude::{BoxError, Consumer, Consumers, Message, Publisher, secs, shutdown_signal};
use redrive::telemetry::{Metrics, catalog};
use tokio::net::TcpListener;

pub(crate) async fn run(broker: &MemoryBroker) -> Result<(), BoxError> {
    let (consumers, pages) = service(broker)?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    println!("listening on http://{}", listener.local_addr()?);
    // The pages answer until the process ends, also while the last handlers finish.
    tokio::spawn(async move { axum::serve(listener, pages).await });

    // The error of a consumer ends the other one too, and then the process: something outside starts it again.
    for (queue, report) in consumers.run_until(shutdown_signal()).await? {
        println!("{queue}: {} handled", report.acknowledged);
    }
    Ok(())
}

/// The consumers, and the pages about them.
fn service(broker: &MemoryBroker) -> Result<(Consumers, axum::Router), BoxError> {
    let (metrics, exporter) = metrics()?;
    tokio::spawn(keep_up(exporter.clone()));
    let consumers = consumers(broker, &metrics);
    let shown = Shown { consumers: exporter, shelves: shelf_metrics(broker) };
    let pages = pages(consumers.handle(), broker.transport("orders").publisher(), shown);
    Ok((consumers, pages))
}

fn consumers(broker: &MemoryBroker, metrics: &Metrics) -> Consumers {
    let consumer = |queue| Consumer::new(broker.transport(queue)).observer(metrics.clone());
    let orders = consumer("orders").with_dead_letter_backoff([secs(1), secs(10)]);
    let invoices = consumer("invoices").with_dead_letter_backoff([secs(30)]);
    Consumers::new().with(orders.handler(ship)).with(invoices.grace(secs(60)).handler(send))
}

async fn ship(order: String, publisher: Publisher) -> Result<(), BoxError> {
    println!("shipping {order}");
    publisher.to("invoices").publish(Message::new(order)).await?;
    Ok(())
}

async fn send(invoice: String) {
    println!("sending the invoice for {invoice}");
}

/// The metrics of the consumers, and what shows them to Prometheus.
fn metrics() -> Result<(Metrics, PrometheusHandle), BoxError> {
    let mut exporter = PrometheusBuilder::new();
    for metric in catalog().iter().filter(|metric| !metric.buckets.is_empty()) {
        exporter = exporter.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), metric.buckets)?;
    }
    let recorder = exporter.build_recorder();
    let handle = recorder.handle();
    Ok((Metrics::with_recorder(recorder), handle))
}

/// What was measured is put into its buckets when Prometheus asks, and in between, as nobody may ask for long.
async fn keep_up(exporter: PrometheusHandle) {
    loop {
        tokio::time::sleep(secs(5)).await;
        exporter.run_upkeep();
    }
}

/// What is on the shelves of both queues, read every 30 seconds.
fn shelf_metrics(broker: &MemoryBroker) -> ShelfMetrics {
    let shelves = |queue: &str| Arc::new(broker.shelves(queue));
    ShelfExporter::new().watch("orders", shelves("orders")).watch("invoices", shelves("invoices")).start()
}

/// What Prometheus is shown.
#[derive(Clone)]
struct Shown {
    consumers: PrometheusHandle,
    shelves: ShelfMetrics,
}

fn pages(consumers: ConsumersHandle, orders: Publisher, shown: Shown) -> axum::Router {
    axum::Router::new()
        .route("/live", get(live))
        .route("/ready", get(ready))
        .with_state(consumers)
        .route("/orders", post(accept).with_state(orders))
        .route("/metrics", get(show).with_state(shown))
}

/// For the liveness probe: fails only where a restart would help. A broker that is away is no reason to restart.
async fn live(State(consumers): State<ConsumersHandle>) -> (StatusCode, String) {
    page(consumers.is_live(), &consumers)
}

/// For the readiness probe and for alerts: fails while a consumer takes no messages.
async fn ready(State(consumers): State<ConsumersHandle>) -> (StatusCode, String) {
    page(consumers.is_ready(), &consumers)
}

fn page(is_well: bool, consumers: &ConsumersHandle) -> (StatusCode, String) {
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let lines = consumers.health().iter().map(|(queue, health)| format!("{queue}: {health}\n")).collect();
    (status, lines)
}

/// `202` once the broker has confirmed the order; until then the client still has it.
async fn accept(State(orders): State<Publisher>, order: String) -> StatusCode {
    match orders.publish(Message::new(order)).await {
        Ok(()) => StatusCode::ACCEPTED,
        Err(error) => {
            eprintln!("not published: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// For Prometheus: both texts, one after the other. No broker is asked: the page shows what was read last, and how old that is.
async fn show(State(shown): State<Shown>) -> impl IntoResponse {
    let text = shown.consumers.render() + &shown.shelves.render();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::*;
    use crate::empty;

    #[tokio::test(start_paused = true)]
    async fn a_paused_consumer_is_live_and_not_ready() -> Result<(), BoxError> {
        let broker = MemoryBroker::new();
        let (consumers, pages) = service(&broker)?;
        let handle = consumers.handle();
        let status =
            async |request: Request<Body>| pages.clone().oneshot(request).await.map(|it| it.status());
        let get = async |path: &str| status(Request::get(path).body(Body::empty()).expect("a request")).await;

        assert_eq!(
            (get("/live").await?, get("/ready").await?),
            (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
        );
        let order = Request::post("/orders").body(Body::from("a lamp"))?;
        assert_eq!(status(order).await?, StatusCode::ACCEPTED);

        let probing = async {
            empty(&broker, &["orders", "invoices"]).await;
            assert_eq!((get("/live").await?, get("/ready").await?), (StatusCode::OK, StatusCode::OK));
            let (_, orders) = handle.iter().next().expect("two consumers");
            orders.pause();
            orders.wait_for_health(|health| !health.is_ready()).await;
            assert_eq!(
                (get("/live").await?, get("/ready").await?),
                (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE)
            );
            handle.stop();
            Ok::<_, BoxError>(())
        };
        let (reports, probed) = tokio::join!(consumers.run_until(std::future::pending()), probing);
        probed?;
        let handled: Vec<_> = reports?.into_iter().map(|(_, report)| report.acknowledged).collect();
        assert_eq!(handled, [1, 1]);
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_show_consumers_and_shelves() -> Result<(), BoxError> {
        let broker = MemoryBroker::new();
        let (consumers, pages) = service(&broker)?;
        let handle = consumers.handle();
        broker.publish("orders", Message::new("a lamp"))?;
        let asking = async {
            empty(&broker, &["orders", "invoices"]).await;
            let response = pages.oneshot(Request::get("/metrics").body(Body::empty())?).await?;
            let page = axum::body::to_bytes(response.into_body(), usize::MAX).await?;
            handle.stop();
            Ok::<_, BoxError>(String::from_utf8(page.to_vec())?)
        };
        let (reports, page) = tokio::join!(consumers.run_until(std::future::pending()), asking);
        reports?;
        let page = page?;
        for line in [
            r#"messages_processed_total{queue_name="orders",outcome="ack"} 1"#,
            r#"messages_deadlettered_total{queue_name="invoices",reason="PoisonMessage"} 0"#,
            r#"handler_duration_seconds_bucket{queue_name="orders",le="+Inf"} 1"#,
            r#"shelf_messages{queue_name="invoices",shelf="parking"} 0"#,
        ] {
            assert!(page.lines().any(|shown| shown == line), "no {line}: {page}");
        }
        Ok(())
    }
}
